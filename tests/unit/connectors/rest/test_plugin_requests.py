"""Plugins over REST as Kafka Connect has them: which there are, their settings, and the check of a config."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.rest import RestWorker, message

JSON = {"Content-Type": "application/json"}
CLASS = {"connector.class": "keyfold.CompactedTopic"}


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


def test_what_another_connector_has_is_a_fault(worker: RestWorker) -> None:
    """It names the other one; the connector itself, which is to be changed, is no other one."""
    owner = {**CLASS, "name": "owner", "topics": "t"}
    assert worker.ask("POST", "/connectors", json={"name": "owner", "config": owner}).status_code == 201
    texts = []
    for name in ("owner", "other"):
        given = {**owner, "name": name}
        infos = worker.ask("PUT", "/connector-plugins/CompactedTopic/config/validate", json=given).json()
        texts.append([text for config in infos["configs"] for text in config["value"]["errors"]])
    assert texts[0] == []
    assert 'is also the output topic of connector "owner"' in " ".join(texts[1])


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
