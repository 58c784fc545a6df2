"""Reckons how long a value becomes before it is written: what a schema or a file says once may stand in it many times.

A value refers to such texts without having a copy of each, so it is small until it is written: a default of 200,000
characters in a list of 3,000 empty objects, the name of a field in each element, the symbol of an enum for each byte.
Only a value of which a cheap bound is too high is walked through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from connectors.data.bounds import NUMBER_DIGITS
from connectors.data.kept import OfSchema
from connectors.data.pace import paced
from connectors.data.schema import DECIMAL, Schema, Type
from connectors.errors import DataError

MOST_WRITTEN: Final = 32 << 20
"""Characters that a record may be written with, in addition to GROWTH for each byte that was read: 32 times what a
broker takes unless it is set otherwise. The 500,000 fields that a record may lack take 10 MB as nulls in JSON."""
GROWTH: Final = 4
"""How many characters each byte of the record may become: bytes take 1.4 in Base64, a Decimal's 2.4 as digits."""
MOST_MADE: Final = 8 << 20
"""Characters of the names that a step makes of one record, or of one schema: those of 100,000 fields of 80 each."""
_LEAF: Final = 8
"""Characters of a null or a truth value, of quotes, and of what stands between two members."""
_NUMBER: Final = 32
"""Characters of the longest number of 64 bits, or of a date."""
_OWN: Final = 3
"""How many characters a byte of a record may become that is written once."""
_WIDE: Final = frozenset({Type.INT8, Type.INT16, Type.INT32, Type.INT64, Type.FLOAT32, Type.FLOAT64})

Count = Callable[[Any], int]
"""Returns how many characters the elements of all lists and maps in a value take, apart from their own texts."""


class _Length(NamedTuple):
    """What a schema adds to each value: `once`, and `lists` for each element; None if there are no lists in it."""

    once: int
    lists: Count | None


class Room:
    """How long the values of one record may become. `added`: see `Transform.added`; `copies`: `Transform.copies`."""

    def __init__(self, added: int = 0, copies: int = 1) -> None:
        self._length = OfSchema(_length)
        # Characters that are left for what a schema adds to the texts of a record: so many, and more for each byte.
        self._left = MOST_WRITTEN - added
        self._left_a_byte = GROWTH - _OWN * copies
        # The schema that was last, as that of most records is, and what it adds.
        self._last: Schema | None = None
        self._last_length = _Length(0, None)

    def check(self, size: int, schema: Schema | None, value: Any) -> None:
        """Checks a value before it is written. `size`: the bytes of the record that was read.

        Raises DataError for one that becomes longer than a record may be.
        """
        length = 0
        if schema is not None:
            if schema is not self._last:
                self._last_length = self._length(schema)
                self._last = schema
            length, lists = self._last_length
            if lists is not None:
                length += lists(value)
        if length > self._left + self._left_a_byte * size:
            most = most_written(size)
            if written_length(schema, value, most) > most:
                raise too_long(size)

    def holds(self, schema: Schema, most: int) -> bool:
        """Returns whether `check` takes all values of `schema`, of records of at most `most` bytes.

        An element of a list has a byte at least. Raises DataError for a schema that is too large.
        """
        longest = self._length(schema).once + most * _dearest_element(schema)
        return longest <= self._left + min(0, self._left_a_byte * most)


def most_written(size: int) -> int:
    """Returns how many characters a record of `size` bytes may be written with."""
    return MOST_WRITTEN + GROWTH * size


def too_long(size: int) -> DataError:
    """Returns the error of a record of `size` bytes that becomes longer than it may be."""
    return DataError(
        f"A record of {size} bytes would become one of more than {most_written(size)} characters, which is the most.",
        "Shorten what is repeated in it: defaults, names of fields and symbols of its schema, texts of the transforms.",
    )


class Made:
    """Counts the characters of texts that a step makes, before it makes them."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._left = MOST_MADE  # how many more characters may be made

    def add(self, count: int, length: int) -> None:
        """Adds `count` texts of up to `length` characters. Raises DataError for more than MOST_MADE in all."""
        self._left -= count * length
        if self._left < 0:
            raise DataError(
                f"{self._what} would have more than {MOST_MADE} characters in all.", "Shorten them, or have fewer."
            )


def written_length(schema: Schema | None, value: Any, most: int) -> int:
    """Returns about how many characters a value takes once it is written; it stops counting beyond `most`."""
    if value is None and schema is not None:
        value = schema.default
    if isinstance(value, str):
        return len(value) + _LEAF
    if isinstance(value, bytes):
        return (_OWN if schema is None or schema.name == DECIMAL else 2) * len(value) + _LEAF
    if isinstance(value, dict):
        return _length_of_dict(schema, value, most)
    if isinstance(value, list):
        inner, length = schema.value_schema if schema is not None else None, _LEAF
        for item in paced(value):
            length += written_length(inner, item, most - length)
            if length > most:
                break
        return length
    return _LEAF if value is None or isinstance(value, bool) else _NUMBER


def _length_of_dict(schema: Schema | None, value: dict[Any, Any], most: int) -> int:
    length = _LEAF
    if schema is not None and schema.type is Type.STRUCT:
        for field in schema.fields:
            length += len(field.name) + written_length(field.schema, value.get(field.name), most - length)
            if length > most:
                break
        return length
    keys, values = (schema.key_schema, schema.value_schema) if schema is not None else (None, None)
    for name, item in paced(value.items()):
        length += written_length(keys, name, most) + written_length(values, item, most - length)
        if length > most:
            break
    return length


def _length(schema: Schema) -> _Length:
    return _Length(_once(schema), _lists(schema))


def _once(schema: Schema) -> int:
    """Returns the characters of one value of `schema` that no byte of a record stands for; lists in it are empty."""
    length = NUMBER_DIGITS if schema.name == DECIMAL else _NUMBER if schema.type in _WIDE else _LEAF
    if schema.parameters:  # the symbols of an enum are among them
        length += _NUMBER + max(map(len, (*schema.parameters, *schema.parameters.values())))
    if schema.default is not None:
        length += written_length(schema, schema.default, MOST_WRITTEN)
    return length + sum(len(field.name) + _once(field.schema) for field in schema.fields)


def _dearest_element(schema: Schema) -> int:
    """Returns the most characters that an element of a list or a map in `schema` takes, apart from its own texts."""
    inner = [each for each in (schema.key_schema, schema.value_schema) if each is not None]
    parts = (*inner, *(field.schema for field in schema.fields))
    return max([sum(map(_once, inner)), *map(_dearest_element, parts)])


def _lists(schema: Schema) -> Count | None:
    if schema.type is Type.STRUCT:
        return _lists_of_struct(schema)
    if schema.value_schema is None:
        return None
    once, inner = _once(schema.value_schema), _lists(schema.value_schema)
    if schema.key_schema is not None:
        once += _once(schema.key_schema)
    if inner is None:
        return lambda value: len(value) * once if value else 0
    is_map = schema.type is Type.MAP

    def count(value: Any) -> int:
        return len(value) * once + sum(map(inner, value.values() if is_map else value)) if value else 0

    return count


def _lists_of_struct(schema: Schema) -> Count | None:
    counts = ((field.name, _lists(field.schema)) for field in schema.fields)
    inner = [(name, count) for name, count in counts if count is not None]
    if not inner:
        return None

    def count(value: Any) -> int:
        return sum([count_of(value.get(name)) for name, count_of in inner]) if value else 0

    return count
