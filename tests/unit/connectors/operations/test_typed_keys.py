"""The value of a key that a converter writes is looked up: the schema is that of keys that are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from compactor.model.log import PartitionLog, empty
from compactor.model.record import TopicPartition
from connectors.operations.get import KeyAnswer
from connectors.operations.typed_keys import KeyForms, with_forms
from tests.support.change_events import ID, with_schema
from tests.support.cli import connector_file, invoke, keep, row, worker_file
from tests.support.served_registry import Registry, served_registry

registry = pytest.fixture(served_registry)
KEY = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "long"}]}
FORMS: dict[bytes, list[bytes]] = {b"1": [b"one", b"eins"], b"2": [b"two"], b"3": []}


def _get(folder: Path, settings: dict[str, str], *keys: str) -> tuple[int, list[Any], str]:
    result = invoke("get", connector_file(folder, **settings), *keys, "--worker", worker_file(folder))
    return result.exit_code, [json.loads(line)["offset"] for line in result.stdout.splitlines()], result.stderr


def test_an_avro_key_is_its_value(tmp_path: Path, registry: Registry) -> None:
    """Of each schema that keys have; what is not kept, or not of the schema, is named, and nothing is registered."""
    older = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "string"}]}
    keys = [
        registry.avro(older, {"id": "a"}),
        registry.avro(KEY, {"id": "a", "n": 1}),
        registry.avro({"type": "string"}, "b"),
    ]
    keep(tmp_path, [row(at, key, b"v") for at, key in enumerate(keys)])
    settings, schemas = registry.settings(side="key"), len(registry.memory.schemas)
    assert _get(tmp_path, settings, '{"id": "a"}', '{"n": 1, "id": "a"}', "b")[:2] == (0, [0, 1, 2])
    code, records, said = _get(tmp_path, settings, '{"id": "x", "n": 1}', '{"id": 7}', "b")
    assert (code, records, said.count("Nothing is kept of")) == (1, [2], 2)
    assert len(registry.memory.schemas) == schemas


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_json_key_is_its_payload(tmp_path: Path, enabled: str) -> None:
    """With its schema in each key, and without one."""
    kept = with_schema(ID, {"id": "a"}) if enabled == "true" else b'{"id":"a"}'
    keep(tmp_path, [row(0, kept, b"v")])
    settings = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": enabled}
    assert _get(tmp_path, settings, '{ "id": "a" }')[:2] == (0, [0])


@pytest.mark.parametrize("enabled", ["true", "false"])
def test_a_json_key_may_be_kept_with_spaces(tmp_path: Path, enabled: str) -> None:
    """As `json.dumps` of a producer in Python writes it."""
    kept = json.loads(with_schema(ID, {"id": "ä"})) if enabled == "true" else {"id": "ä"}
    keep(tmp_path, [row(0, json.dumps(kept).encode(), b"v")])
    settings = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": enabled}
    assert _get(tmp_path, settings, '{"id":"ä"}')[:2] == (0, [0])


def _log(end: int) -> PartitionLog:
    return replace(empty(TopicPartition("t", 0), 0, 0, None), end=end)


@pytest.mark.parametrize(
    ("kept", "absent"),
    [
        ({b"1", b"2", b"3"}, ()),
        ({b"one", b"3"}, (b"2",)),
        ({b"eins", b"two"}, (b"3",)),
        (set[bytes](), (b"1", b"2", b"3")),
    ],
)
def test_a_key_is_absent_if_no_form_of_it_is_kept(kept: set[bytes], absent: Sequence[bytes]) -> None:
    """And the answer is of one look-up, at the offset that it names, although the log grew since the first."""
    asked: list[Sequence[bytes]] = []

    def ask(keys: Sequence[bytes]) -> KeyAnswer:
        asked.append(keys)
        return KeyAnswer((), (_log(len(asked)),), tuple(key for key in keys if key not in kept))

    keys = [b"1", b"2", b"3"]
    answer = with_forms(ask(keys), keys, lambda answer: KeyForms({key: FORMS[key] for key in answer.absent}), ask)
    assert (answer.absent, answer.logs) == (tuple(absent), (_log(len(asked)),))
    assert asked[-1][:3] == keys
