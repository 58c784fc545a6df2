"""Casts single values as Java's numbers are: whole numbers keep their lowest bits, others are cut at the bounds."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from connectors.data.schema import BITS, DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from connectors.data.values import Date, decimal_of, float32, iso_timestamp, java_double, java_float
from connectors.data.values import convert_to_string as as_text
from connectors.errors import DataError
from connectors.rejection import shown

_INPUT: Final = (bool, int, float, str, bytes, Decimal)
_WHOLE: Final = re.compile(r"([+-]?)0*(\d{1,20})")
"""A whole number that may fit into 64 bits, in digits of any script, as Java reads them.

Python refuses to read more than 4,300 digits, zeros among them.
"""
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*", re.ASCII)
# Java's long keeps the last 64 bits of a number.
_MODULO: Final = 1 << 64
_LAST: Final = 64
"""Digits of a whole number that its last 64 bits depend on: 10**64 is a multiple of 2**64."""


def cast_value(schema: Schema | None, value: Any, kind: Type) -> Any:
    """Returns `value` as a value of `kind`. Raises DataError for what cannot be cast, or is out of range."""
    if value is None:
        return None
    if not isinstance(value, _INPUT) or (isinstance(value, bytes) and _is_plain(schema) and kind is not Type.STRING):
        raise DataError(f"A {type(value).__name__} cannot be cast to {kind.value}.")
    if kind is Type.STRING:
        return _to_string(schema, value)
    if schema is not None and schema.name == DECIMAL and isinstance(value, bytes):
        value = decimal_of(schema, value)
    try:
        return _CASTS[kind](value)
    except (ValueError, OverflowError):
        raise DataError(f"{shown(value)} is out of range for {kind.value}.") from None


def _is_plain(schema: Schema | None) -> bool:
    return schema is None or schema.name != DECIMAL


def _to_string(schema: Schema | None, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Date):
        return iso_timestamp(value)
    if schema is not None and schema.name in {DATE, TIME, TIMESTAMP, DECIMAL}:
        return as_text(schema, value) or ""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return java_float(value) if schema is not None and schema.type is Type.FLOAT32 else java_double(value)
    return str(value)


def _to_int(bits: int) -> Callable[[Any], int]:
    bound = 1 << (bits - 1)

    def cast(value: Any) -> int:
        if isinstance(value, str):
            match = _WHOLE.fullmatch(value)
            if match is None or not -bound <= (number := int(match[1] + match[2])) < bound:
                raise ValueError(value)
            return number
        number = _whole(value, bits)
        return (number + bound) % (2 * bound) - bound

    return cast


def _whole(value: Any, bits: int) -> int:
    """Returns a number without the digits after its point, or one that ends in the same 64 bits."""
    if isinstance(value, float):
        return _of_float(value, max(bits, 32))
    return _of_decimal(value) if isinstance(value, Decimal) else int(value)


def _of_decimal(value: Decimal) -> int:
    """Returns the last 64 bits of the whole part, as BigDecimal.longValue does.

    `int` of a number with a large exponent would never end, and of a number like 1E-99999999 neither.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = "".join(map(str, digits[: len(digits) + min(0, exponent)] if -exponent < len(digits) else ())) or "0"
    last = int(whole[-_LAST:]) * pow(10, max(0, exponent), _MODULO) % _MODULO
    return -last if sign else last


def _of_float(value: float, bits: int) -> int:
    """Returns a float as a whole number of `bits` bits: cut off after the point, and at the bounds; NaN is 0."""
    if math.isnan(value):
        return 0
    bound = 1 << (bits - 1)
    return max(-bound, min(bound - 1, int(value))) if math.isfinite(value) else (bound - 1 if value > 0 else -bound)


def _to_float(value: Any) -> float:
    if isinstance(value, str):
        if not _FLOAT.fullmatch(value):
            raise ValueError(value)
        return float(value.strip().rstrip("fFdD"))
    return float(value)


def _to_boolean(value: Any) -> bool:
    if isinstance(value, str):
        return value.lower() == "true"
    return _whole(value, 64) != 0


_CASTS: Final[dict[Type, Callable[[Any], Any]]] = {
    **{kind: _to_int(bits) for kind, bits in BITS.items()},
    Type.FLOAT32: lambda value: float32(_to_float(value)),
    Type.FLOAT64: _to_float,
    Type.BOOLEAN: _to_boolean,
}
