"""Values have the text that Java's toString gives them."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.converters.header_converters import StringHeaderConverter
from connectors.data.java_text import to_string
from connectors.data.schema import BYTES, FLOAT32, INT32, STRING, TIMESTAMP_SCHEMA, Field, Schema, Type
from connectors.data.values import Date

ROW = Schema(type=Type.STRUCT, fields=(Field("id", INT32), Field("name", STRING.as_optional())))


@pytest.mark.parametrize(
    ("schema", "value", "text"),
    [
        (ROW, {"id": 0, "name": "n0"}, "Struct{id=0,name=n0}"),
        (ROW, {"id": 0, "name": None}, "Struct{id=0}"),
        (None, {"id": 5, "name": None}, "{id=5, name=null}"),
        (None, [1, 2, "a", [1.5, True]], "[1, 2, a, [1.5, true]]"),
        (Schema(type=Type.ARRAY, value_schema=ROW), [{"id": 1}, {"id": 2}], "[Struct{id=1}, Struct{id=2}]"),
        (None, 1e10, "1.0E10"),
        (FLOAT32, 0.10000000149011612, "0.1"),
        (TIMESTAMP_SCHEMA, 1769860800000, "Sat Jan 31 12:00:00 UTC 2026"),
        (None, Date(-1), "Wed Dec 31 23:59:59 UTC 1969"),
        (BYTES, b"\x01\x02\x03", "AQID"),
    ],
)
def test_a_value_has_the_text_that_java_gives_it(schema: Schema | None, value: Any, text: str) -> None:
    """Bytes alone have none of their own there."""
    assert to_string(schema, value) == text
    assert StringHeaderConverter({}).from_connect_header("t", "h", schema, value) == text.encode()
