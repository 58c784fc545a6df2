"""Makes Arrow's arrays of values without parts, of the form that they have with a schema (`connectors.data.schema`).

Each function takes a list in which None stands for a null, or an array. It raises DataError, or what Arrow raises, if a
value does not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from compactor.ports import LAST_TIME_MS
from connectors.data.bounds import MOST_SCALED
from connectors.errors import DataError

MOMENT: Final = pa.timestamp("us", "UTC")
_NANOS: Final = r"(\.\d{6})\d{1,3}"
"""The digits of a second of which databases have up to nine."""
_DECIMAL_BYTES: Final = 16
_LONGEST: Final = 16 << 10
"""Bytes of an unscaled value that is written out: Python takes the square of them, 16 ms for these."""
_MOST_SCALE: Final = 20_000
"""Digits after the point of a number that becomes text: PostgreSQL has up to 16,383."""
_DAY: Final = {pa.time32("ms"): 86_400_000, pa.time64("us"): 86_400_000_000, pa.time64("ns"): 86_400_000_000_000}


Values: TypeAlias = list[Any] | pa.Array
"""Values of Python, or Arrow's array of them in their encoded form."""


def plain(values: Values, arrow: pa.DataType) -> pa.Array:
    """Returns an array of values of a type that is its own encoded form."""
    return values.cast(arrow) if isinstance(values, pa.Array) else pa.array(values, arrow)


def _listed(values: Values) -> list[Any]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


def times(arrow: pa.DataType) -> Callable[[Values], pa.Array]:
    """Returns what makes dates, times of day or timestamps of numbers."""
    width = pa.int32() if arrow.bit_width == pa.int32().bit_width else pa.int64()
    bounds = _bounds(arrow)

    def made(values: Values) -> pa.Array:
        numbers = plain(values, width)
        if bounds is not None and numbers.null_count < len(numbers):
            least, most = pc.min_max(numbers).as_py().values()
            if least < bounds[0] or most > bounds[1]:
                raise DataError(f"A number is no {arrow}: it lies beyond what that can tell.")
        return numbers.view(arrow)

    return made


def _bounds(arrow: pa.DataType) -> tuple[int, int] | None:
    if arrow in _DAY:
        return 0, _DAY[arrow] - 1
    return (-LAST_TIME_MS, LAST_TIME_MS) if pa.types.is_timestamp(arrow) and arrow.unit == "ms" else None


def moments(values: Values) -> pa.Array:
    """Makes timestamps of texts with a zone (Debezium's ZonedTimestamp): to the microsecond, further digits are cut."""
    return pc.replace_substring_regex(plain(values, pa.string()), _NANOS, r"\1").cast(MOMENT)


def decimals(arrow: pa.DataType) -> Callable[[Values], pa.Array]:
    """Returns what makes decimals of unscaled values."""
    most = 10**arrow.precision

    def made(values: Values) -> pa.Array:
        unscaled = _listed(values)
        data = b"".join([_little(value, most) for value in unscaled])
        validity = pa.array([value is not None for value in unscaled], pa.bool_()).buffers()[1]
        return pa.Array.from_buffers(arrow, len(values), [validity, pa.py_buffer(data)])

    return made


def _little(value: bytes | None, most: int) -> bytes:
    if value is None:
        return bytes(_DECIMAL_BYTES)
    number = int.from_bytes(value, "big", signed=True) if len(value) <= _LONGEST else most
    if not -most < number < most:
        raise DataError("A decimal has more digits than its column.")
    return number.to_bytes(_DECIMAL_BYTES, "little", signed=True)


def decimal_texts(scale: int) -> Callable[[Values], pa.Array]:
    """Returns what makes texts of unscaled values with one `scale`."""
    return lambda values: _texts((None if value is None else (scale, value)) for value in _listed(values))


def variable_decimals(values: Values) -> pa.Array:
    """Makes texts of Debezium's VariableScaleDecimal, each with all of its digits."""
    return _texts(None if value is None else (value.get("scale"), value.get("value")) for value in _listed(values))


def _texts(pairs: Iterable[tuple[Any, Any] | None]) -> pa.Array:
    """Makes texts of pairs of scale and unscaled value; a pair of nothing is null."""
    texts: list[str | None] = []
    left = MOST_SCALED
    for pair in pairs:
        if pair is None or pair[1] is None:
            texts.append(None)
            continue
        scale, data = pair[0] or 0, pair[1]
        # A byte is less than three digits; the digits are counted before they are made.
        left -= abs(scale) + 3 * len(data)
        if len(data) > _LONGEST or abs(scale) > _MOST_SCALE or left < 0:
            raise DataError("A decimal has too many digits to be written out.")
        texts.append(_digits(int.from_bytes(data, "big", signed=True), scale))
    return pa.array(texts, pa.string())


def _digits(number: int, scale: int) -> str:
    digits = str(Decimal(abs(number))) + "0" * (max(0, -scale) if number else 0)
    sign = "-" if number < 0 else ""
    if scale <= 0:
        return sign + digits
    padded = digits.rjust(scale + 1, "0")
    return f"{sign}{padded[:-scale]}.{padded[-scale:]}"


def empty_structs(values: Values) -> pa.Array:
    """Makes texts of structs without fields, which Parquet cannot hold."""
    return pa.array([None if value is None else "{}" for value in _listed(values)], pa.string())
