"""Each endpoint of Kafka Connect: status, headers and body of good requests and of bad ones, over a real socket."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from compactor.errors import StorageError
from connectors.clock import SystemClock
from connectors.config.files import load_connector, load_worker
from connectors.rest import service
from connectors.rest.listeners import bind
from connectors.runtime.connector_store import ConnectorStore
from tests.support.cli import NAME, connector_file, worker_file
from tests.support.rest import BUCKETS, RestWorker, rest_worker, stand_ins

JSON = {"Content-Type": "application/json"}
CLASS = {"connector.class": "keyfold.CompactedTopic"}


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RestWorker]:
    stand_ins(monkeypatch.setattr)
    with rest_worker(tmp_path) as found:
        yield found


def message(answer: Any) -> str:
    """The text of an error, whose form is checked."""
    body = answer.json()
    assert set(body) == {"error_code", "message"}
    assert body["error_code"] == answer.status_code
    assert answer.headers["content-type"] == "application/json"
    found: str = body["message"]
    return found


def test_the_worker_says_which_it_is(worker: RestWorker) -> None:
    """GET / and GET /health, which tools call first."""
    found = worker.ask("GET", "/")
    assert (found.status_code, set(found.json())) == (200, {"version", "commit", "kafka_cluster_id"})
    assert all(isinstance(value, str) for value in found.json().values())
    assert worker.ask("GET", "/health").json() == {
        "status": "healthy",
        "message": "Worker has completed startup and is ready to handle requests.",
    }


@pytest.mark.parametrize(("health", "code"), [("starting", 503), ("healthy", 200), ("unhealthy", 500)])
def test_health_is_the_workers(worker: RestWorker, health: str, code: int) -> None:
    """KIP-1017: never that of a connector."""
    worker.create("a")
    worker.supervisor("a").fail("Away.")
    worker.health = health
    found = worker.ask("GET", "/health")
    assert (found.status_code, found.json()["status"]) == (code, health)


def test_strict_health_is_also_its_connectors(worker: RestWorker) -> None:
    """`strict=true` fails, and names each connector that is FAILED."""
    worker.create("a")
    assert worker.ask("GET", "/health?strict=true").status_code == 200
    worker.supervisor("a").fail("Topic t is gone.")
    found = worker.ask("GET", "/health?strict=TRUE")
    assert (found.status_code, found.json()["status"]) == (500, "unhealthy")
    assert "connector a is FAILED: Topic t is gone." in found.json()["message"]
    assert worker.ask("GET", "/health?strict=perhaps").status_code == 200


def test_a_connector_is_made(worker: RestWorker) -> None:
    """201, an absolute Location, and the connector with its tasks; numbers and booleans become their texts."""
    made = worker.create(" a ", topics="t", **{"tasks.max": 3, "output.source.headers.enable": True})
    assert (made.status_code, made.headers["location"]) == (201, f"{worker.url}/connectors/a")
    config = {**CLASS, "name": "a", "topics": "t", "tasks.max": "3", "output.source.headers.enable": "true"}
    tasks = [{"connector": "a", "task": task} for task in range(3)]
    assert made.json() == {"name": "a", "config": config, "tasks": tasks, "type": "sink"}
    assert worker.ask("GET", "/connectors/a").json() == made.json()
    assert worker.ask("GET", "/connectors/a/config").json() == config


def test_a_connector_that_another_client_deletes_at_once_was_made(
    worker: RestWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that of a connector that was made: 404 would say that it never was."""
    put = worker.herder.put

    def put_and_delete(name: str, *arguments: Any, **more: Any) -> bool:
        made = put(name, *arguments, **more)
        worker.herder.delete(name)
        return made

    monkeypatch.setattr(worker.herder, "put", put_and_delete)
    found = worker.create("a", **{"tasks.max": "3"})
    assert (found.status_code, found.json()["config"]["topics"], len(found.json()["tasks"])) == (201, "a", 3)
    assert worker.ask("GET", "/connectors/a").status_code == 404


