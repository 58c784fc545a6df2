"""Finds what a record is ordered by if that is a field of its value (`compaction.order=field:PATH`).

The value is looked into as it was read, before any transform: Debezium's delete event has the field, the tombstone that
a transform makes of it has none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from compactor.model.order import BARE, FIELD
from connectors.converters.names import CONVERTERS
from connectors.data.schema import DECIMAL, Schema, Type
from connectors.data.values import decimal_of
from connectors.errors import DataError

ORDER: Final = "compaction.order"
MOST: Final = 1_000
"""Bytes of a text, or digits of a number, that records are ordered by. What has more is no value: a header of each
record that is published has it."""
_BITS: Final = 3_322
"""Bits that a number of MOST digits has at most: Python takes long to write more digits."""
_MOST_EXPONENT: Final = 499_999
"""The largest power of ten that is no value; with 500,000 added to it, it has six digits or fewer."""
_NEEDS_FIELDS: Final = (
    "values have fields only if a converter reads them: set value.converter in the same file to keyfold.Json, "
    "keyfold.JsonSchema, keyfold.Avro or keyfold.Protobuf, or another name of these."
)
_PLAIN: Final = 40
"""Powers of ten up to which a number is shown without its exponent: it may have half a million digits."""
_COMPLEMENTS: Final = str.maketrans("0123456789", "9876543210")


def path_of(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the names of the field that records are ordered by, from the outermost on; none if it is no field."""
    word, colon, path = settings.get(ORDER, "").strip().partition(":")
    return tuple(path.split(".")) if colon and f"{word.strip().lower()}:" == FIELD else ()


def order_faults(settings: Mapping[str, str], converter: str) -> Iterator[tuple[str, str]]:
    """Yields what keeps values from having the field; `converter` is the name of what reads them."""
    if path_of(settings):
        with suppress(ValueError):  # a converter that is not known is a fault of its own
            if not CONVERTERS.find(converter.strip()).of.load().HAS_FIELDS:
                yield ORDER, _NEEDS_FIELDS


class OrderField:
    """Finds the field of one connector's values at `path`."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    @property
    def outermost(self) -> str:
        """The field of the value itself that it is in."""
        return self._path[0]

    def of(self, schema: Schema | None, value: Any, written: bytes | None) -> bytes | None:
        """Returns the `order_value` (`record.RUN`) of a record with `value`, of which `written` is kept."""
        field = self._find(value)
        own = sortable(self._decimal(schema, field) if isinstance(field, bytes) else field)
        return BARE if own is None and written is None else own

    def _find(self, value: Any) -> Any:
        for name in self._path:
            if not isinstance(value, dict):
                return None
            value = value.get(name)
        return value

    def _decimal(self, schema: Schema | None, data: bytes) -> Decimal | None:
        """Returns the number that bytes are by their schema; None if they are none."""
        for name in self._path:
            if schema is None:
                return None
            field = schema.field(name) if schema.type is Type.STRUCT else None
            schema = schema.value_schema if field is None else field.schema
        if schema is None or schema.name != DECIMAL:
            return None
        with suppress(DataError):
            return decimal_of(schema, data)
        return None


def sortable(value: Any) -> bytes | None:
    """Returns bytes for a number or a text that sort as these do, numbers before texts; None for anything else.

    None, too, for a text of more than MOST bytes of UTF-8, and for a number that is not finite, has more than MOST
    digits, or is too large or too near to 0 for six digits of its power of ten.
    """
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass") if len(value) <= MOST else None
        return None if data is None or len(data) > MOST else b"t" + data
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, int):
        return _sortable(value < 0, str(abs(value)), 0) if value.bit_length() <= _BITS else None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = Decimal(repr(value))
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, str) or len(digits) > MOST:
        return None
    return _sortable(bool(sign), "".join(map(str, digits)), exponent)


def shown(value: bytes) -> str:
    """Returns the number or text that `sortable` has written; other bytes in hexadecimal digits."""
    kind, own = value[:2], value[2:].removesuffix(b"~").decode("utf-8", "replace")
    if value[:1] == b"t":
        return value[1:].decode("utf-8", "replace")
    if kind not in (b"n0", b"n2"):
        return "0" if value == b"n1" else value.hex()
    try:
        own = own.translate(_COMPLEMENTS) if kind == b"n0" else own
        digits = tuple(map(int, own[6:]))
        number = Decimal((int(kind == b"n0"), digits, int(own[:6]) - _MOST_EXPONENT - 1 - len(digits)))
    except ValueError:  # it comes from the storage, which may hold anything
        return value.hex()
    return f"{number:f}" if abs(number.adjusted()) < _PLAIN else str(number)


def _sortable(is_negative: bool, digits: str, exponent: int) -> bytes | None:  # noqa: FBT001  # as Decimal has them
    """Writes sign, power of ten and digits, all with the greater of two later; of negative ones the complements."""
    plain = digits.lstrip("0")
    power = exponent + len(plain)
    if not plain:
        return b"n1"
    if abs(power) > _MOST_EXPONENT or len(plain) > MOST:
        return None
    text = f"{power + _MOST_EXPONENT + 1:06d}{plain.rstrip('0')}"
    # Of two negative numbers the one with more digits is the lower: "~" is higher than all of them.
    return f"n0{text.translate(_COMPLEMENTS)}~".encode() if is_negative else f"n2{text}".encode()
