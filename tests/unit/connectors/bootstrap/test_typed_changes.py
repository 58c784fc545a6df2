"""Changes beside a typed snapshot: the keys and fields that its records have."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from connectors.bootstrap import Change, OpenedTable, open_table
from connectors.bootstrap.snapshot_files import newest_snapshot
from connectors.bootstrap.table_state import TableState
from connectors.bootstrap.typed_changes import TypedChanges
from connectors.data.schema import DECIMAL
from connectors.errors import BootstrapError, ConfigError, UnreachableError
from tests.support.engine import row
from tests.support.served_registry import Registry, served_registry
from tests.support.typed_snapshots import TypedConnector

registry = pytest.fixture(served_registry)
JSON = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
JSON_KEYS = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}
KEY = {
    "type": "record",
    "name": "K",
    "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", "string"]}],
}
VALUE = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "Status", "type": {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}},
        {"name": "STATUS", "type": ["null", "int"], "default": None},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "L", "fields": [
            {"name": "sku", "type": "string"}, {"name": "tags", "type": {"type": "map", "values": "float"}}]}}},
        {"name": "either", "type": ["null", "string", "long"]},
    ],
}  # fmt: skip
AT = {
    "type": "struct",
    "field": "in",
    "fields": [{"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"}],
}
DAY = {"type": "struct", "fields": [{"type": "int32", "field": "day", "name": "io.debezium.time.Date"}, AT]}
"""Of which PostgreSQL's `infinity` is beyond what Python has."""


def _order(number: int) -> dict[str, Any]:
    return {
        "Status": "PAID" if number % 2 else "NEW",
        "STATUS": number or None,
        "total": b"\x04\xe2",
        "at": 1_700_000_000_123_456_789 + number,
        "day": number,
        "lines": [{"sku": f"s{number}", "tags": {"a": 0.5}}] * (number % 3),
        "either": [None, "text", 7][number % 3],
    }


def _taken(
    folder: Path, settings: Mapping[str, str], pairs: Sequence[tuple[bytes, bytes]], **more: Any
) -> TypedConnector:
    connector = TypedConnector(folder, settings, key=True, **more)
    connector.fold([row(0, offset, *pair) for offset, pair in enumerate(pairs)])
    connector.take()
    return connector


def _opened(connector: TypedConnector, converters: Mapping[str, str] | None = None) -> OpenedTable:
    return open_table(f"{connector.shelf.location}/c/t", {"bootstrap.servers": "127.0.0.1:1"}, converters=converters)


def _decoder(connector: TypedConnector, given: Mapping[str, str] = {}) -> TypedChanges:
    newest = newest_snapshot(connector.shelf.sub("c/t"))
    return TypedChanges(newest, newest.columns(), given)


def _change(key: bytes, value: bytes | None, offset: int = 0) -> Change:
    return Change(0, offset, offset, key, value, ())


def _cases(registry: Registry) -> dict[str, tuple[dict[str, str], list[tuple[bytes, bytes]]]]:
    avro = {**registry.settings(side="key"), **registry.settings()}
    fields = [{"field": "n", "type": "int64"}, {"field": "d", "type": "bytes", "name": DECIMAL, "optional": True}]
    schema = json.dumps({"type": "struct", "fields": fields})
    return {
        "avro": (
            avro,
            [
                (registry.avro(KEY, {"id": n, "at": None if n % 2 else "x"}), registry.avro(VALUE, _order(n)))
                for n in range(40)
            ],
        ),
        "json": (
            {**JSON_KEYS, **JSON},
            [(b'{"id":%d}' % n, json.dumps({"n": n, "deep": {"l": [n, None]}}).encode()) for n in range(5)]
            + [(b'{"id":"odd"}', b'{"n":"odd"}'), (b"\xff", b"{")],
        ),
        "text": (
            {"key.converter": "keyfold.String", **JSON, "value.converter.schemas.enable": "true",
             "value.converter.schema.content": schema},
            [(b"k%d" % n, b'{"n":%d,"d":"BOI="}' % n) for n in range(3)],
        ),
        "infinity": (
            {"key.converter": "keyfold.Json", "key.converter.schema.content": json.dumps(DAY), **JSON,
             "value.converter.schemas.enable": "true", "value.converter.schema.content": json.dumps(DAY)},
            [(b'{"day":%d,"in":{"at":%d}}' % pair,) * 2 for pair in ((2**31 - 1, 2**63 - 1), (0, 0), (-(2**31), 1))],
        ),
        "numbers": ({"key.converter": "keyfold.Double", **JSON}, [(bytes([0x7F, 0xF8, *[0] * 6]), b'{"n":1}')]),
    }  # fmt: skip