@pytest.mark.parametrize(("state", "is_then"), [("PAUSED", "PAUSED"), ("stopped", "STOPPED"), ("Running", "RUNNING")])
def test_a_connector_is_made_in_a_state(worker: RestWorker, state: str, is_then: str) -> None:
    """KIP-980: `initial_state`, in any case."""
    body = {"name": "a", "config": {**CLASS, "topics": "t"}, "initial_state": state}
    assert worker.ask("POST", "/connectors", json=body).status_code == 201
    assert worker.ask("GET", "/connectors/a/status").json()["connector"]["state"] == is_then


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ("{nope", 400, "The request's body: line 1, column 2: this is not JSON"),
        ("", 400, "The request's body: line 1, column 1: this is not JSON: the body is empty."),
        ("[]", 400, "The request's body: must hold one JSON object."),
        ("[" * 100_000, 400, "nested too deeply"),
        (b"\xff\xfe", 400, "byte 0: this is not UTF-8"),
        ('{"name": "a", "name": "b"}', 400, 'the key "name" stands twice; remove one.'),
        ('{"name": "a", "config": {"topics": "\\ud83d"}}', 400, "\\ud83d is half of a character; remove it."),
        ({"config": {}}, 400, "The connector has no name."),
        ({"name": "", "config": {}}, 400, "The connector has no name."),
        ({"name": True, "config": {}}, 400, "The connector has no name."),
        ({"name": "a"}, 400, 'The body has no "config".'),
        ({"name": "a", **CLASS, "topics": "t"}, 400, 'Send {"name": "…", "config": {…}}'),
        ({"name": "a", "config": []}, 400, "config is no JSON object."),
        ({"name": "a", "config": {}, "tasks": []}, 400, '"tasks" is unknown here'),
        ({"name": "a", "config": {}, "initial_state": "DONE"}, 400, 'initial_state "DONE" is not allowed.'),
        ({"name": "a", "config": {"name": "b"}}, 400, "doesn't match connector name in the URL (a)"),
        ({"name": "a", "config": {**CLASS, "topics": None}}, 400, "topics: null is not allowed"),
        ({"name": "a", "config": {**CLASS, "topics": ["t"]}}, 400, "topics: a list is not allowed"),
        ({"name": "a", "config": {"topics": "t"}}, 400, 'Missing required configuration "connector.class"'),
        ({"name": "a", "config": {**CLASS}}, 400, "must configure one of topics or topics.regex"),
        ({"name": "a", "config": {**CLASS, "topics": "t", "tasks.max": "q"}}, 400, "Invalid value q for configuration"),
        (
            {"name": "a", "config": {"connector.class": "x.Y", "topics": "t"}},
            400,
            "Invalid value x.Y for configuration",
        ),
        ({"name": "a b", "config": {**CLASS, "topics": "t"}}, 400, "Invalid value a b for configuration name"),
        ({"name": "a\nb", "config": {**CLASS, "topics": "t"}}, 400, "Invalid value a\nb for configuration name"),
        (
            {"name": "a", "config": {**CLASS, "topics": "t", "consumer.override.sasl.mechanism": "x"}},
            400,
            "Invalid value x for configuration consumer.override.sasl.mechanism",
        ),
        ({"name": "../a", "config": {**CLASS, "topics": "t"}}, 400, "Invalid value ../a for configuration name"),
        (
            {"name": "a", "config": {**CLASS, "topics": "t", "snapshot.location": "here"}},
            400,
            'snapshot.location: "here" is a relative path; name one from / on.',
        ),
        *(
            ({"name": "a", "config": {**CLASS, "topics": "t", "snapshot.location": place}}, 400, said)
            for place, said in (
                ("/a\0b", "a text with NUL"),
                ("file:///a%00b", "no folder can have that name"),
                ("/a" * 3_000, "no folder can have that name"),
                ("~no-such-user/a", "there is no such user"),
            )
        ),
    ],
)
def test_what_cannot_be_made_is_refused(worker: RestWorker, body: Any, code: int, said: str) -> None:
    """400 where Kafka Connect says 500 for a mistake of the client's: with the key, the value and what is allowed."""
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    found = worker.ask("POST", "/connectors", content=text, headers=JSON)
    assert (found.status_code, said in message(found)) == (code, True), found.text
    assert worker.ask("GET", "/connectors").json() == []


def test_all_faults_of_a_config_are_counted(worker: RestWorker) -> None:
    """In the words that people and tools look for."""
    found = worker.create("a", **{"tasks.max": "0", "min.cleanable.dirty.ratio": "2"})
    lines = message(found).splitlines()
    assert lines[0] == "Connector configuration is invalid and contains the following 2 error(s):"
    assert lines[-1].endswith("`/connector-plugins/{connectorType}/config/validate`")
    assert len(lines) == 4


