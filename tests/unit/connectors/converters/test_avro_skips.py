"""What is passed over ends where reading it would end."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.avro.converter import without_logical_types
from connectors.converters.avro.schemas import ToAvro
from connectors.converters.avro.skips import check_end, skip_of
from connectors.errors import DataError
from tests.support.connect_classes.records import structs, values_of
from tests.unit.connectors.converters.test_avro import _is_avro

KINDS: list[tuple[Any, Any]] = [
    ("boolean", True),
    ("float", 1.5),
    ("double", -0.0),
    ("bytes", b"\x80" * 200),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B"),
    ({"type": "fixed", "name": "F", "size": 3}, b"abc"),
    ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 3}}, [b"abc"] * 100),
    ({"type": "map", "values": ["null", "long"]}, {"a": 1 << 40, "b": None}),
    ({"type": "string"}, "a"),
    (["null", *({"type": "fixed", "name": f"F{size}", "size": size} for size in range(1, 100))], b"a" * 99),
]


def _encoded(avro: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(avro), value)
    return buffer.getvalue()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_records_of_any_schema_end_where_they_end(data: st.DataObject) -> None:
    """Wherever they begin."""
    schema = data.draw(structs(maps=False).filter(_is_avro))
    avro = without_logical_types(ToAvro().schema(schema))
    raw = _encoded(avro, data.draw(values_of(schema)))
    assert skip_of(avro)(b"xy" + raw + b"z", 2) == 2 + len(raw)


@pytest.mark.parametrize(("avro", "value"), KINDS)
def test_each_type_ends_where_it_ends_and_not_before(avro: Any, value: Any) -> None:
    """Data that is cut off anywhere is an error."""
    raw, skip = _encoded(avro, value), skip_of(avro)
    assert skip(raw, 0) == len(raw)
    for end in range(len(raw)):
        with pytest.raises((DataError, IndexError)):
            check_end(raw[:end], skip(raw[:end], 0))


@pytest.mark.parametrize(
    ("avro", "raw"),
    [
        ("string", b"\x01"),
        ("string", b"\xff" * 20),
        (["null", "int"], b"\x04\x00"),
        (["null", "int"], b"\x01\x00"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 3}}, b"\xfe" * 8 + b"\x01abc"),
    ],
)
def test_what_no_writer_writes_is_an_error_at_once(avro: Any, raw: bytes) -> None:
    """Lengths below 0, branches that there are not, and more items than there are bytes."""
    with pytest.raises((DataError, IndexError)):
        check_end(raw, skip_of(avro)(raw, 0))


def test_a_block_may_say_how_many_bytes_it_has() -> None:
    """Its count is below 0 then."""
    assert skip_of({"type": "array", "items": "int"})(b"\x03\x04\x02\x04\x00", 0) == 5
