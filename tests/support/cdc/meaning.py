"""What a value means, as a text: of a column, in SQL, and of the field that Debezium made of it, in Python.

Both sides are written from Debezium's page of data types, neither from the other's code. Moments are microseconds
since 1970; the proleptic Gregorian calendar on both sides, as PostgreSQL counts.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What stands for a TOASTed column that an update has left as it was."""

_INFINITE: Final = {
    ("timestamp", "9223372036825200000"): "infinity",
    ("timestamp", "-9223372036832400000"): "-infinity",
    ("date", "-2147472692"): "infinity",
    ("date", "-2147472691"): "-infinity",
}
"""What Debezium 3.5 makes of moments that no calendar has; its numbers for dates lie a day apart, both before all."""

_FLOATS: Final = {"float4": ">f", "float8": ">d"}
"""Type → the format of its bytes."""

_MICROS: Final = "CASE WHEN isfinite({0}) THEN (extract(epoch from {0}) * 1000000)::bigint::text ELSE {0}::text END"
_SQL: Final = {
    "bytea": "encode({0}, 'hex')",
    "hstore": "hstore_to_json({0})::text",
    "money": "{0}::numeric::text",
    "date": "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text ELSE {0}::text END",
    "timestamp": _MICROS,
    "timestamp_ms": _MICROS.replace("1000000", "1000"),
    "timestamptz": _MICROS,
    "time": "(extract(epoch from {0}) * 1000000)::bigint::text",
    "interval": (
        "format('P%sY%sM%sDT%sH%sM%sS', extract(year from {0}), extract(month from {0}), extract(day from {0}),"
        " extract(hour from {0}), extract(minute from {0}), trim_scale(extract(second from {0})))"
    ),
}


def in_sql(column: str, type_name: str, *, is_array: bool) -> str:
    """Returns the expression of a column's meaning; `type_name` is pg_type's."""
    if is_array:
        return f"to_json({column})::text"
    # format() writes a value as the type's output function does; a cast to text is another for some types (inet).
    expression = _SQL.get(type_name, "format('%s', {0})").format(column)
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {expression} END"


def of_field(value: Any, type_name: str, *, is_array: bool) -> str | None:
    """Returns the meaning of a field's value, for a column of that type."""
    if value is None or value == UNAVAILABLE:
        return value
    if is_array:
        return json.dumps([each if each is None else _plain(each, type_name) for each in value])
    return _INFINITE.get((type_name, str(value))) or _OF.get(type_name, str)(value)


def same(left: str | None, right: str | None, type_name: str, *, is_array: bool) -> bool:
    """Returns whether two meanings are equal: JSON and floats as values, all else as texts."""
    if left is None or right is None or UNAVAILABLE in (left, right):
        return left == right
    if is_array:
        number = type_name == "_numeric"
        return _items(left, is_number=number) == _items(right, is_number=number)
    if type_name == "hstore":
        return bool(json.loads(left) == json.loads(right))
    if type_name in ("numeric", "money"):  # Debezium leaves out some zeros at the end
        return Decimal(left) == Decimal(right)
    if type_name in _FLOATS:
        return _bits(left, type_name) == _bits(right, type_name)
    return left == right


def decimal_of(unscaled: bytes, scale: int) -> Decimal:
    """Returns the number with these bytes and so many digits after the point, whatever its length."""
    number = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _items(array: str, *, is_number: bool) -> list[Any]:
    items = json.loads(array, parse_float=Decimal)
    return [each if each is None or not is_number else Decimal(each) for each in items]


def _bits(number: str, type_name: str) -> bytes:
    """Returns the bytes of a float: Debezium's real has the digits of a double, and -0 is not 0."""
    return struct.pack(_FLOATS[type_name], float(number))


def _plain(value: Any, type_name: str) -> Any:
    return _number(value) if type_name == "_numeric" else value


def _number(value: Any) -> str:
    """A Decimal; the structure of one with a scale of its own; a text (decimal.handling.mode=string)."""
    if isinstance(value, Mapping):
        unscaled = value["value"] if isinstance(value["value"], bytes) else base64.b64decode(value["value"])
        value = decimal_of(unscaled, value["scale"])
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def _hex(value: Any) -> str:
    return (value if isinstance(value, bytes) else base64.b64decode(value)).hex()


def _float(value: Any) -> str:
    """A number; NaN and the infinite ones are texts in JSON."""
    return repr(float(value))


def _zoned(value: str) -> str:
    if value.endswith("infinity"):
        return value
    moment = datetime.fromisoformat(value).astimezone(UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return str((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


_OF: Final[Mapping[str, Callable[[Any], str]]] = {
    "bool": lambda value: "t" if value else "f",
    "bytea": _hex,
    "numeric": _number,
    "money": _number,
    "timestamptz": _zoned,
    "float4": _float,
    "float8": _float,
}