def test_a_connector_that_exists_is_not_made_again(worker: RestWorker) -> None:
    """409, in Kafka Connect's words."""
    worker.create("a")
    found = worker.create("a")
    assert (found.status_code, message(found)) == (409, "Connector a already exists")


def test_a_config_is_put(worker: RestWorker) -> None:
    """201 with Location for a new connector, 200 for one that is there."""
    made = worker.ask("PUT", "/connectors/a/config", json={**CLASS, "topics": "t"})
    assert (made.status_code, made.headers["location"]) == (201, f"{worker.url}/connectors/a")
    put = worker.ask("PUT", "/connectors/a/config", json={**CLASS, "topics": "t", "tasks.max": 1, "name": "a"})
    assert (put.status_code, "location" in put.headers) == (200, False)
    assert put.json()["config"]["tasks.max"] == "1"
    assert [len(worker.ask("GET", f"/connectors/a{path}").json()) for path in ("/tasks",)] == [1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "a", "config": {**CLASS, "topics": "t"}}, "only the settings of config are sent"),
        ({**CLASS, "topics": "t", "name": "b"}, "doesn't match connector name in the URL (a)"),
        ({**CLASS}, "must configure one of topics or topics.regex"),
        ({**CLASS, "topics": None}, "null is not allowed"),
    ],
)
def test_a_config_that_is_wrong_is_not_put(worker: RestWorker, body: Any, said: str) -> None:
    """400, and nothing is made; the wrapped form gets told so."""
    found = worker.ask("PUT", "/connectors/a/config", json=body)
    assert (found.status_code, said in message(found)) == (400, True), found.text
    assert worker.ask("GET", "/connectors").json() == []


def test_a_config_is_patched(worker: RestWorker) -> None:
    """KIP-477: what is named changes, null removes, the rest stays."""
    worker.create("a", **{"tasks.max": "4", "fold.tier.runs": "5"})
    found = worker.ask("PATCH", "/connectors/a/config", json={"tasks.max": None, "fold.tier.runs": 6})
    assert found.status_code == 200
    assert found.json()["config"] == {**CLASS, "topics": "a", "fold.tier.runs": "6", "name": "a"}
    assert worker.ask("PATCH", "/connectors/b/config", json={}).status_code == 404
    assert worker.ask("PATCH", "/connectors/a/config", json={"topics": None}).status_code == 400
    assert worker.ask("GET", "/connectors/a/config").json() == found.json()["config"]


def test_a_connector_is_deleted(worker: RestWorker) -> None:
    """204 without a body; then it is not there."""
    worker.create("a")
    found = worker.ask("DELETE", "/connectors/a")
    assert (found.status_code, found.content, "content-type" in found.headers) == (204, b"", False)
    again = worker.ask("DELETE", "/connectors/a")
    assert (again.status_code, message(again)) == (404, "Connector a not found")
    gone = worker.ask("GET", "/connectors/a/status")
    assert (gone.status_code, message(gone)) == (404, "No status found for connector a")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("GET", "/config"),
        ("GET", "/tasks"),
        ("GET", "/status"),
        ("GET", "/tasks/0/status"),
        ("PUT", "/pause"),
        ("PUT", "/resume"),
        ("PUT", "/stop"),
        ("POST", "/restart"),
        ("POST", "/restart?includeTasks=true"),
        ("POST", "/tasks/0/restart"),
    ],
)
def test_a_connector_that_there_is_not(worker: RestWorker, method: str, path: str) -> None:
    """404 everywhere, with the connector's name."""
    found = worker.ask(method, f"/connectors/nope{path}")
    assert (found.status_code, "nope" in message(found)) == (404, True)


def test_connectors_are_listed(worker: RestWorker) -> None:
    """Names; with `expand` what is asked for of each, and an unknown word is left out (KIP-465)."""
    worker.create("b")
    worker.create("a")
    assert worker.ask("GET", "/connectors").json() == ["a", "b"]
    found = worker.ask("GET", "/connectors?expand=info&expand=status").json()
    assert {name: set(one) for name, one in found.items()} == {"a": {"info", "status"}, "b": {"info", "status"}}
    assert found["a"]["info"] == worker.ask("GET", "/connectors/a").json()
    assert found["a"]["status"] == worker.ask("GET", "/connectors/a/status").json()
    assert worker.ask("GET", "/connectors?expand=nope").json() == {"a": {}, "b": {}}


