"""A connector over REST as Kafka Connect has it: made, changed, listed, paused, restarted, deleted; bad requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.catalog.owner_lock import OwnerLock, this_process
from compactor.model.state import CatalogState, Topic, rejection_of
from connectors.config.worker import ALLOWED, POLICY
from connectors.runtime.specs import connectors
from connectors.source.source_errors import DELETED, RECREATED, UNNAMED
from tests.support.rest import BUCKETS, RestWorker, message, rest_worker

JSON = {"Content-Type": "application/json"}
CLASS = {"connector.class": "keyfold.CompactedTopic"}


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
    put = worker.herder.specs.put

    def put_and_delete(name: str, *arguments: Any, **more: Any) -> bool:
        made = put(name, *arguments, **more)
        worker.herder.specs.delete(name)
        return made

    monkeypatch.setattr(worker.herder.specs, "put", put_and_delete)
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
            "Invalid value [hidden] for configuration consumer.override.sasl.mechanism",
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
                ("~no-such-user/a", "counts from a user's home folder"),
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


@pytest.mark.parametrize("state", ["RUNNING", "STOPPED"])
def test_a_connector_that_another_process_runs_is_not_made(worker: RestWorker, state: str) -> None:
    """409, in whatever state it is to be; once the other has ended it is made. Containers share host names and pids."""
    another = replace(this_process(), process="another")
    body = {"name": "a", "config": {**CLASS, "topics": "t"}, "initial_state": state}
    lock = OwnerLock(worker.location.sub("a"))
    assert lock.claim(another)
    for answer in (
        worker.ask("POST", "/connectors", json=body),
        worker.ask("PUT", "/connectors/a/config", json={**CLASS, "topics": "t"}),
    ):
        assert answer.status_code == 409
        assert f"Connector a is run by another process on this storage.location: {another}." in message(answer)
    assert worker.ask("GET", "/connectors").json() == []
    lock.release()
    assert worker.ask("POST", "/connectors", json=body).status_code == 201


def test_a_connector_of_this_worker_is_made_again_before_it_has_ended(worker: RestWorker) -> None:
    """The lock is this process's own then."""
    lock = OwnerLock(worker.location.sub("a"))
    assert lock.claim(this_process())
    assert worker.create("a").status_code == 201
    lock.release()


@pytest.mark.parametrize("bound", [{"connectors.max": "1"}, {}])
def test_one_connector_too_many_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: dict[str, str]
) -> None:
    """409, which says what bounds them, for POST and PUT; another config of one that there is, is taken."""
    monkeypatch.setattr(connectors, "most_connectors", lambda *_: 1)
    with rest_worker(tmp_path, **bound) as worker:
        assert worker.create("a").status_code == 201
        config = {"connector.class": "keyfold.CompactedTopic", "topics": "b"}
        for found in (worker.create("b"), worker.ask("PUT", "/connectors/b/config", json=config)):
            assert found.status_code == 409
            why = "" if bound else ", from the limit of open files (ulimit -n)"
            assert f"Connectors on this worker: 1; connectors.max is 1{why}. Delete one, or" in message(found)
        assert worker.ask("PUT", "/connectors/a/config", json={**config, "topics": "a"}).status_code == 200
        assert worker.ask("GET", "/connectors").json() == ["a"]


def test_what_the_worker_file_bounds_is_refused(tmp_path: Path) -> None:
    """By name when it is checked and when it is made; what was made before the bound was there is left out."""
    config = {
        "consumer.override.fetch.min.bytes": "2",
        "admin.override.request.timeout.ms": "9000",
        "snapshot.location": str(tmp_path / "snapshots"),
    }
    with rest_worker(tmp_path) as worker:
        assert worker.create("a", **config).status_code == 201
        assert worker.create("b").status_code == 201
    bounds = {POLICY: "Principal", ALLOWED: str(tmp_path / "allowed")}
    with rest_worker(tmp_path, **bounds) as worker:
        assert worker.ask("GET", "/connectors").json() == ["b"]
        made = worker.create("c", **config)
        sent = {**CLASS, "name": "c", "topics": "c", **config}
        found = worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=sent).json()
    assert (made.status_code, "the following 3 error(s)" in message(made)) == (400, True)
    assert all(f"\n{key}: " in message(made) for key in config)
    told = {one["value"]["name"]: one["value"]["errors"] for one in found["configs"] if one["value"]["errors"]}
    assert {key: len(errors) for key, errors in told.items()} == dict.fromkeys(config, 1)


