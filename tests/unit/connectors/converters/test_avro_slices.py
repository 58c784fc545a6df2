"""A row that is taken out of a change event is what decoding and encoding all of it would give."""

from __future__ import annotations

import io
import struct
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.avro.converter import AvroConverter, without_logical_types
from connectors.converters.avro.schemas import ToAvro
from connectors.converters.avro.slices import EncodedStruct, form_of
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from tests.support.connect_classes.records import structs, values_of
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.converters.test_avro import _is_avro, converter

SOURCE = {"type": "record", "name": "Source", "namespace": "io.d", "fields": [{"name": "table", "type": "string"}]}


def envelope(row: Any) -> dict[str, Any]:
    """Returns the schema of a change event of rows."""
    name = f"{row['namespace']}.{row['name']}" if "namespace" in row else row["name"]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": row.get("namespace", ""),
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", name], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
        ],
    }


def encoded(schema: Any, value: Any, number: int) -> bytes:
    """Returns a message in the registry's wire format."""
    buffer = io.BytesIO()
    buffer.write(struct.pack(">bI", 0, number))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(without_logical_types(schema)), value)
    return buffer.getvalue()


def asking(memory: MemoryRegistry, *fields: str) -> AvroConverter:
    """Returns a converter of which only these fields are asked for."""
    made = converter(memory)
    made.ask_only(lambda _: frozenset(fields))
    return made


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_part_is_what_the_whole_gives(data: st.DataObject) -> None:
    """Rows of any schema: the same value, and the same record once it is written."""
    schema = data.draw(structs(maps=False).filter(_is_avro))
    schema = Schema(**{**{name: getattr(schema, name) for name in Schema.__struct_fields__}, "optional": False})
    rows = st.none() | values_of(schema)
    event = {"before": data.draw(rows), "after": data.draw(rows), "source": {"table": "t"}, "op": "u"}
    memory = MemoryRegistry()
    avro = envelope(ToAvro().schema(schema))
    message = encoded(avro, event, memory.add(avro))
    whole, part = converter(memory), asking(memory, "before", "after")
    connect, all_of_it = whole.to_connect_data("t", [], message)
    same, some = part.to_connect_data("t", [], message)
    assert same == connect
    assert some == {name: all_of_it[name] for name in ("before", "after")}
    assert connect is not None
    after = connect.field("after")
    assert after is not None
    written = [
        one.from_connect_data("o", [], after.schema, found["after"])
        for one, found in ((whole, all_of_it), (part, some))
    ]
    assert written[0] == written[1]


def test_the_bytes_of_a_struct_are_kept_and_not_encoded_again() -> None:
    """As long as its schema is written as it was read."""
    memory = MemoryRegistry()
    row = {"type": "record", "name": "Row", "namespace": "n", "fields": [{"name": "a", "type": "int"}]}
    avro = envelope(row)
    made = asking(memory, "after")
    data = encoded(avro, {"before": {"a": 1}, "after": {"a": 2}, "source": {"table": "t"}, "op": "u"}, memory.add(avro))
    schema, value = made.to_connect_data("t", [], data)
    assert schema is not None
    after = schema.field("after")
    assert after is not None
    assert isinstance(value["after"], EncodedStruct)
    value["after"].data = b"kept"
    written = made.from_connect_data("o", [], after.schema, value["after"])
    assert written is not None
    assert written[5:] == b"kept"
    plain = made.from_connect_data("o", [], after.schema, {**value["after"]})
    assert plain is not None
    assert plain[5:] == b"\x04"


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_data_that_ends_anywhere_before_its_end_is_an_error(data: st.DataObject) -> None:
    """Also in a field that nothing looks at: the record would else be published as a good one."""
    schema = data.draw(structs(maps=False).filter(_is_avro).filter(_has_bytes))
    schema = Schema(**{**{name: getattr(schema, name) for name in Schema.__struct_fields__}, "optional": False})
    memory = MemoryRegistry()
    row = ToAvro().schema(schema)
    avro = envelope(row)
    avro["fields"].append({"name": "again", "type": {"type": "array", "items": f"{avro['namespace']}.{row['name']}"}})
    more = {"source": {"table": "a table"}, "op": "u", "again": [data.draw(values_of(schema))]}
    event = {"before": None, "after": data.draw(values_of(schema)), **more}
    message = encoded(avro, event, memory.add(avro))
    made = asking(memory, "after")
    assert made.to_connect_data("t", [], message)[1] == {"after": event["after"]}
    with pytest.raises(DataError, match="no Avro"):
        made.to_connect_data("t", [], message[: data.draw(st.integers(5, len(message) - 1))])


def _has_bytes(schema: Schema) -> bool:
    """Returns whether each value of a struct has bytes, without which a list of them is not read."""
    return any(
        one.schema.type is not Type.STRUCT or one.schema.optional or _has_bytes(one.schema) for one in schema.fields
    )


@pytest.mark.parametrize("rest", [b"\x02t", b"\x04t\x02u", b"\x01", b"\x02t\xff\xff"])
def test_a_broken_field_behind_the_last_one_is_an_error(rest: bytes) -> None:
    """A text that is longer than what is left, or has no length."""
    memory = MemoryRegistry()
    avro = envelope({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    head = struct.pack(">bI", 0, memory.add(avro)) + b"\x00\x02\x04"
    made = asking(memory, "after")
    assert made.to_connect_data("t", [], head + b"\x02t\x02u")[1] == {"after": {"a": 2}}
    with pytest.raises(DataError, match="no Avro"):
        made.to_connect_data("t", [], head + rest)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x04\x04", b"\x02", b"\x00\x02"])
def test_broken_data_is_an_error(data: bytes) -> None:
    """Cut off, or with a branch that there is not."""
    memory = MemoryRegistry()
    avro = envelope({"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]})
    message = struct.pack(">bI", 0, memory.add(avro)) + data
    with pytest.raises(DataError, match="no Avro"):
        asking(memory, "after").to_connect_data("t", [], message)


def test_forms_tell_what_encodes_alike() -> None:
    """Names of types and defaults do not count, the order of a union does."""
    one = {"type": "record", "name": "A", "fields": [{"name": "x", "type": ["null", "int"], "default": None}]}
    same = {"type": "record", "name": "B", "namespace": "n", "fields": [{"name": "x", "type": ["null", "int"]}]}
    other = {"type": "record", "name": "A", "fields": [{"name": "x", "type": ["int", "null"]}]}
    assert form_of(one) == form_of(same) != form_of(other)