@pytest.mark.parametrize("case", ["avro", "json", "text", "infinity", "numbers"])
def test_a_change_has_the_key_and_fields_of_the_same_record_in_a_snapshot(
    tmp_path: Path,
    registry: Registry,
    case: str,
) -> None:
    """Whatever types they have, and also what fits no column; the manifest alone says how they are read."""
    settings, pairs = _cases(registry)[case]
    connector = _taken(tmp_path, settings, pairs)
    records = {record.offset: record for record in _opened(connector).records()}
    changes = _decoder(connector).decoded([_change(*pair, offset) for offset, pair in enumerate(pairs)])
    assert len(records) == len(pairs)
    for change in changes:
        record = records[change.offset]
        assert (repr(change.key), repr(change.fields)) == (repr(record.key), repr(record.fields))
        assert (change.value, change.record and change.record.value) == (pairs[change.offset][1], None)
    state = TableState(newest_snapshot(connector.shelf.sub("c/t")))
    state.apply(changes)
    assert (len(state), len(list(state))) == (len(pairs), len(pairs))
    state.apply(_decoder(connector).decoded([_change(key, None) for key, _ in pairs]))
    assert (len(state), list(state)) == (0, [])


def test_a_table_is_asked_by_typed_keys(tmp_path: Path) -> None:
    """A struct is a dict in any order, a text a text; bytes are those that fit no column."""
    pairs = [(b'{"id":1,"at":"x"}', b'{"n":1}'), (b"\xff", b'{"n":2}')]
    state = TableState(newest_snapshot(_taken(tmp_path, {**JSON_KEYS, **JSON}, pairs).shelf.sub("c/t")))
    first = state.get({"at": "x", "id": 1})
    assert first is not None
    assert (first.key, first.fields) == ({"id": 1, "at": "x"}, {"n": 1, "_rest": None})
    odd = state.get(b"\xff")
    assert odd is not None
    assert (odd.key, odd.fields) == (b"\xff", {"n": 2, "_rest": None})
    assert [state.get(key) for key in ({"id": 1}, b'{"id":1,"at":"x"}', "x", None)] == [None] * 4


def test_of_two_encodings_of_a_key_the_later_record_counts(tmp_path: Path) -> None:
    """A topic may have both; a table has the key once, and a deletion of either deletes it."""
    pairs = [(b'{"id":1}', b'{"n":1}'), (b'{ "id": 1}', b'{"n":2}'), (b'{"id":2}', b'{"n":3}')]
    connector = _taken(tmp_path, {**JSON_KEYS, **JSON}, pairs)
    state = TableState(newest_snapshot(connector.shelf.sub("c/t")))
    assert (len(state), [record.fields and record.fields["n"] for record in state]) == (2, [2, 3])
    decoder = _decoder(connector)
    state.apply(decoder.decoded([_change(b'{"id":1}', None), _change(b'{"id" :1}', b'{"n":4}')]))
    assert sorted(record.fields["n"] for record in state if record.fields) == [3, 4]
    state.apply(decoder.decoded([_change(b'{"id":1}', None)]))
    assert (len(state), state.get({"id": 1})) == (1, None)


