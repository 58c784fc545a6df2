"""Makes columns of dates, times, decimals and small numbers of values without a schema, as plain JSON has them.

A date or time is a text of ISO 8601, or the number that Avro has for it; a decimal is a text or a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from connectors.data.values import bytes_of_decimal
from connectors.errors import DataError
from connectors.typed import leaves

_NUMBER: Final = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)
"""A decimal's text: columns have 38 digits. Arrow itself ends the process at an exponent of nine digits."""
_LONGEST_TIME: Final = 40
"""Characters of the text of a date or time."""
_MIDNIGHT: Final = "1970-01-01T"
_NONE: Final = type(None)
_KINDS: Final[dict[pa.DataType, frozenset[type]]] = {
    pa.bool_(): frozenset({bool, _NONE}),
    **{arrow: frozenset({int, _NONE}) for arrow in (pa.int8(), pa.int16(), pa.int32(), pa.int64())},
    pa.float64(): frozenset({int, float, _NONE}),
    pa.string(): frozenset({str, _NONE}),
}
"""What of values without a schema a column takes. Arrow itself would cut 1.5 to 1, and take True for a number."""

ToArray = Callable[[list[Any]], pa.Array]


def leaf(kind: pa.DataType) -> tuple[frozenset[type], ToArray]:
    """Returns which types of Python a column of `kind` takes, and what makes arrays of them: of others only nulls."""
    if kind == pa.float32():
        return _KINDS[pa.float64()], _float32
    if pa.types.is_decimal128(kind):
        return _KINDS[pa.float64()] | {str}, _decimals(kind)
    if pa.types.is_temporal(kind):
        return frozenset({int, str, _NONE}), _times(kind)
    return _KINDS.get(kind, frozenset({_NONE})), lambda values: pa.array(values, kind)


def _float32(values: list[Any]) -> pa.Array:
    """Makes 32-bit floats of numbers that are not beyond them."""
    made = pa.array(values, pa.float64()).cast(pa.float32())
    if pc.any(pc.is_inf(made)).as_py():
        raise DataError("A number lies beyond a float of 32 bits.")
    return made


def _decimals(kind: pa.Decimal128Type) -> ToArray:
    """Returns what makes decimals of texts and numbers; a number of JSON with a point is the nearest double."""
    made = leaves.decimals(kind)
    return lambda values: made([None if value is None else _unscaled(value, kind.scale) for value in values])


def _unscaled(value: Any, scale: int) -> bytes:
    text = str(value)
    if not _NUMBER.fullmatch(text):
        raise DataError("A text does not fit a column of decimals.")
    return bytes_of_decimal(scale, Decimal(text))


def _times(kind: pa.DataType) -> ToArray:
    """Returns what makes dates, times of day or timestamps of texts and numbers."""
    of_numbers = leaves.times(kind)

    def made(values: list[Any]) -> pa.Array:
        texts = [value if isinstance(value, str) else None for value in values]
        numbers = of_numbers([value if isinstance(value, int) else None for value in values])
        lengths = [len(text) for text in texts if text is not None]
        if not lengths:
            return numbers
        if max(lengths) > _LONGEST_TIME:
            raise DataError("A text does not fit a column of times.")
        return pc.coalesce(_parsed(pa.array(texts, pa.string()), kind), numbers)

    return made


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_time(kind):
        return texts.cast(kind)
    moments = pc.binary_join_element_wise(_MIDNIGHT, texts, "").cast(pa.timestamp(kind.unit))
    numbers = moments.view(pa.int64())
    return (numbers.cast(pa.int32()) if kind.bit_width == pa.int32().bit_width else numbers).view(kind)
