"""Values without a schema, and values as text (`org.apache.kafka.connect.data.Values`)."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Callable
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any, Final

from connectors.data.bounds import DECIMAL_BYTES, NUMBER_DIGITS, whole_of
from connectors.data.java_calendar import DAY_MS, moment_of
from connectors.data.pace import paced
from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Schema, Type
from connectors.errors import DataError
from connectors.rejection import shown

_FLOAT: Final = struct.Struct(">f")
_WIDE: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""Arithmetic that rounds nothing."""
_NORMAL: Final = 2.0**-126
"""The smallest float of 32 bits that has all its digits."""
_LEAST_PLAIN: Final = 1e-3
_MOST_PLAIN: Final = 1e7
"""Between these Java writes a number without an exponent, as Python does."""
_FORMS_OF_SMALL: Final = tuple(f"{{:.{digits}g}}".format for digits in range(1, 9))
_FORMS: Final = _FORMS_OF_SMALL[5:]
"""What writes a number with 6 to 8 digits."""
_AT_ONCE: Final = 8_192
"""Bits of a number up to which C's own conversion is the quickest."""


class Date(int):
    """A moment in ms since 1970-01-01T00:00Z, of a value without a schema (java.util.Date)."""

    __slots__ = ()


def decimal_of(schema: Schema, data: bytes) -> Decimal:
    """Returns the number that the encoded form of a Decimal is (`Decimal.toLogical`). Raises DataError."""
    scale = scale_of(schema)
    if len(data) > DECIMAL_BYTES:
        raise DataError(f"A Decimal of {len(data)} bytes is not made a number; {DECIMAL_BYTES} are the most.")
    return _exact(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _WIDE)


def _exact(number: int) -> Decimal:
    """Returns `number` as a Decimal: long ones by halves, as C's conversion takes the square of their length."""
    bits = number.bit_length()
    if bits <= _AT_ONCE:
        return Decimal(number)
    half = bits // 2
    high, low = number >> half, number & ((1 << half) - 1)
    return _WIDE.fma(_exact(high), _WIDE.power(2, half), _exact(low))


def bytes_of_decimal(scale: int, number: Decimal) -> bytes:
    """Returns the encoded form of `number`. Raises DataError.

    A number that has more digits after the point than `scale` is none, nor one of more than NUMBER_DIGITS in all:
    an exponent of a few digits would take hours and gigabytes.
    """
    sign, digits, exponent = number.as_tuple()
    if isinstance(exponent, str):
        raise DataError(f"A Decimal is a number, and this is {shown(number)}.")  # an infinite one, or none
    if not number:
        return b"\0"
    shift = exponent + scale
    if max(len(digits), len(digits) + shift) > NUMBER_DIGITS:
        raise DataError(
            f"A Decimal as a number has at most {NUMBER_DIGITS} digits; {shown(number)} of scale {scale} has more."
        )
    behind = "".join(map(str, digits[shift:])) if shift < 0 else ""
    if behind.strip("0") or -shift > len(digits):
        raise DataError(f"{shown(number)} has more than {scale} digits behind the point.")
    unscaled = int("".join(map(str, digits[:shift] if shift < 0 else digits)) or "0") * 10 ** max(0, shift)
    return bytes_of_int(-unscaled if sign else unscaled)


