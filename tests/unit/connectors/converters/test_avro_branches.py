"""Unions are written without trying their branches: the bytes are the same, and depth costs nothing."""

from __future__ import annotations

import io
import time
from typing import Any, Final

import fastavro
import pytest

from connectors.converters.avro.branches import writer_of_branches
from connectors.converters.avro.parsed import parsed_schema
from connectors.data.record import Header
from connectors.errors import DataError
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_key_identity import avro, memory
from tests.unit.connectors.converters.test_avro import converter, written
from tests.unit.connectors.test_amplifying_records import little_room

__all__ = ["avro", "memory"]

DEEP: Final = 90
"""Levels of records: a schema may have a hundred."""
STRINGS: Final = {"type": "array", "items": "string"}
LEAF: Final = {"type": "record", "name": "Leaf", "fields": [{"name": "id", "type": "long"}]}
LEAVES: Final = {"type": "array", "items": LEAF}
MANY: Final = [{"id": 1}] * 100_000
FEWER: Final = [{"id": 1}] * 50_000


def record(name: str, avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": avro}]}


def deep(inner: Any) -> Any:
    """Returns a schema of DEEP nullable records around `inner`."""
    for number in range(DEEP):
        inner = ["null", record(f"R{number}", inner)]
    return record("Root", inner)


def deep_value(inner: Any) -> Any:
    for _ in range(DEEP + 1):
        inner = {"f": inner}
    return inner


def in_lists(inner: Any) -> Any:
    for number in range(DEEP // 3):
        inner = ["null", {"type": "array", "items": ["null", {"type": "map", "values": record(f"R{number}", inner)}]}]
    return record("Root", inner)


def value_in_lists(inner: Any) -> Any:
    for _ in range(DEEP // 3):
        inner = [{"k": {"f": inner}}]
    return {"f": inner}


def lists_in_lists() -> Any:
    """Returns a schema of DEEP lists around LEAVES."""
    inner: Any = LEAVES
    for _ in range(DEEP):
        inner = {"type": "array", "items": ["null", inner]}
    return inner


def value_in_lists_of_lists() -> Any:
    inner: Any = FEWER
    for _ in range(DEEP):
        inner = [inner]
    return inner


CASES: Final[list[tuple[Any, Any]]] = [
    (record("R", ["null", LEAF]), {"f": {"id": 1}}),
    (record("R", [LEAF, "null"]), {"f": {"id": 1}}),
    (record("R", ["null", LEAF]), {"f": None}),
    (record("R", ["null", STRINGS]), {"f": ["a", "b"]}),
    (record("R", ["null", STRINGS]), {"f": []}),
    (record("R", ["null", {"type": "map", "values": ["null", LEAF]}]), {"f": {"k": {"id": 1}, "l": None}}),
    (record("R", [STRINGS, "string", LEAF, {"type": "map", "values": "long"}]), {"f": {"id": 1}}),
    (record("R", [STRINGS, "string", LEAF]), {"f": "text"}),
    (record("R", [STRINGS, "string", LEAF]), {"f": ["text"]}),
    (record("R", [record("A", "long"), record("B", ["null", LEAF])]), {"f": ("B", {"f": {"id": 1}})}),
    (record("R", ["string", {"type": "enum", "name": "E", "symbols": ["S"]}]), {"f": ("E", "S")}),
    ({"type": "array", "items": ["null", LEAF]}, [{"id": 1}, None]),
    (["null", LEAF], {"id": 1}),
    (record("R", record("S", ["null", LEAF])), {"f": {"f": {"id": 1}}}),
    (
        {
            "type": "record",
            "name": "n.R",
            "fields": [{"name": "a", "type": LEAF}, {"name": "b", "type": ["null", "Leaf"]}],
        },
        {"a": {"id": 1}, "b": {"id": 2}},
    ),
    (record("R", ["null", "R"]), {"f": {"f": {"f": None}}}),
    (deep("string"), deep_value("text")),
    (in_lists("string"), value_in_lists("text")),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value"), CASES, ids=lambda case: str(case)[:40])
def test_the_bytes_are_those_that_fastavro_writes_when_it_looks_for_branches(schema: Any, value: Any) -> None:
    """Of each form of a union, with its types in any order and named or not."""
    named: dict[str, Any] = {}
    parsed = parsed_schema(schema, named)
    convert = writer_of_branches(parsed, named)
    searched, told = io.BytesIO(), io.BytesIO()
    fastavro.schemaless_writer(searched, parsed, value)
    fastavro.schemaless_writer(told, parsed, value if convert is None else convert(value))
    assert told.getvalue() == searched.getvalue()


def test_flat_records_are_written_as_they_are() -> None:
    """Nullable fields without parts need no names."""
    named: dict[str, Any] = {}
    assert writer_of_branches(parsed_schema(record("R", ["null", "string"]), named), named) is None


@pytest.mark.parametrize(
    ("schema", "value"),
    [(deep(LEAVES), deep_value(MANY)), (in_lists(LEAVES), value_in_lists(MANY))],
    ids=["records", "lists"],
)
def test_a_deep_record_is_written_in_time_for_its_size(schema: Any, value: Any) -> None:
    """It has 100 kB, and would be looked through at each of its levels for seconds."""
    memory = MemoryRegistry()
    made = converter(memory)
    data = written_by_name(schema, value, memory.add(schema))
    read = made.to_connect_data("t", [], data)
    began = time.thread_time()
    again = made.from_connect_data("t", [], *read)
    assert time.thread_time() - began < 2
    assert again is not None
    assert again[5:] == data[5:]


def written_by_name(schema: Any, value: Any, number: int) -> bytes:
    named: dict[str, Any] = {}
    convert = writer_of_branches(parsed_schema(schema, named), named)
    assert convert is not None
    return written(schema, convert(value), number)


@pytest.mark.parametrize(
    ("schema", "value"),
    [(deep(LEAVES), deep_value(FEWER)), (lists_in_lists(), value_in_lists_of_lists())],
    ids=["records", "lists"],
)
def test_a_deep_key_is_compared_in_time_for_its_size(schema: Any, value: Any, memory: Any, avro: Any) -> None:
    """It is written again, to see whether its bytes are those of its value."""
    key = written_by_name(schema, value, memory.add(schema))
    began = time.thread_time()
    compared = avro.of((), key)
    assert time.thread_time() - began < 1.5
    assert compared.encoding == "1"


def test_what_is_no_value_of_its_schema_is_an_error() -> None:
    """A value is not checked before it is written, and still none is written wrongly."""
    memory = MemoryRegistry()
    made = converter(memory)
    schema = record("R", ["null", record("S", ["null", STRINGS])])
    read, _ = made.to_connect_data("t", [], written(schema, {"f": None}, memory.add(schema)))
    for wrong in ({"f": 7}, {"f": {"f": 7}}, {"f": {"f": [7]}}, {"f": [{"f": None}]}, {"f": {"f": {"k": "v"}}}):
        with pytest.raises(DataError, match="does not fit"):
            made.from_connect_data("t", [], read, wrong)


def test_headers_of_keys_are_not_remembered(memory: Any, avro: Any) -> None:
    """Keys of a byte, each with 8,000 ids in headers, of which the first one counts."""
    number = memory.add(LEAF).to_bytes(8, "big")
    with little_room(10 << 20):
        for key in range(20):
            headers = [Header("apicurio.key.globalId", bytes(bytearray(number))) for _ in range(8_000)]
            assert avro.of(headers, bytes([2 * key])).identity == b'{"id":%d}' % key