def test_a_status(worker: RestWorker) -> None:
    """The state of the connector and of each task; `trace` only where it is FAILED, with the time of its restart."""
    worker.create("a")
    id_ = worker.url.removeprefix("http://")
    common = {"state": "RUNNING", "worker_id": id_, "version": worker.ask("GET", "/").json()["version"]}
    tasks = [{"id": task, **common} for task in range(BUCKETS)]
    assert worker.ask("GET", "/connectors/a/status").json() == {
        "name": "a",
        "connector": common,
        "tasks": tasks,
        "type": "sink",
    }
    worker.supervisor("a").fail("Topic t, partition 3, offset 7: no.", next_restart_ms=1_700_000_000_000)
    failed = worker.ask("GET", "/connectors/a/status").json()
    trace = "Topic t, partition 3, offset 7: no.\nStarted again at 2023-11-14T22:13:20Z or before."
    assert failed["connector"] == {**common, "state": "FAILED", "trace": trace}
    assert failed["tasks"][1] == {"id": 1, **common, "state": "FAILED", "trace": trace}
    assert worker.ask("GET", "/connectors/a/tasks/1/status").json() == failed["tasks"][1]
    for task, said in (("2", "No status found for task a-2"), ("-1", "No status found for task a--1")):
        missing = worker.ask("GET", f"/connectors/a/tasks/{task}/status")
        assert (missing.status_code, message(missing)) == (404, said)
    assert message(worker.ask("GET", "/connectors/a/tasks/x/status")) == "HTTP 404 Not Found"


def test_tasks(worker: RestWorker) -> None:
    """Each with the connector's config and a class; none while it is stopped."""
    worker.create("a")
    found = worker.ask("GET", "/connectors/a/tasks").json()
    assert [one["id"] for one in found] == [{"connector": "a", "task": task} for task in range(BUCKETS)]
    assert found[0]["config"]["task.class"] == "keyfold.CompactedTopicTask"
    worker.ask("PUT", "/connectors/a/stop")
    assert worker.ask("GET", "/connectors/a/tasks").json() == []


def test_pause_resume_and_stop(worker: RestWorker) -> None:
    """202, 202 and 204, each as often as one likes, whatever is sent with it; clients send `null`, "" or nothing."""
    worker.create("a")

    def state() -> str:
        found: str = worker.ask("GET", "/connectors/a/status").json()["connector"]["state"]
        return found

    for word, code, then in (("pause", 202, "PAUSED"), ("stop", 204, "STOPPED"), ("resume", 202, "RUNNING")):
        for more in ({}, {"content": "null", "headers": JSON}, {"content": '""', "headers": JSON}):
            found = worker.ask("PUT", f"/connectors/a/{word}", **more)
            assert (found.status_code, found.content, "content-type" in found.headers) == (code, b"", False)
            assert state() == then
    worker.ask("PUT", "/connectors/a/stop")
    assert worker.ask("GET", "/connectors/a/status").json()["tasks"] == []


def test_a_restart(worker: RestWorker) -> None:
    """KIP-745: 204, or with one of its words 202 and what is planned; only what is FAILED where that is asked for."""
    worker.create("a")
    found = worker.ask("POST", "/connectors/a/restart")
    assert (found.status_code, found.content, worker.supervisor("a").restarts) == (204, b"", 1)
    planned = worker.ask("POST", "/connectors/a/restart?includeTasks=True")
    assert (planned.status_code, worker.supervisor("a").restarts) == (202, 2)
    states = [planned.json()["connector"], *planned.json()["tasks"]]
    assert {one["state"] for one in states} == {"RESTARTING"}
    nothing = worker.ask("POST", "/connectors/a/restart?onlyFailed=true")
    assert (nothing.status_code, nothing.json()["connector"]["state"]) == (202, "RUNNING")
    assert worker.supervisor("a").restarts == 2
    worker.supervisor("a").fail("No.")
    worker.ask("POST", "/connectors/a/restart?onlyFailed=true&includeTasks=maybe")
    assert worker.supervisor("a").restarts == 3
    assert worker.ask("POST", "/connectors/a/tasks/1/restart").status_code == 204
    assert worker.supervisor("a").restarts == 4
    missing = worker.ask("POST", "/connectors/a/tasks/7/restart")
    assert (missing.status_code, message(missing)) == (404, "Unknown task: a-7")


