"""Casts single values as Java's numbers are cast: whole numbers keep their lowest bits, others are cut at the bounds.

On its own because it is the one part of Cast that knows Java's arithmetic.
"""

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

_INPUT: Final = (bool, int, float, str, bytes, Decimal)
_WHOLE: Final = re.compile(r"[+-]?\d+")  # of any script, as Java reads them
_FLOAT: Final = re.compile(r"\s*[+-]?(NaN|Infinity|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[fFdD]?)\s*", re.ASCII)


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
        raise DataError(f"{value!r:.100} is out of range for {kind.value}.") from None


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
            if not _WHOLE.fullmatch(value) or not -bound <= int(value) < bound:
                raise ValueError(value)
            return int(value)
        number = _of_float(value, max(bits, 32)) if isinstance(value, float) else int(value)
        return (number + bound) % (2 * bound) - bound

    return cast


def _of_float(value: float, bits: int) -> int:
    """Returns a float as a whole number of `bits` bits: cut off behind the point, and at the bounds; NaN is 0."""
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
    return (_of_float(value, 64) if isinstance(value, float) else int(value)) != 0


_CASTS: Final[dict[Type, Callable[[Any], Any]]] = {
    **{kind: _to_int(bits) for kind, bits in BITS.items()},
    Type.FLOAT32: lambda value: float32(_to_float(value)),
    Type.FLOAT64: _to_float,
    Type.BOOLEAN: _to_boolean,
}
