"""The rows of a typed snapshot as records again: a snapshot of these has the same columns and rows."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.snapshot.manifest import Typed
from connectors.data.schema import DECIMAL
from connectors.errors import ConfigError, DataError, UsageError
from connectors.typed.written_again import TypedRowWriter, written_schema
from tests.support.engine import row
from tests.support.served_registry import Registry, served_registry
from tests.support.typed_snapshots import Taken, TypedConnector

registry = pytest.fixture(served_registry)
Pairs = Sequence[tuple[bytes, bytes]]
JSON = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
JSON_KEYS = {"key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}
KEY = {"type": "record", "name": "shop.K", "fields": [{"name": "id", "type": "long"}]}
_DEBEZIUM = "io.debezium."


def _avro(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "shop.Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


_RICH = _avro(
    ("Status", {"type": "enum", "name": "S", "symbols": ["NEW", "PAID"]}),
    ("STATUS", ["null", "int"]),
    ("total", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
    ("ns", {"type": "long", "logicalType": "timestamp-nanos"}),
    ("us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("time", {"type": "long", "logicalType": "time-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("zoned", ["null", {"type": "string", "connect.name": f"{_DEBEZIUM}time.ZonedTimestamp"}]),
    ("wall", {"type": "long", "connect.name": f"{_DEBEZIUM}time.NanoTimestamp"}),
    ("small", {"type": "int", "connect.type": "int8"}),
    ("variable", ["null", {"type": "record", "name": "V", "connect.name": f"{_DEBEZIUM}data.VariableScaleDecimal",
                           "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}]),
    ("lines", {"type": "array", "items": {"type": "record", "name": "L", "fields": [
        {"name": "sku", "type": "string"}, {"name": "tags", "type": {"type": "map", "values": "float"}}]}}),
    ("either", ["null", "string", "long"]),
    ("raw", "bytes"),
)  # fmt: skip


def _rich(number: int) -> dict[str, Any]:
    return {
        "Status": "PAID" if number % 2 else "NEW",
        "STATUS": number or None,
        "total": (number - 5).to_bytes(2, "big", signed=True),
        "ns": 1_700_000_000_123_456_789 + number,
        "us": number * 1_000_001,
        "local": -number,
        "ms": number,
        "time": number * 1_001,
        "day": number - 3,
        "zoned": None if number % 3 == 0 else f"2026-01-0{number % 9 + 1}T00:00:00.1200{number % 9}Z",
        "wall": number,
        "small": number % 100,
        "variable": None if number % 4 == 0 else {"scale": number % 3, "value": b"\x04\xe2"},
        "lines": [{"sku": f"s{number}", "tags": {"a": 0.5, "b": 1.5}}, {"sku": "", "tags": {}}] * (number % 3),
        "either": [None, "text", 7][number % 3],
        "raw": bytes([number % 256]),
    }


_PROTO = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  int64 id = 1;
  string name = 2;
  repeated string tags = 3;
  map<string, int32> counts = 4;
  message Inner { double d = 1; bool b = 2; }
  Inner inner = 5;
  enum State { NEW = 0; PAID = 1; }
  State state = 6;
  oneof either { string text = 7; int64 number = 8; }
  google.protobuf.Timestamp at = 9;
  bytes raw = 10;
  float f = 11;
  uint32 u = 12;
  repeated Inner more = 13;
  optional string maybe = 14;
}
"""


def _message(number: int) -> bytes:
    """An Order in Protobuf's wire format; fields that are zero are left out, as a writer does."""
    inner = b"\x09" + struct.pack("<d", number + 0.5) + b"\x10\x01"
    parts = [
        (b"\x08" + bytes([number])) * bool(number),
        b"\x12\x02n%d" % number,
        b"\x1a\x01a\x1a\x00" * (number % 2),
        b"\x22\x05\x0a\x01k\x10" + bytes([number + 1]),
        (b"\x2a" + bytes([len(inner)]) + inner) * (number % 3 > 0),
        b"\x30\x01" * (number % 2),
        b"\x3a\x01t" if number % 2 else b"\x40\x09",
        b"\x4a\x04\x08" + bytes([number + 1]) + b"\x10\x40",
        b"\x52\x01\xff",
        b"\x5d" + struct.pack("<f", 0.25),
        b"\x60\xff\xff\xff\xff\x0f",
        (b"\x6a" + bytes([len(inner)]) + inner) * (number % 3),
        b"\x72\x00" * (number % 2),
    ]
    return b"".join(parts)