def test_a_restart_of_what_is_stopped_starts_nothing(worker: RestWorker) -> None:
    """Only resuming it does."""
    worker.create("a")
    worker.ask("PUT", "/connectors/a/stop")
    assert worker.ask("POST", "/connectors/a/restart").status_code == 204
    assert worker.ask("GET", "/connectors/a/status").json()["connector"]["state"] == "STOPPED"


def test_topics(worker: RestWorker) -> None:
    """KIP-558: those that were read; of an unknown connector none, with 200."""
    worker.create("a")
    assert worker.ask("GET", "/connectors/a/topics").json() == {"a": {"topics": []}}
    assert worker.ask("PUT", "/connectors/a/topics/reset").status_code == 202
    assert worker.ask("GET", "/connectors/x/topics").json() == {"x": {"topics": []}}


@pytest.mark.parametrize(
    ("key", "method", "path"),
    [
        ("topic.tracking.enable", "GET", "topics"),
        ("topic.tracking.enable", "PUT", "topics/reset"),
        ("topic.tracking.allow.reset", "PUT", "topics/reset"),
    ],
)
def test_topics_that_are_not_tracked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, method: str, path: str
) -> None:
    """403, as the worker's file says so."""
    stand_ins(monkeypatch.setattr)
    with rest_worker(tmp_path, **{key: "false"}) as worker:
        found = worker.ask(method, f"/connectors/a/{path}")
        assert (found.status_code, "is disabled" in message(found)) == (403, True)


def test_plugins(worker: RestWorker) -> None:
    """The one connector, a sink to Kafka Connect's tools, and its keys by both of its names."""
    (plugin,) = worker.ask("GET", "/connector-plugins").json()
    assert (plugin["class"], plugin["type"], set(plugin)) == (
        "keyfold.CompactedTopic",
        "sink",
        {"class", "type", "version"},
    )
    found = worker.ask("GET", "/connector-plugins/CompactedTopic/config").json()
    assert found == worker.ask("GET", "/connector-plugins/keyfold.CompactedTopic/config").json()
    names = [one["name"] for one in found]
    assert {"name", "connector.class", "topics", "min.cleanable.dirty.ratio"} <= set(names)
    by_group = [(one["group"], one["order_in_group"]) for one in found]
    assert len(set(by_group)) == len(found)
    assert all(one["documentation"] for one in found)
    missing = worker.ask("GET", "/connector-plugins/Nope/config")
    assert (missing.status_code, message(missing)) == (404, "Unknown plugin Nope.")


def test_classes_of_a_chain_are_plugins_too(worker: RestWorker) -> None:
    """Under the names that Kafka Connect lists them by, each with its settings."""
    found = worker.ask("GET", "/connector-plugins?connectorsOnly=false").json()
    kinds = {one["class"]: one["type"] for one in found}
    assert kinds["org.apache.kafka.connect.transforms.Cast$Key"] == "transformation"
    assert kinds["io.debezium.transforms.ExtractNewRecordState"] == "transformation"
    assert kinds["org.apache.kafka.connect.transforms.predicates.HasHeaderKey"] == "predicate"
    both = {one["type"] for one in found if one["class"] == "org.apache.kafka.connect.json.JsonConverter"}
    assert both == {"converter", "header_converter"}
    assert kinds["keyfold.CompactedTopic"] == "sink"
    for name in kinds:
        answer = worker.ask("GET", f"/connector-plugins/{name}/config")
        assert answer.status_code == 200, name
    (spec, _) = worker.ask("GET", "/connector-plugins/Cast$Value/config").json()
    assert (spec["name"], spec["type"], spec["required"], spec["default_value"]) == ("spec", "LIST", True, None)


def test_a_chain_is_validated_key_by_key(worker: RestWorker) -> None:
    """The settings of each transform and predicate are among the config's keys, in groups of their own."""
    given = {
        **CLASS,
        "name": "a",
        "topics": "t",
        "value.converter": "Json",
        "transforms": "c",
        "transforms.c.type": "Cast$Value",
        "transforms.c.spec": "a:int",
        "transforms.c.predicate": "p",
        "predicates": "p",
        "predicates.p.type": "RecordIsTombstone",
    }
    found = worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=given).json()
    values = {one["value"]["name"]: one["value"] for one in found["configs"]}
    assert found["error_count"] == 1
    assert "int8" in values["transforms.c.spec"]["errors"][0]
    assert values["transforms.c.predicate"]["value"] == "p"
    assert values["transforms.c.negate"]["value"] == "false"
    assert {"Transforms: c", "Predicates: p"} <= set(found["groups"])