def bytes_of_int(number: int) -> bytes:
    """Returns the shortest two's complement of `number`, big-endian (BigInteger.toByteArray)."""
    return number.to_bytes(((number if number >= 0 else ~number).bit_length() // 8) + 1, "big", signed=True)


def scale_of(schema: Schema) -> int:
    """Returns how many digits a Decimal has after the point. Raises DataError for what is no number of 32 bits."""
    return whole_of((schema.parameters or {}).get(SCALE, "0"), "scale of a Decimal")


def float32(number: float) -> float:
    """Returns the float of 32 bits that is nearest to `number`; infinite if it is too large."""
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def short_float(number: float) -> float:
    """Returns the double with the digits that a float of 32 bits is written with: 0.1 for 0.10000000149011612."""
    return float(_shortest(number)) if math.isfinite(number) else number


def java_double(number: float) -> str:
    """Returns a double as Java writes it (Double.toString, of Java 19 on: the shortest digits that tell it)."""
    text = repr(number)
    return text if _LEAST_PLAIN <= abs(number) < _MOST_PLAIN else _java_float(number, text)


def java_float(number: float) -> str:
    """Returns the float of 32 bits that is nearest to `number` as Java writes it (Float.toString)."""
    nearest = float32(number)
    text = _shortest(nearest)
    # The double with these digits has them as its shortest ones, and Python's form of it is Java's there.
    return repr(float(text)) if _LEAST_PLAIN <= abs(nearest) < _MOST_PLAIN else _java_float(nearest, text)


def _shortest(number: float) -> str:
    """Returns the fewest digits that tell a float of 32 bits; nine always do.

    Of normal numbers any six are told from each other, and zeros at their end are left out.
    """
    for form in _FORMS if abs(number) >= _NORMAL else _FORMS_OF_SMALL:
        text = form(number)
        if float32(float(text)) == number:
            return text
    return f"{number:.9g}"


def _java_float(number: float, text: str) -> str:
    if number != number:  # noqa: PLR0124  # NaN
        return "NaN"
    if number in {float("inf"), float("-inf")}:
        return "Infinity" if number > 0 else "-Infinity"
    sign, digits, exponent = Decimal(text).as_tuple()
    if len(digits) == 1:  # Java takes the nearest number of two digits then: 4.9E-324, not 5.0E-324
        sign, digits, exponent = Decimal(f"{number:.1e}").as_tuple()
    assert isinstance(exponent, int)
    minus, plain = "-" if sign else "", "".join(map(str, digits)).rstrip("0")
    point = len(digits) + exponent  # the place of the point, counted from the first digit
    if not plain:
        return f"{minus}0.0"
    return f"{minus}{plain[0]}.{plain[1:] or '0'}E{point - 1}"


def convert_to_string(schema: Schema | None, value: Any) -> str | None:
    """Returns `value` as text (`Values.convertToString`): a text as it is, structures as JSON, bytes in Base64."""
    if value is None or isinstance(value, str):
        return value
    return _text(schema, value, embedded=False)


def _text(schema: Schema | None, value: Any, *, embedded: bool) -> str:
    if isinstance(value, str):
        return _quoted(value) if embedded else value
    write = _WRITERS.get(dict if isinstance(value, dict) else type(value))
    if write is None:
        raise TypeError(f"a {type(value).__name__} has no text")
    return write(schema, value)


def float_text(schema: Schema | None, value: float) -> str:
    """Returns a float as Java writes it, of 32 bits if `schema` says so."""
    return java_float(value) if schema is not None and schema.type is Type.FLOAT32 else java_double(value)


def _list_text(schema: Schema | None, value: list[Any]) -> str:
    inner = schema.value_schema if schema else None
    return "[" + ",".join(_text(inner, item, embedded=True) for item in paced(value)) + "]"


def _dict_text(schema: Schema | None, value: dict[Any, Any]) -> str:
    if schema is not None and schema.type is Type.STRUCT:
        of_fields = {field.name: field.schema for field in schema.fields}
        pairs = (f"{name}:{_text(of_fields.get(name), item, embedded=True)}" for name, item in value.items())
    else:
        of_keys, of_values = (schema.key_schema, schema.value_schema) if schema else (None, None)
        pairs = (
            f"{_text(of_keys, name, embedded=True)}:{_text(of_values, item, embedded=True)}"
            for name, item in paced(value.items())
        )
    return "{" + ",".join(pairs) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def bytes_text(schema: Schema | None, value: bytes) -> str:
    """Returns bytes in Base64, and those of a Decimal as its number."""
    if schema is not None and schema.name == DECIMAL:
        return str(decimal_of(schema, value))
    return base64.b64encode(value).decode()


def _int_text(schema: Schema | None, value: int) -> str:
    match schema.name if schema is not None else None:
        case x if x == DATE:
            return moment_of(value * DAY_MS).date
        case x if x == TIME:
            return moment_of(value).time
        case x if x == TIMESTAMP:
            return iso_timestamp(value)
    return str(value)


def iso_timestamp(ms: int) -> str:
    """Returns a moment as `2026-01-31T12:00:00.000Z`, the form of Values' dates."""
    moment = moment_of(ms)
    return f"{moment.date}T{moment.time}"


_WRITERS: Final[dict[type, Callable[[Schema | None, Any], str]]] = {
    type(None): lambda _, value: "null",  # noqa: ARG005
    bool: lambda _, value: "true" if value else "false",
    Date: lambda _, value: iso_timestamp(value),
    Decimal: lambda _, value: str(value),
    bytes: bytes_text,
    int: _int_text,
    float: float_text,
    list: _list_text,
    dict: _dict_text,
}
