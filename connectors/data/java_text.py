"""Writes values as Java's `toString` does, which is what Kafka's StringConverter writes of anything but text."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from connectors.data.java_calendar import DAY_MS, moment_of
from connectors.data.pace import paced
from connectors.data.schema import DATE, TIME, TIMESTAMP, Schema, Type
from connectors.data.values import Date, bytes_text, float_text

_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def to_string(schema: Schema | None, value: Any) -> str:
    """Returns `value` as text: `Struct{id=1}`, `{a=1, b=null}`, `[1, 2]`, dates as java.util.Date has them in UTC.

    Bytes are in Base64; Java writes their address in memory.
    """
    write = _WRITERS.get(dict if isinstance(value, dict) else type(value))
    if write is None:
        raise TypeError(f"a {type(value).__name__} has no text")
    return write(schema, value)


def _list_text(schema: Schema | None, value: list[Any]) -> str:
    inner = schema.value_schema if schema else None
    return f"[{', '.join(to_string(inner, item) for item in paced(value))}]"


def _dict_text(schema: Schema | None, value: dict[Any, Any]) -> str:
    if schema is not None and schema.type is Type.STRUCT:
        return _struct_text(schema, value)
    keys, values = (schema.key_schema, schema.value_schema) if schema else (None, None)
    members = (f"{to_string(keys, name)}={to_string(values, item)}" for name, item in paced(value.items()))
    return f"{{{', '.join(members)}}}"


def _struct_text(schema: Schema, value: dict[Any, Any]) -> str:
    """Returns the text of a struct: fields that are null are left out, also those that have a default."""
    there = ((field, value.get(field.name)) for field in schema.fields)
    fields = (f"{field.name}={to_string(field.schema, held)}" for field, held in there if held is not None)
    return f"Struct{{{','.join(fields)}}}"


def _int_text(schema: Schema | None, value: int) -> str:
    match schema.name if schema is not None else None:
        case x if x == DATE:
            return _moment_text(value * DAY_MS)
        case x if x in {TIME, TIMESTAMP}:
            return _moment_text(value)
    return str(value)


def _moment_text(ms: int) -> str:
    """Returns a moment in the form `Sat Jan 31 12:00:00 UTC 2026`."""
    at = moment_of(ms)
    time = f"{at.hour:02}:{at.minute:02}:{at.second:02}"
    return f"{_DAYS[at.weekday]} {_MONTHS[at.month - 1]} {at.day:02} {time} UTC {at.year}"


_WRITERS: Final[dict[type, Callable[[Schema | None, Any], str]]] = {
    type(None): lambda _, value: "null",  # noqa: ARG005
    bool: lambda _, value: "true" if value else "false",
    str: lambda _, value: value,
    Date: lambda _, value: _moment_text(value),
    Decimal: lambda _, value: str(value),
    bytes: bytes_text,
    int: _int_text,
    float: float_text,
    list: _list_text,
    dict: _dict_text,
}