def test_a_config_is_validated(worker: RestWorker) -> None:
    """200 for a faulty one too: errors stand at their keys, unknown keys as well, secrets are not shown."""
    given = {
        **CLASS,
        "name": "a",
        "topics": "t",
        "tasks.max": "q",
        "topcs": "t",
        "consumer.override.sasl.password": "geheim",
    }
    found = worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=given)
    assert (found.status_code, found.json()["error_count"]) == (200, 2)
    values = {one["value"]["name"]: one["value"] for one in found.json()["configs"]}
    assert values["tasks.max"]["errors"][0].startswith("Invalid value q for configuration tasks.max")
    assert 'did you mean "topics"?' in values["topcs"]["errors"][0]
    assert values["topics"]["value"] == "t"
    assert values["min.cleanable.dirty.ratio"]["value"] == "0.5"
    assert "geheim" not in found.text
    bare = worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json={**CLASS, "topics": "t"})
    assert (bare.status_code, bare.json()["error_count"]) == (200, 1)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("CompactedTopic", {"topics": "t"}, 400),
        ("CompactedTopic", {"connector.class": "other"}, 400),
        ("Nope", {"connector.class": "Nope"}, 404),
    ],
)
def test_a_config_of_another_class_is_not_validated(worker: RestWorker, path: str, body: Any, code: int) -> None:
    """The request says one class and the config another, or none."""
    found = worker.ask("PUT", f"/connector-plugins/{path}/config/validate", json=body)
    assert (found.status_code, bool(message(found))) == (code, True)


def test_loggers(worker: RestWorker) -> None:
    """Their levels are read and set while the worker runs, in any case; root is among them."""
    assert set(worker.ask("GET", "/admin/loggers").json()["root"]) == {"level", "last_modified"}
    name = "connectors.test.loggers"
    touched = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "debug"})
    assert (touched.status_code, touched.json()) == (200, [name])
    found = worker.ask("GET", f"/admin/loggers/{name}").json()
    assert (found["level"], isinstance(found["last_modified"], int)) == ("DEBUG", True)
    assert worker.ask("GET", "/admin/loggers").json()[name] == found
    everywhere = worker.ask("PUT", f"/admin/loggers/{name}?scope=cluster", json={"level": "WARN"})
    assert (everywhere.status_code, everywhere.content) == (204, b"")
    bad = worker.ask("PUT", f"/admin/loggers/{name}", json={"level": "loud"})
    assert (bad.status_code, message(bad)) == (404, "invalid log level 'loud'.")
    assert worker.ask("PUT", f"/admin/loggers/{name}", json={}).status_code == 400
    assert worker.ask("GET", "/admin/loggers/no.such.logger").status_code == 404


def test_levels_are_this_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When one was set is told in ms of the worker's clock, and the next worker knows nothing of it."""
    stand_ins(monkeypatch.setattr)
    path = "/admin/loggers/connectors.test.own"
    for now_ms in (7, 8):
        monkeypatch.setattr(SystemClock, "now_ms", lambda _, now_ms=now_ms: now_ms)
        with rest_worker(tmp_path) as worker:
            worker.ask("PUT", "/admin/loggers/connectors.test.other", json={"level": "INFO"})
            before = worker.ask("GET", path)
            assert before.status_code == 404 or before.json()["last_modified"] is None
            worker.ask("PUT", path, json={"level": "INFO"})
            assert worker.ask("GET", path).json() == {"level": "INFO", "last_modified": now_ms}


