"""Gives fields, or a whole key or value, another type (`Cast`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import BITS, DATE, DECIMAL, NUMBERS, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import convert_to_string, decimal_of, float32
from connectors.errors import DataError
from connectors.options import REQUIRED, Option, OptionsError
from connectors.rejection import shown
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, basics, field_value, require_map, require_struct, with_fields

_PURPOSE: Final = "cast types"
_LOGICAL: Final = {DATE, DECIMAL, TIME, TIMESTAMP}
_TYPES: Final = {**NUMBERS, "boolean": Type.BOOLEAN, "string": Type.STRING}


class Cast(SidedTransform):
    """Numbers, truth values and texts are cast into each other, bytes and dates into texts; a null stays null."""

    OPTIONS = (
        Option(
            "spec",
            "LIST",
            REQUIRED,
            f"`FIELD:TYPE`, several with commas between them, or one `TYPE` for the whole. Types: {', '.join(_TYPES)}.",
            importance="HIGH",
        ),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        pairs = dict(map(_pair, options["spec"]))
        self._whole: Type | None = pairs.pop("", None)
        self._fields: Final = pairs
        if not options["spec"] or (self._whole and pairs) or (self._whole and len(options["spec"]) > 1):
            raise OptionsError([("spec", "give the types of fields, or one type for the whole.")])
        self._updated = OfSchema(self._with_types)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if value is None:
            return record
        if schema is None:
            return self.new_record(record, None, self._without_schema(value))
        updated, casts = self._updated(schema)
        if self._whole is not None:
            return self.new_record(record, updated, cast_value(schema, value, self._whole))
        struct = require_struct(schema, value, _PURPOSE)
        made = {name: cast(field_value(field, struct, defaults=self._defaults)) for name, field, cast in casts}
        return self.new_record(record, updated, made)

    def _without_schema(self, value: Any) -> Any:
        if self._whole is not None:
            return cast_value(None, value, self._whole)
        entries = require_map(value, _PURPOSE)
        cast = {name: cast_value(None, entries.get(name), kind) for name, kind in self._fields.items()}
        return {**entries, **cast}

    def _with_types(self, schema: Schema) -> tuple[Schema, list[tuple[str, Field, Callable[[Any], Any]]]]:
        if self._whole is not None:
            kept = basics(schema) if schema.name not in _LOGICAL else Schema(type=schema.type)
            typed = _typed(schema, self._whole)
            return replace(kept, type=typed.type, optional=typed.optional, default=typed.default), []
        fields, casts = [], []
        for field in schema.fields:
            kind = self._fields.get(field.name)
            fields.append(field if kind is None else Field(field.name, _typed(field.schema, kind)))
            cast: Callable[[Any], Any] = _same if kind is None else partial(cast_value, field.schema, kind=kind)
            casts.append((field.name, field, cast))
        made = replace(with_fields(basics(schema), fields), optional=schema.optional, default=schema.default)
        return made, casts


def _pair(text: str) -> tuple[str, Type]:
    name, colon, kind = text.rpartition(":")
    if kind.strip().lower() not in _TYPES or (colon and not name.strip()):
        raise OptionsError([("spec", f'"{text}" is no FIELD:TYPE or TYPE; types are {", ".join(_TYPES)}.')])
    return name.strip(), _TYPES[kind.strip().lower()]


def _typed(schema: Schema, kind: Type) -> Schema:
    default = None if schema.default is None else cast_value(schema, schema.default, kind)
    return Schema(type=kind, optional=schema.optional, default=default)


def _same(value: Any) -> Any:
    return value


_INPUT: Final = (bool, int, float, str, bytes, Decimal)
_WHOLE: Final = re.compile(r"([+-]?)0*(\d{1,20})")
"""A whole number that may fit into 64 bits, in digits of any script, as Java reads them.

Python refuses to read more than 4,300 digits, zeros among them.
"""
_FLOAT: Final = re.compile(
    r"\s*+[+-]?(?:NaN|Infinity|(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][+-]?\d++)?[fFdD]?)\s*+", re.ASCII
)
# Java's long keeps the last 64 bits of a number.
_MODULO: Final = 1 << 64
_LAST: Final = 64
"""Digits of a whole number that its last 64 bits depend on: 10**64 is a multiple of 2**64."""


def cast_value(schema: Schema | None, value: Any, kind: Type) -> Any:
    """Returns `value` as a value of `kind`. Raises DataError for what cannot be cast, or is out of range."""
    if value is None:
        return None
    is_decimal = schema is not None and schema.name == DECIMAL
    if not isinstance(value, _INPUT) or (isinstance(value, bytes) and not is_decimal and kind is not Type.STRING):
        raise DataError(f"A {type(value).__name__} cannot be cast to {kind.value}.")
    if kind is Type.STRING:
        return convert_to_string(schema, value)
    if schema is not None and schema.name == DECIMAL and isinstance(value, bytes):
        value = decimal_of(schema, value)
    try:
        return _CASTS[kind](value)
    except (ValueError, OverflowError):
        raise DataError(f"{shown(value)} is out of range for {kind.value}.") from None


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