def test_snapshots_of_another_connector_are_left_alone(worker: RestWorker, tmp_path: Path) -> None:
    """The folder is named by the other connector, as it would be by a name that is taken."""
    assert worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")}).status_code == 201
    found = worker.create("b", **{"snapshot.location": str(tmp_path / "snapshots" / "a")})
    assert (found.status_code, 'those of connector "a"' in message(found)) == (400, True)
    assert worker.create("b", **{"snapshot.location": str(tmp_path / "snapshots")}).status_code == 201


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
    """The state of the connector and of each task; `trace` if it is FAILED or waits, with the time of its restart."""
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
    worker.supervisor("a").wait("Brokers are away.", since_ms=1_700_000_000_000)
    waits = worker.ask("GET", "/connectors/a/status").json()["connector"]
    trace = (
        "Brokers are away.\nWaits since 2023-11-14T22:13:20Z for an outage to end.\n"
        "Started again at 2023-11-14T22:13:21Z or before."
    )
    assert waits == {**common, "state": "RESTARTING", "trace": trace}
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
def test_topics_that_are_not_tracked(tmp_path: Path, key: str, method: str, path: str) -> None:
    """403, as the worker's file says so."""
    with rest_worker(tmp_path, **{key: "false"}) as worker:
        found = worker.ask(method, f"/connectors/a/{path}")
        assert (found.status_code, "is disabled" in message(found)) == (403, True)


@pytest.mark.parametrize(
    ("closed", "said"),
    [
        ({"t": None, "u": UNNAMED}, None),
        ({"t": DELETED, "u": None}, ["Warning: source topic t is not read: it was deleted;"]),
        (
            {"t": DELETED, "u": RECREATED},
            [
                "Warning: source topic t is not read: it was deleted;",
                "Warning: source topic u is not read: another topic has its name now, by its id. Their records",
                "No other topic is left: nothing is read.",
            ],
        ),
        (
            {"t": rejection_of("the record at topic t, partition 0, offset 5: null key."), "u": None},
            [
                "Warning: source topic t is not read: one of its records is bad, and errors.tolerance lets none",
            ],
        ),
    ],
)
def test_a_connector_that_runs_says_what_it_does_not_read(
    worker: RestWorker, closed: dict[str, str | None], said: list[str] | None
) -> None:
    """A deleted topic leaves a connector RUNNING, as in Connect: its trace, and that of its tasks, names the topic."""
    worker.create("a")
    topics = {
        name: Topic(topic=name, topic_id="i", output="o", output_id="p", closed=why) for name, why in closed.items()
    }
    worker.supervisor("a").catalog_state = CatalogState(connector="a", buckets=BUCKETS, topics=topics)
    found = worker.ask("GET", "/connectors/a/status").json()
    assert found["connector"]["state"] == found["tasks"][0]["state"] == "RUNNING"
    assert found["connector"].get("trace") == found["tasks"][0].get("trace")
    lines = found["connector"].get("trace", "").splitlines()
    assert [line[: len(wanted)] for line, wanted in zip(lines, said or [], strict=True)] == (said or [])


def test_a_connector_that_runs_says_what_it_leaves_out(worker: RestWorker) -> None:
    """A table without a key is in no output: the trace says so, with what gives its records one."""
    worker.create("a")
    worker.supervisor("a").counters = {"records_rejected": 3, "records_without_key": 3, "records_read": 3}
    trace = worker.ask("GET", "/connectors/a/status").json()["connector"]["trace"]
    assert trace.startswith("Warning: 3 records were without a key, and in no table. ")
    assert "message.key.columns" in trace
