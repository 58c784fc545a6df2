"""Puts a value that says nothing in the place of fields (`MaskField`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

from connectors.data.kept import OfSchema
from connectors.data.record import ConnectRecord
from connectors.data.schema import BITS, DECIMAL, Field, Schema, Type
from connectors.data.values import Date, bytes_of_int, scale_of
from connectors.errors import DataError
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Side, SidedTransform
from connectors.transforms.values import REPLACE_NULL, check_some, require_map, require_struct

_PURPOSE: Final = "mask fields"
_NUMBER: Final = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})([eE][+-]?\d{1,9})?", re.ASCII)
_NO_LOW_BITS: Final = 64
"""From this exponent on a power of ten has no bit among its lowest 64."""
_NOTHING: Final[dict[type, Any]] = {
    bool: False,
    int: 0,
    float: 0.0,
    str: "",
    Decimal: Decimal(0),
    Date: Date(0),
    list: [],
    dict: {},
}


def _not_empty(text: str) -> str | None:
    return None if text else "it may not be empty; leave it out for a value that says nothing."


class MaskField(SidedTransform):
    """Numbers become 0, texts empty, lists and maps too; or all become `replacement`. A null stays null."""

    OPTIONS = (
        Option("fields", "LIST", REQUIRED, "The fields.", check=check_some, importance="HIGH"),
        Option("replacement", "STRING", None, "What takes their place: numbers and texts only.", check=_not_empty),
        REPLACE_NULL,
    )

    def __init__(self, options: Mapping[str, Any], side: Side) -> None:
        super().__init__(options, side)
        self._fields = frozenset(options["fields"])
        self._replacement: str | None = options["replacement"]
        self._masks = OfSchema(self._masks_of)

    @property
    def added(self) -> int:
        """See `Transform.added`: the replacement stands in each of the fields."""
        return super().added + len(self._fields) * len(self._replacement or "")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        schema, value = self.operating(record)
        if schema is None:
            entries = require_map(value, _PURPOSE)
            masked = {name: self._masked(entries.get(name)) for name in self._fields}  # also what is not there, as null
            return self.new_record(record, None, {**entries, **masked})
        struct = require_struct(schema, value, _PURPOSE)
        copied = self.values_of(schema.fields, struct)
        for name, mask in self._masks(schema):
            copied[name] = mask(copied[name])
        return self.new_record(record, schema, copied)

    def _masked(self, value: Any) -> Any:
        if value is None:
            return None
        kind = type(value)
        if self._replacement is None:
            if kind not in _NOTHING:
                raise DataError(f"A {kind.__name__} cannot be masked.")
            return _NOTHING[kind]
        if kind is str:
            return self._replacement
        if kind is int:
            return _whole(self._replacement, 64)
        if kind in {float, Decimal}:
            return kind(_decimal(self._replacement))
        raise DataError(f"A {kind.__name__} cannot be masked with a replacement.")

    def _masks_of(self, schema: Schema) -> list[tuple[str, Callable[[Any], Any]]]:
        return [(field.name, self._mask_of(field)) for field in schema.fields if field.name in self._fields]

    def _mask_of(self, field: Field) -> Callable[[Any], Any]:
        mask = self._mask_of_type(field.schema)
        return lambda value: None if value is None else mask(value)

    def _mask_of_type(self, schema: Schema) -> Callable[[Any], Any]:
        """Returns what masks values of `schema`, in their encoded form."""
        bits, text = BITS.get(schema.type), self._replacement
        if schema.name == DECIMAL:
            return lambda _: b"\0" if text is None else _of_scale(text, scale_of(schema))
        if bits is not None and text is not None:
            if schema.name is not None and schema.name.startswith("org.apache.kafka.connect.data."):
                return lambda _: _not_masked("A date cannot be masked with a replacement.")
            return lambda _: _whole(text, bits)
        if schema.type is Type.BYTES:
            return lambda _: _not_masked("A field of bytes cannot be masked.")
        if schema.type is Type.STRUCT:
            return lambda _: _not_masked("A field of struct cannot be masked.")
        return self._masked


def _whole(text: str, bits: int) -> int:
    """Returns the replacement as a whole number: cut after the point, of a larger one the lowest bits, as in Java."""
    number = _decimal(text)
    _, _, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    whole = 0 if exponent >= _NO_LOW_BITS or number.adjusted() < 0 else int(number)
    bound = 1 << (bits - 1)
    return (whole + bound) % (2 * bound) - bound


def _of_scale(text: str, scale: int) -> bytes:
    number = _decimal(text)
    sign, digits, exponent = number.as_tuple()
    if exponent != -scale:
        raise DataError(
            f'The replacement "{text:.100}" has another scale than the Decimal, {scale}.',
            "Write it with as many digits behind the point.",
        )
    unscaled = int("".join(map(str, digits)))
    return bytes_of_int(-unscaled if sign else unscaled)


def _decimal(text: str) -> Decimal:
    if not _NUMBER.fullmatch(text):
        raise DataError(f'The replacement "{text:.100}" is no number.')
    return Decimal(text)


def _not_masked(why: str) -> Any:
    raise DataError(why)
