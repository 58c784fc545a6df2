"""Which column values of a schema become, and which values it holds."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from connectors.data import schema as connect
from connectors.data.schema import Field, Schema, Type
from connectors.data.values import bytes_of_int
from connectors.errors import DataError
from connectors.typed.arrow_types import MOST_COLUMNS, MOST_NAMES, leaf_of, type_of
from connectors.typed.encoder import encoder
from connectors.typed.unite import as_columns, named

TIME = "io.debezium.time."


def _logical(kind: Type, name: str, **parameters: str) -> Schema:
    return Schema(type=kind, name=name, parameters=parameters or None)


def _decimal(precision: str, scale: str) -> Schema:
    return _logical(Type.BYTES, connect.DECIMAL, **{"connect.decimal.precision": precision, "scale": scale})


VARIABLE = Schema(
    type=Type.STRUCT,
    name="io.debezium.data.VariableScaleDecimal",
    fields=(Field("scale", connect.INT32), Field("value", connect.BYTES)),
)
DAY = 86_400_000_000
WALL = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
LEAVES: list[tuple[Schema, Any, Any, pa.DataType]] = [
    (connect.INT8, -5, -5, pa.int8()),
    (connect.INT64, 2**63 - 1, 2**63 - 1, pa.int64()),
    (connect.FLOAT32, 0.5, 0.5, pa.float32()),
    (connect.BOOLEAN, True, True, pa.bool_()),
    (connect.STRING, "ä", "ä", pa.string()),
    (connect.BYTES, b"\xff", b"\xff", pa.binary()),
    (_logical(Type.STRING, "Status"), "NEW", "NEW", pa.string()),
    (_decimal("10", "2"), bytes_of_int(-12345), Decimal("-123.45"), pa.decimal128(10, 2)),
    (_decimal("64", "3"), bytes_of_int(10**37), Decimal(10**37).scaleb(-3), pa.decimal128(38, 3)),
    (_decimal("64", "40"), bytes_of_int(5), f"0.{'0' * 39}5", pa.string()),
    (_decimal("64", "-2"), bytes_of_int(-5), "-500", pa.string()),
    (_logical(Type.INT32, connect.DATE), 20_000, date(2024, 10, 4), pa.date32()),
    (_logical(Type.INT32, connect.TIME), 1, time(0, 0, 0, 1000), pa.time32("ms")),
    (_logical(Type.INT64, connect.TIMESTAMP), 1, datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC), None),
    (_logical(Type.INT32, f"{TIME}Date"), -1, date(1969, 12, 31), pa.date32()),
    (_logical(Type.INT64, f"{TIME}MicroTime"), DAY - 1, time(23, 59, 59, 999_999), pa.time64("us")),
    (_logical(Type.INT64, f"{TIME}Timestamp"), 2, WALL.replace(microsecond=2000), pa.timestamp("ms")),
    (_logical(Type.INT64, f"{TIME}MicroTimestamp"), 2, WALL.replace(microsecond=2), pa.timestamp("us")),
    (_logical(Type.INT64, f"{TIME}NanoTimestamp"), 2000, WALL.replace(microsecond=2), pa.timestamp("ns")),
    (
        _logical(Type.STRING, f"{TIME}ZonedTimestamp"), "2026-01-31T12:00:00.000001+01:00",
        datetime(2026, 1, 31, 11, microsecond=1, tzinfo=UTC), pa.timestamp("us", "UTC"),
    ),
    (
        _logical(Type.STRING, f"{TIME}ZonedTimestamp"), "2026-01-31T12:00:00.000001999Z",
        datetime(2026, 1, 31, 12, microsecond=1, tzinfo=UTC), None,
    ),
    (_logical(Type.INT64, "avro.timestamp-micros"), 1, datetime(1970, 1, 1, microsecond=1, tzinfo=UTC), None),
    (_logical(Type.STRING, "io.debezium.data.Json"), '{"a":1}', '{"a":1}', pa.string()),
    (_logical(Type.STRING, "io.debezium.data.Uuid"), "6b29fc40", "6b29fc40", pa.string()),
    (VARIABLE, {"scale": 2, "value": bytes_of_int(-5)}, "-0.05", pa.string()),
    (VARIABLE, {"scale": -3, "value": bytes_of_int(7)}, "7000", pa.string()),
    (VARIABLE, {"scale": 0, "value": bytes_of_int(0)}, "0", pa.string()),
    (Schema(type=Type.STRUCT), {}, "{}", pa.string()),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "shown", "kind"), LEAVES)
def test_a_value_is_shown_as_what_it_is(schema: Schema, value: Any, shown: Any, kind: pa.DataType | None) -> None:
    """Logical types of Connect, Debezium and Avro have Arrow's own, and a null is a null."""
    leaf = leaf_of(schema)
    assert kind is None or leaf.type == kind
    made = leaf.to_array([None, value])
    made.validate(full=True)
    assert made.type == leaf.type
    assert made.to_pylist() == [None, shown]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (_decimal("4", "2"), bytes_of_int(10_000)),
        (_decimal("38", "2"), b"\x01" * 70_000),
        (_logical(Type.INT32, connect.TIME), 86_400_000),
        (_logical(Type.INT32, connect.TIME), -1),
        (_logical(Type.INT64, connect.TIMESTAMP), 2**63 - 1),
        (_logical(Type.STRING, f"{TIME}ZonedTimestamp"), "infinity"),
        (_logical(Type.STRING, f"{TIME}ZonedTimestamp"), "2026-01-31T12:00:00"),
        (VARIABLE, {"scale": 2**31 - 1, "value": b"\x01"}),
        (VARIABLE, {"scale": 0, "value": b"\x01" * 70_000}),
        (connect.STRING, "\ud800"),
        (connect.INT8, 300),
    ],
)
def test_a_value_beyond_its_column_is_refused(schema: Schema, value: Any) -> None:
    """It is neither cut nor rounded."""
    with pytest.raises((DataError, pa.ArrowInvalid, pa.ArrowException, UnicodeError, OverflowError)):
        leaf_of(schema).to_array([value])


