"""Writes values as one text each: values that mean the same have the same text, whatever they were encoded as.

The text is JSON's but for bytes, infinite numbers and NaN: members of objects by name, no spaces, ASCII, and numbers by
their exact value: 1, 1.0 and 10e-1 are one number.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping
from decimal import Decimal
from heapq import merge
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from connectors.data.pace import EVERY, paced
from connectors.data.schema import DECIMAL, UNION, Field, Schema, Type
from connectors.data.values import decimal_of

_DIGITS: Final = 400
"""A whole number of up to so many digits is written with all of them."""
_LARGE: Final = 10**_DIGITS
_FEW: Final = 16
"""Members of a struct that is written at once, which is not longer than its name and _SHORT characters for each."""
_SHORT: Final = 1_024
_LONGS: Final = 1 << 63
_PLAIN: Final = msgspec.json.Encoder(order="sorted")
"""What writes such a struct as `_Text` does, in a tenth of the time."""


class Branch(NamedTuple):
    """A value of a union that is not told from the others by itself, and the name of its type."""

    name: str
    value: Any


class TooLongError(Exception):
    """A text would have more characters than it may; `most` is how many."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self.most = most


def text_of(value: Any, most: int = sys.maxsize) -> str:
    """Returns the text of `value`: None, bool, str, bytes, int, float, Decimal, Branch, lists, dicts by text.

    Raises TooLongError as soon as it would have more than `most` characters: they are counted as they are written.
    """
    if type(value) is dict and _is_short_and_plain(value):
        written = _PLAIN.encode(value).decode()
        if len(written) <= most:
            return written
    text = _Text(most)
    text.write(value)
    return "".join(text.parts)


def _is_short_and_plain(value: dict[Any, Any]) -> bool:
    """Returns whether `value` is of a few short texts of ASCII and numbers of 64 bits, as the keys of most tables."""
    if len(value) > _FEW:
        return False
    for name, member in value.items():
        if type(name) is not str or not _is_short(name):
            return False
        kind = type(member)
        if not (-_LONGS <= member < _LONGS if kind is int else kind is str and _is_short(member)):
            return False
    return True


def _is_short(text: str) -> bool:
    return len(text) <= _SHORT and text.isascii() and text.isprintable()  # JSON has two forms of the others


class _Text:
    """The text of one value while it is written, of no more characters than it may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        # How many more characters the whole text may have.
        self._left = most
        # The text so far, in pieces.
        self.parts: list[str] = []

    def write(self, value: Any) -> None:
        """Adds the text of `value`: one call for each level of it, as Python bounds the calls. Raises TooLongError."""
        match value:
            case Branch():
                self._add_quoted(value.name)
                self.write(value.value)
            case list():
                self._add("[")
                for at, item in enumerate(paced(value)):
                    self._add("," if at else "")
                    self.write(item)
                self._add("]")
            case dict():
                self._add("{")
                for at, name in enumerate(paced(_in_order(value))):
                    self._add("," if at else "")
                    self._add_quoted(name)
                    self._add(":")
                    self.write(value[name])
                self._add("}")
            case _:
                self._add_leaf(value)

    def _add_leaf(self, value: Any) -> None:
        if isinstance(value, str):
            self._add_quoted(value)
        elif isinstance(value, bytes):
            self._check(2 * len(value))
            self._add(f'b"{value.hex()}"')
        elif value is None or isinstance(value, bool):
            self._add(json.dumps(value))
        else:
            self._add(_number(value))

    def _add_quoted(self, text: str) -> None:
        self._check(len(text))  # a text that is said once may be meant often: it is not written only to be counted
        self._add(json.dumps(text))

    def _add(self, text: str) -> None:
        self._check(len(text))
        self._left -= len(text)
        self.parts.append(text)

    def _check(self, length: int) -> None:
        if length > self._left:
            raise TooLongError(self._most)


def _in_order(names: Collection[str]) -> list[str]:
    """Returns `names` sorted. Many are sorted in parts: no other thread gets on while a list is, 1 s for a million."""
    if len(names) <= EVERY:
        return sorted(names)
    rest = iter(names)
    return list(merge(*(sorted(part) for part in iter(lambda: list(islice(rest, EVERY)), []))))


def _number(value: float | Decimal) -> str:
    """Returns the text of a number, by its value alone."""
    if isinstance(value, int):
        if -_LARGE < value < _LARGE:
            return str(value)
        value = Decimal(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            return str(value)
        value = Decimal(value)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    trimmed = text.rstrip("0")
    exponent += len(text) - len(trimmed)
    if not trimmed:
        return "0"
    minus = "-" if sign else ""
    if exponent >= 0 and len(trimmed) + exponent <= _DIGITS:
        return f"{minus}{trimmed}{'0' * exponent}"
    return f"{minus}{trimmed}E{exponent}"


def plain(schema: Schema | None, value: Any) -> Any:
    """Returns Connect's `value` of `schema` as `text_of` takes it.

    What schemas of one subject may differ in is left out: names of types, but in unions, widths of numbers, and fields
    that are null and may be missing. A field with another default stays: of two schemas each may have its own.
    """
    if value is None or schema is None:
        return value
    match schema.type:
        case Type.STRUCT:
            return _struct(schema, value)
        case Type.ARRAY:
            return [plain(schema.value_schema, item) for item in value]
        case Type.MAP:
            return _map(schema, value)
        case _:
            return decimal_of(schema, value) if schema.name == DECIMAL else value


def _struct(schema: Schema, value: Mapping[str, Any]) -> Any:
    held = [(member, value.get(member.name)) for member in schema.fields]
    if schema.name == UNION:
        return next((_branch(schema, field, part) for field, part in held if part is not None), None)
    return {field.name: plain(field.schema, part) for field, part in held if not (part is field.schema.default is None)}


def _branch(union: Schema, field: Field, value: Any) -> Any:
    """Returns a value of a union, with the name of its type if another type of it could have the same text."""
    plain_value, shape = plain(field.schema, value), _shape(field.schema)
    alike = [branch.schema for branch in union.fields if _shape(branch.schema) == shape]
    if len(alike) == 1 or (shape != "object" and not any(schema.name for schema in alike)):
        return plain_value
    full = field.schema.name or field.name
    return Branch(full if full.rpartition(".")[2] == field.name else field.name, plain_value)


def _shape(schema: Schema) -> str:
    """Returns of which kind the text of a value is."""
    if schema.type in {Type.STRUCT, Type.MAP}:
        return "object"
    if schema.type in {Type.STRING, Type.BOOLEAN, Type.ARRAY} or (schema.type is Type.BYTES and schema.name != DECIMAL):
        return schema.type.value
    return "number"


def _map(schema: Schema, value: Mapping[Any, Any]) -> Any:
    pairs = [(plain(schema.key_schema, name), plain(schema.value_schema, item)) for name, item in value.items()]
    if all(isinstance(name, str) for name, _ in pairs):
        return dict(pairs)
    return sorted(([name, item] for name, item in pairs), key=text_of)


def has_one_encoding(schema: Schema | None) -> bool:
    """Returns whether values of `schema` with one text are equal; not those with a float, which has two zeros.

    Nor unions of several types, nor maps, which have no order, nor Decimals, as their bytes may begin with zeros.
    """
    if schema is None:
        return True
    match schema.type:
        case Type.STRUCT:
            return schema.name != UNION and all(has_one_encoding(field.schema) for field in schema.fields)
        case Type.ARRAY:
            return has_one_encoding(schema.value_schema)
        case Type.FLOAT32 | Type.FLOAT64 | Type.MAP:
            return False
        case _:
            return schema.name != DECIMAL