def _cases(registry: Registry) -> Iterator[tuple[str, dict[str, str], Pairs]]:
    avro = {**registry.settings(side="key"), **registry.settings()}

    def keyed(number: int) -> bytes:
        return registry.avro(KEY, {"id": number})

    yield "avro", avro, [(keyed(n), registry.avro(_RICH, _rich(n))) for n in range(40)]
    versions = [_avro(("a", "int"), ("b", "string")), _avro(("a", "long"), ("c", ["null", "double"]))]
    rows = [registry.avro(versions[n % 2], {"a": n, "b": "x", "c": None}) for n in range(6)]
    conflict = registry.avro(_avro(("a", "string")), {"a": "odd"})
    yield "versions", avro, [*((keyed(n), data) for n, data in enumerate(rows)), (keyed(7), conflict), (b"\xff", b"?")]
    documents = [
        b'{"n":1,"deep":{"l":[1,null,2],"o":{"x":true}},"f":1.5}', b'{"f":2,"none":null,"t":"x"}', b'{"n":"odd"}', b"{",
        b'{"N":2,"n":3,"rows":[{"a":1},{"b":"x"},{}]}', b"[1]",
    ]  # fmt: skip
    yield "json", {**JSON_KEYS, **JSON}, [(b'{"id":%d}' % n, each) for n, each in enumerate(documents)]
    yield (
        "plain values",
        {"key.converter": "keyfold.Long", **JSON},
        [(bytes([0] * 7 + [n]), b"%d" % n) for n in range(3)],
    )
    fields: list[dict[str, Any]] = [
        {"field": "n", "type": "int64"},
        {"field": "d", "type": "bytes", "name": DECIMAL, "optional": True, "parameters": {"scale": "50"}},
        {"field": "u", "type": "int64", "name": f"{_DEBEZIUM}time.MicroTimestamp", "optional": True, "default": 5},
    ]
    enveloped = [
        json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"n": n, "d": "BOI=", "u": n}})
        for n in range(3)
    ]
    text = {"key.converter": "keyfold.String", "value.converter": "keyfold.Json"}
    yield "schemas", text, [(b"k%d" % n, each.encode()) for n, each in enumerate(enveloped)]
    second = [fields[0], {"field": "v", "type": "string"}]
    others = [json.dumps({"schema": {"type": "struct", "fields": second}, "payload": {"n": 9, "v": "x"}})]
    yield "defaults", text, [(b"k%d" % n, each.encode()) for n, each in enumerate([*enveloped, *others])]
    of_json = {"key.converter": "keyfold.String", **registry.settings("JsonSchema")}
    content = {"type": "object", "title": "T", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
    head = registry.head(content, schemaType="JSON")
    of_proto = {"key.converter": "keyfold.String", **registry.settings("Protobuf")}
    head = registry.head(_PROTO, schemaType="PROTOBUF") + b"\0"
    yield "protobuf", of_proto, [(b"k%d" % n, head + _message(n)) for n in range(6)]
    texts = [f'syntax = "proto3"; message R {{ int64 id = 1; {more} }}' for more in ("string a = 2;", "double b = 3;")]
    heads = [registry.head(each, schemaType="PROTOBUF") + b"\0" for each in texts]
    parts = b"\x12\x01x", b"\x19" + struct.pack("<d", 0.5)
    nullables = of_proto | {"value.converter.optional.for.nullables": "true"}
    yield "protobuf versions", nullables, [(b"k%d" % n, heads[n % 2] + b"\x08\x07" + parts[n % 2]) for n in range(4)]
    head = registry.head(content, schemaType="JSON")
    yield "json schema", of_json, [(b"k%d" % n, head + b'{"n":%d,"s":"x"}' % n) for n in range(3)]


NAMES = [
    "avro",
    "versions",
    "json",
    "plain values",
    "schemas",
    "defaults",
    "json schema",
    "protobuf",
    "protobuf versions",
]

_OTHER_SCHEMAS = {"versions", "avro", "defaults", "protobuf", "protobuf versions"}
"""What is written has one schema for several, an optional field for a required one, or a message for each field."""


def _taken(folder: Path, settings: Mapping[str, str], rows: Sequence[Any]) -> Taken:
    connector = TypedConnector(folder, settings, key=True)
    connector.fold(rows)
    return connector.take()


def _written(taken: Taken, given: Mapping[str, str] = {}, topic: str = "restored") -> list[dict[str, Any]]:
    typed = taken.manifest.typed
    assert isinstance(typed, Typed)
    writer = TypedRowWriter(taken.table.schema, typed, given, topic, appends=False)
    try:
        batches = taken.table.combine_chunks().to_batches(max_chunksize=7)
        return [each for batch in batches for each in writer.records(batch).to_pylist()]
    finally:
        writer.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_snapshot_of_what_is_written_is_equal(tmp_path: Path, registry: Registry, name: str) -> None:
    """Whatever types the columns have, by the manifest alone; what fitted no column has the same bytes."""
    settings, pairs = next((settings, pairs) for case, settings, pairs in _cases(registry) if case == name)
    first = _taken(tmp_path / "first", settings, [row(0, at, *pair, timestamp=at + 1) for at, pair in enumerate(pairs)])
    written = _written(first)
    assert len(written) == len(pairs)
    again = [
        row(0, each["offset"], each["key"], each["value"], timestamp=each["offset"] + 1)
        for each in sorted(written, key=lambda each: each["offset"])
    ]
    second = _taken(tmp_path / "second", settings, again)
    assert second.table.schema == first.table.schema
    assert repr(second.table.to_pylist()) == repr(first.table.to_pylist())
    assert second.manifest.typed == first.manifest.typed or name in _OTHER_SCHEMAS


def test_json_is_written_as_it_was(tmp_path: Path) -> None:
    """Plain JSON has the same bytes, if its fields come in the order of the columns, without nulls or spaces."""
    pairs = [(b'{"id":1}', b'{"n":1,"t":"x"}'), (b'{"id":2}', b'{"n":2}')]
    taken = _taken(tmp_path, {**JSON_KEYS, **JSON}, [row(0, at, *pair) for at, pair in enumerate(pairs)])
    assert [(each["key"], each["value"]) for each in _written(taken)] == pairs


def test_schemas_of_one_version_are_registered_as_they_were(tmp_path: Path, registry: Registry) -> None:
    """Names, logical types and what is optional are those of the records."""
    schema = _avro(
        ("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-micros"}), ("t", ["null", "string"])
    )
    value = registry.avro(schema, {"id": 1, "at": 2, "t": None})
    taken = _taken(tmp_path, {**JSON_KEYS, **registry.settings()}, [row(0, 0, b"1", value)])
    (written,) = _written(taken)
    text = registry.memory.schemas[int.from_bytes(written["value"][1:5], "big") - 1]["schema"]
    fields = [(field["name"], field["type"]) for field in json.loads(text)["fields"]]
    assert fields == [
        ("id", "long"), ("at", {"type": "long", "logicalType": "timestamp-micros"}), ("t", ["null", "string"])
    ]  # fmt: skip
    assert (json.loads(text)["namespace"], json.loads(text)["name"]) == ("shop", "Order")
    assert written["value"][5:] == value[5:]