def test_many_long_decimals_are_counted_before_they_are_written() -> None:
    """A list of small numbers with long scales does not become gigabytes of text."""
    with pytest.raises(DataError, match="digits"):
        leaf_of(VARIABLE).to_array([{"scale": 20_000, "value": b"\x01"}] * 100_000)


def test_parts_are_kept() -> None:
    """Structs, lists, maps and unions are nested types, with nulls at each level."""
    inner = Schema(type=Type.STRUCT, optional=True, fields=(Field("x", connect.INT32),))
    schema = Schema(
        type=Type.STRUCT,
        fields=(
            Field("rows", Schema(type=Type.ARRAY, optional=True, value_schema=inner)),
            Field("map", Schema(type=Type.MAP, key_schema=connect.STRING, value_schema=inner)),
            Field("nested", Schema(type=Type.ARRAY, value_schema=Schema(type=Type.ARRAY, value_schema=connect.INT64))),
        ),
    )
    rows = [
        {"rows": [{"x": 1}, None, {}], "map": {"a": {"x": 2}, "b": None}, "nested": [[1], [], [2, 3]]},
        {"rows": None, "map": {}, "nested": []},
    ]
    made = encoder(schema, named(as_columns(type_of(schema))))(rows)
    made.validate(full=True)
    first, second = made.to_pylist(maps_as_pydicts="strict")
    assert first == {
        "rows": [{"x": 1}, None, {"x": None}],
        "map": {"a": {"x": 2}, "b": None},
        "nested": [[1], [], [2, 3]],
    }
    assert second == {"rows": None, "map": {}, "nested": []}


@pytest.mark.parametrize(
    "fields",
    [
        [Field(f"f{number}", connect.INT32) for number in range(MOST_COLUMNS + 1)],
        [Field("f", connect.INT32)],
        [Field("n" * (MOST_NAMES + 1), connect.INT32), Field("f", connect.INT32)],
        [Field("n" * MOST_NAMES, connect.STRING), Field("f", connect.INT32)],
    ],
)
def test_a_schema_without_bound_is_refused(fields: list[Field]) -> None:
    """Neither too many columns nor too many levels, nor too long names."""
    schema = Schema(type=Type.STRUCT, fields=tuple(fields))
    if len(fields) == 1:
        for _ in range(40):
            schema = Schema(type=Type.STRUCT, fields=(Field("f", schema),))
    with pytest.raises(DataError, match=r"columns, more than 32 levels|32 levels"):
        type_of(schema)


def test_infinite_times_are_kept() -> None:
    """PostgreSQL's infinity, as Debezium writes it, is a time that no calendar has."""
    made = leaf_of(_logical(Type.INT64, f"{TIME}MicroTimestamp")).to_array([9_223_372_036_825_200_000])
    assert made.cast(pa.int64()).to_pylist() == [9_223_372_036_825_200_000]