def test_an_older_snapshot_needs_the_converters(tmp_path: Path) -> None:
    """Its manifest does not name them: the error says where to give them."""
    connector = _taken(tmp_path, {**JSON_KEYS, **JSON}, [(b'{"id":1}', b'{"n":1}')])
    said = next(Path(connector.shelf.location).glob("c/t/*/_manifest.json"))
    kept = json.loads(said.read_text())
    assert kept["typed"]["converters"] == {
        "key": {"class": "keyfold.Json", "schemas.enable": "false"},
        "value": {"class": "keyfold.Json", "schemas.enable": "false"},
    }
    del kept["typed"]["converters"], kept["typed"]["kept"]
    said.write_text(json.dumps(kept))
    with pytest.raises(BootstrapError, match="an older keyfold took it") as error:
        _opened(connector).changes()
    assert "--connector CONNECTOR.json" in error.value.action
    (change,) = _decoder(connector, {**JSON_KEYS, **JSON}).decoded([_change(b'{"id":1}', b'{"n":5}')])
    assert (change.key, change.fields) == ({"id": 1}, {"n": 5, "_rest": None})


def test_nothing_secret_is_in_a_manifest_and_no_secret_goes_to_its_address(
    tmp_path: Path,
    registry: Registry,
) -> None:
    """A password is neither kept, nor sent to a registry that the manifest names: who gives one gives the address."""
    url = registry.url.replace("http://", "http://user:secret@")
    settings = {**JSON_KEYS, **registry.settings(), "value.converter.schema.registry.url": url}
    connector = _taken(tmp_path, settings, [(b"1", registry.avro(VALUE, _order(1)))])
    text = next(Path(connector.shelf.location).glob("c/t/*/_manifest.json")).read_text()
    assert "secret" not in text
    with pytest.raises(ConfigError, match=r"schema\.registry\.url: missing"):
        _opened(connector).changes()
    given = {"value.converter.schema.registry.url": url}
    (change,) = _decoder(connector, given).decoded([_change(b"1", registry.avro(VALUE, _order(3)))])
    assert change.fields is not None
    assert change.fields["total"] == Decimal("12.50")
    plain = _taken(tmp_path / "plain", {**JSON_KEYS, **registry.settings()}, [(b"1", registry.avro(VALUE, _order(1)))])
    _decoder(plain)
    with pytest.raises(ConfigError, match=r"schema\.registry\.url: missing"):
        _decoder(plain, {"value.converter.basic.auth.user.info": "a:b"})


@pytest.mark.parametrize(
    "hostile",
    [
        {"class": "os.system"},
        {"class": "keyfold.Avro", "schema.registry.url": "${env:HOME}"},
        {"class": "keyfold.Avro", "schema.registry.url": "file:///etc/passwd"},
        {"class": "keyfold.Json", "nonsense": "x" * 100},
    ],
)
def test_a_hostile_manifest_resolves_and_opens_nothing(tmp_path: Path, hostile: dict[str, str]) -> None:
    """It names converters that there are, and settings that are neither placeholders nor files."""
    connector = _taken(tmp_path, {**JSON_KEYS, **JSON}, [(b'{"id":1}', b'{"n":1}')])
    said = next(Path(connector.shelf.location).glob("c/t/*/_manifest.json"))
    kept = json.loads(said.read_text())
    kept["typed"]["converters"]["value"] = hostile
    said.write_text(json.dumps(kept))
    if "nonsense" in hostile:
        _decoder(connector)
        return
    with pytest.raises(ConfigError):
        _decoder(connector)


def test_a_registry_that_is_away_is_said_so(tmp_path: Path, registry: Registry) -> None:
    """The change says nothing then: it is tried again later."""
    pairs = [(b"1", registry.avro(VALUE, _order(1)))]
    connector = _taken(tmp_path, {**JSON_KEYS, **registry.settings()}, pairs)
    decoder = _decoder(connector, {"value.converter.schema.registry.url": "http://127.0.0.1:9"})
    with pytest.raises(UnreachableError, match="The schema registry does not answer"):
        decoder.decoded([_change(*pairs[0])])