def test_headers_that_say_how_bytes_were_written_are_left_out(tmp_path: Path) -> None:
    """They would be wrong of the new bytes; of bytes that stay they are right."""
    naming = [{"key": "apicurio.value.globalId", "value": b"1"}, {"key": "h", "value": b"2"}]
    values = (b'{"n":1}', b"{")
    rows = [row(0, at, b'{"id":%d}' % at, value, headers=naming) for at, value in enumerate(values)]
    written = _written(_taken(tmp_path, {**JSON_KEYS, **JSON}, rows))
    assert [each["headers"] for each in written] == [naming[1:], naming]


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The place of the record, the converter, and how to name another one."""
    taken = _taken(tmp_path, {**JSON_KEYS, **JSON}, [row(0, 7, b'{"id":1}', b'{"n":"text"}')])
    given = {"value.converter": "keyfold.Long"}
    with pytest.raises(UsageError, match=r"value of the record 0/7 cannot be written by keyfold\.Long") as error:
        _written(taken, given)
    assert "--connector" in error.value.action
    with pytest.raises(ConfigError, match="missing"):
        _written(taken, {"value.converter": "keyfold.Avro"})


def test_other_converters_write_what_had_no_schema(tmp_path: Path, registry: Registry) -> None:
    """They get the schema of the columns' types."""
    pairs = [(b'{"id":1}', b'{"a":{"b":[{"c":1.5}]},"d":{"e":true}}')]
    taken = _taken(tmp_path, {**JSON_KEYS, **JSON}, [row(0, at, *pair) for at, pair in enumerate(pairs)])
    (written,) = _written(taken, registry.settings())
    assert written["value"][:1] == b"\0"
    assert written["key"] == b'{"id":1}'


def test_slices_are_written_as_their_rows(tmp_path: Path, registry: Registry) -> None:
    """Lists and maps of a slice are not those of the rows before it."""
    pairs = [(b'{"id":%d}' % n, registry.avro(_RICH, _rich(n))) for n in range(9)]
    taken = _taken(tmp_path, {**JSON_KEYS, **registry.settings()}, [row(0, n, *pair) for n, pair in enumerate(pairs)])
    assert isinstance(taken.table, pa.Table)
    sliced = taken._replace(table=taken.table.combine_chunks().slice(5))
    assert _written(sliced) == _written(taken)[5:]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.list_(pa.duration("s"))])
def test_a_column_that_no_snapshot_has_is_refused(kind: pa.DataType) -> None:
    """A file may have been written by anybody: the error names the column."""
    with pytest.raises(DataError, match=r"odd.*: no snapshot of keyfold has a column of"):
        written_schema(pa.struct([pa.field("odd", kind)]), [], ())


def test_columns_that_are_not_of_their_schema_are_refused(tmp_path: Path) -> None:
    """A text in place of a number, as a manifest that was altered says it."""
    settings = {"key.converter": "keyfold.String", "value.converter": "keyfold.Json"}
    fields = [{"field": "v", "type": "bytes", "name": DECIMAL, "parameters": {"scale": "50"}}]
    value = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {"v": "BOI="}}).encode()
    taken = _taken(tmp_path, settings, [row(0, 0, b"k", value)])
    altered = taken.table.set_column(0, "v", pa.array(["no number"]))
    with pytest.raises(UsageError, match="do not fit their schema"):
        _written(taken._replace(table=altered))
