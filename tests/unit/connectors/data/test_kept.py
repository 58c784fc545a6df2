"""What is made of schemas is kept within bounds for all of it, so that no source fills the memory with new ones."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress

import httpx
import pytest

from connectors.converters.avro.converter import AvroConverter
from connectors.converters.json.converter import JsonConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.registered import RegisteredConverter
from connectors.data.bounds import LONGEST_SCHEMA, MOST_REFERENCES
from connectors.data.kept import OfSchema, weight_of
from connectors.data.schema import INT8, Field, Schema, Type
from connectors.errors import DataError
from connectors.kept_values import HEAVIEST, Kept
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.memory.schema_registry import MemoryRegistry

LONG = 1_000_000
RECORDS = 250
ROOM = 4 * HEAVIEST
"""What all places of one converter may take together; without bounds it is 250 MB, and more."""


def test_the_oldest_are_let_go_of() -> None:
    """By number and by weight; the newest stays however much it weighs."""
    kept: Kept[int, str] = Kept(3, 10)
    for key in range(5):
        kept.put(key, f"value {key}", 1)
    assert [kept.get(key) for key in range(5)] == [None, None, "value 2", "value 3", "value 4"]
    kept.put(5, "heavy", 9)
    assert [kept.get(key) for key in range(2, 6)] == [None, None, "value 4", "heavy"]
    kept.put(6, "heavier", 100)
    assert (len(kept), kept.get(6)) == (1, "heavier")


def test_what_is_replaced_weighs_no_more() -> None:
    """One key that is put again and again drives nothing else out."""
    kept: Kept[int, int] = Kept(10, 10)
    kept.put(0, 0, 1)
    for number in range(100):
        kept.put(1, number, 9)
    assert (kept.get(0), kept.get(1)) == (0, 99)


@pytest.mark.parametrize(
    "schema",
    [
        Schema(type=Type.STRUCT, fields=tuple(Field(f"field {number}", INT8) for number in range(1_000))),
        Schema(type=Type.INT8, doc="x" * 300_000),
        Schema(type=Type.INT8, name="x" * 300_000),
        Schema(type=Type.INT8, parameters={"x" * 150_000: "y" * 150_000}),
        Schema(type=Type.STRING, default="x" * 300_000),
        Schema(type=Type.ARRAY, value_schema=INT8, default=list(range(1_000, 11_000))),
        Schema(type=Type.MAP, key_schema=Schema(type=Type.STRING, doc="x" * 300_000), value_schema=INT8),
    ],
)
def test_all_that_a_schema_holds_has_weight(schema: Schema) -> None:
    """Fields, names, documentation, parameters and defaults."""
    assert 300_000 <= weight_of(schema) <= 700_000


def test_what_is_derived_of_heavy_schemas_is_let_go_of() -> None:
    """A transform sees a new schema with each record, where a converter makes one for each."""
    kept: list[Schema] = []

    def derive(schema: Schema) -> str | None:
        kept.append(schema)
        return schema.doc

    of = OfSchema(derive)
    heavy = [Schema(type=Type.INT8, doc=str(number) * (HEAVIEST // 10)) for number in range(9)]
    for schema in [*heavy, heavy[-1], heavy[0]]:
        assert of(schema) == schema.doc
    assert kept == [*heavy, heavy[0]]


def _room(converter: Callable[[int], object]) -> int:
    tracemalloc.start()
    try:
        for number in range(RECORDS):
            converter(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def _registered(kind: type[RegisteredConverter], registry: MemoryRegistry) -> RegisteredConverter:
    options = read(kind.OPTIONS, {"schema.registry.url": "http://a:1"})
    converter = kind(options, is_key=False)
    converter.registry = SchemaRegistry(registry_settings(options), transport=registry)
    return converter


def test_records_that_each_bring_a_schema_fill_no_memory() -> None:
    """A thousand schemas are kept, but not a thousand of a megabyte each."""
    converter = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)

    def record(number: int) -> None:
        message = {"schema": {"type": "int8", "doc": f"{number} " * (LONG // 3)}, "payload": 1}
        schema, value = converter.to_connect_data("t", [], json.dumps(message).encode())
        converter.from_connect_data("t", [], schema, value)

    assert _room(record) < ROOM


@pytest.mark.parametrize(
    ("kind", "schema", "data"),
    [
        (AvroConverter, {"type": "record", "name": "R", "fields": [], "doc": "x" * LONG}, b""),
        pytest.param(
            JsonSchemaConverter,
            {"type": "object", "properties": {}, "title": "x" * LONG},
            b"{}",
            marks=pytest.mark.long,
        ),
        (JsonSchemaConverter, {"type": "object", "properties": {}, "title": "x" * LONG}, b"{"),
    ],
)
def test_ids_that_each_name_a_schema_fill_no_memory(
    kind: type[RegisteredConverter], schema: dict[str, object], data: bytes
) -> None:
    """A registry may answer every id with another schema."""
    registry = MemoryRegistry()
    converter = _registered(kind, registry)
    registry.always = httpx.Response(200, json={"schema": json.dumps(schema), "schemaType": kind.KIND})

    def record(number: int) -> None:
        registry.requests.clear()  # they have what was answered, too
        with suppress(DataError):
            converter.to_connect_data("t", [], b"\0" + number.to_bytes(4) + data)

    assert _room(record) < ROOM
    assert len(registry.asked) == RECORDS


def test_schemas_that_are_written_fill_no_memory() -> None:
    """Each has an id that is known from then on."""
    registry = MemoryRegistry()
    converter = _registered(JsonSchemaConverter, registry)
    registry.always = httpx.Response(200, json={"id": 1})

    def record(number: int) -> None:
        schema = Schema(type=Type.INT8, name=f"{number} " * (LONG // 3))
        converter.from_connect_data("t", [], schema, 1)
        registry.requests.clear()  # they have what was sent, too

    assert _room(record) < ROOM


def _next(number: int) -> Iterable[int]:
    return [number + 1]


def _a_thousand(_: int) -> Iterable[int]:
    return range(1, 2 * MOST_REFERENCES)


@pytest.mark.parametrize(
    ("kind", "refers"),
    [
        (AvroConverter, _next),
        (JsonSchemaConverter, _next),
        (ProtobufConverter, _next),
        (AvroConverter, _a_thousand),
        pytest.param(JsonSchemaConverter, _a_thousand, marks=pytest.mark.long),
        pytest.param(ProtobufConverter, _a_thousand, marks=pytest.mark.long),
    ],
)
def test_a_registry_with_ever_new_references_is_asked_a_bounded_number_of_times(
    kind: type[RegisteredConverter], refers: Callable[[int], Iterable[int]]
) -> None:
    """Each of its answers may refer to another that it has not told of yet, or to a thousand."""
    registry = MemoryRegistry()
    for number in range(2 * MOST_REFERENCES):
        references = [{"name": f"n{at}", "subject": f"s{at}", "version": 1} for at in refers(number)]
        registry.add("{}", f"s{number}", schemaType=kind.KIND, references=references)
    converter = _registered(kind, registry)
    with pytest.raises(DataError, match="refers to more than"):
        converter.to_connect_data("t", [], b"\0" + (1).to_bytes(4) + b"\0")
    assert len(registry.asked) <= MOST_REFERENCES + 1


def test_a_schema_counts_with_all_that_it_refers_to() -> None:
    """Each answer is bounded, and five hundred of them would be gigabytes."""
    registry = MemoryRegistry()
    long = " " * (LONGEST_SCHEMA // 8)
    for number in range(20):
        references = [{"name": f"n{number + 1}", "subject": f"s{number + 1}", "version": 1}]
        registry.add(f"{{}}{long}", f"s{number}", references=references)
    with pytest.raises(DataError, match="more than 4194304 characters"):
        _registered(AvroConverter, registry).to_connect_data("t", [], b"\0" + (1).to_bytes(4))
    assert len(registry.asked) < 10