def test_the_commit_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request starts no process."""
    stand_ins(monkeypatch.setattr)
    asked = Mock(return_value="abc1234")
    monkeypatch.setattr(service, "revision", asked)
    with rest_worker(tmp_path) as worker:
        assert [worker.ask("GET", "/").json()["commit"] for _ in range(3)] == ["abc1234"] * 3
    assert asked.call_count == 1


def test_paths_and_methods_as_in_connect(worker: RestWorker) -> None:
    """A slash at the end, HEAD and OPTIONS are taken; what there is not is an error in the same form."""
    worker.create("a")
    for path in ("/connectors/", "/connectors/a/", "/connectors/a/status/", "/admin/loggers/", "/connector-plugins/"):
        assert worker.ask("GET", path).status_code == 200
    head = worker.ask("HEAD", "/connectors")
    assert (head.status_code, head.content) == (200, b"")
    options = worker.ask("OPTIONS", "/connectors/a/config")
    assert (options.status_code, options.text) == (200, "GET, HEAD, OPTIONS, PATCH, PUT")
    assert options.headers["content-type"].startswith("text/plain")
    for method, path, code, said in (
        ("GET", "/nope", 404, "HTTP 404 Not Found"),
        ("PUT", "/connectors", 405, "HTTP 405 Method Not Allowed"),
        ("POST", "/connectors/a/tasks", 405, "HTTP 405 Method Not Allowed"),
        ("PUT", "/connectors/a/fence", 404, "HTTP 404 Not Found"),
        ("GET", "/connectors/a/tasks-config", 404, "HTTP 404 Not Found"),
    ):
        found = worker.ask(method, path)
        assert (found.status_code, message(found)) == (code, said)


def test_media_types(worker: RestWorker) -> None:
    """415 for a body that is not JSON, 406 where no JSON is taken; a GET may say that it sends JSON."""
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        found = worker.ask("POST", "/connectors", content="x", headers={"Content-Type": kind})
        assert (found.status_code, message(found)) == (415, "HTTP 415 Unsupported Media Type")
    made = worker.ask(
        "PUT",
        "/connectors/a/config",
        content=json.dumps({**CLASS, "topics": "t"}),
        headers={"Content-Type": "application/json; charset=utf-8"},
    )
    assert made.status_code == 201
    refused = worker.ask("GET", "/connectors", headers={"Accept": "image/png"})
    assert (refused.status_code, message(refused)) == (406, "HTTP 406 Not Acceptable")
    assert worker.ask("GET", "/connectors", headers={"Accept": "application/json", **JSON}).status_code == 200


def test_a_connector_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its config is its file's: 409 names that. All else works."""
    stand_ins(monkeypatch.setattr)
    file = load_connector(connector_file(tmp_path))
    with rest_worker(tmp_path, file) as worker:
        for method, path, body in (
            ("PUT", f"/connectors/{NAME}/config", {**CLASS, "topics": "u"}),
            ("PATCH", f"/connectors/{NAME}/config", {"tasks.max": 3}),
            ("DELETE", f"/connectors/{NAME}", None),
        ):
            found = worker.ask(method, path, json=body)
            assert (found.status_code, str(file.path) in message(found)) == (409, True), found.text
        assert worker.ask("PUT", f"/connectors/{NAME}/pause").status_code == 202
        assert worker.ask("GET", f"/connectors/{NAME}/status").json()["connector"]["state"] == "PAUSED"


def test_what_cannot_be_stored_is_not_made(worker: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 with the reason and what to do; the connector is not there."""

    def full(*_: object) -> None:
        raise StorageError("storage.location is full.", "Free space there.")

    monkeypatch.setattr(ConnectorStore, "put", full)
    found = worker.create("a")
    assert (found.status_code, message(found)) == (500, "storage.location is full. Free space there.")
    assert worker.ask("GET", "/connectors").json() == []


def test_a_defect_says_so(worker: RestWorker, monkeypatch: pytest.MonkeyPatch) -> None:
    """500 in the same form, and nothing of the program's insides."""
    monkeypatch.setattr(worker.herder, "names", lambda: 1 / 0)
    with structlog.testing.capture_logs() as logged:
        found = worker.ask("GET", "/connectors")
    assert [(line["event"], line["path"]) for line in logged] == [("request failed", "/connectors")]
    assert (found.status_code, "defect" in message(found), "division" in found.text) == (500, True, False)


def test_an_answers_body_waits_for_no_acknowledgement(tmp_path: Path) -> None:
    """Headers and body are sent one after the other; a client acknowledges the first only 40 ms later."""
    (bound,) = bind(load_worker(worker_file(tmp_path, listeners="http://127.0.0.1:0")))
    with bound.socket, socket.create_connection(("127.0.0.1", bound.port)):
        accepted, _ = bound.socket.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
