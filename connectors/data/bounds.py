"""Bounds what a record or a schema may ask of the worker before anything is done with it: how deep, how long, how many.

Without them a few bytes take hours or gigabytes: a number with an exponent of eight digits, a schema of types that hold
each other twice, a list of empty objects with a thousand fields each. Each bound is far above what databases and
Kafka's own classes give; docs/converters.md has them.
"""

from __future__ import annotations

import re
from sys import getsizeof
from typing import Any, Final

from connectors.errors import DataError
from connectors.rejection import shown

MOST_READ: Final = 8 << 20
"""Bytes of a key or value that a step looks at, uncompressed, unless the consumer is set to fetch more at once. As
objects of Python JSON takes 50 times its bytes at most, and 0.5 s for each MiB."""
DEEPEST: Final = 200
"""Levels of a value without a schema. Each takes up to three of the 1,000 calls that Python lets be open at once."""
DEEPEST_SCHEMA: Final = 100
"""Levels of a schema, each of which takes up to six of those. Protobuf's own limit is 100, too."""
MOST_TYPES: Final = 20_000
"""Types of a schema in which each named type counts at each use: 0.1 s to make. The widest table that MySQL has
(4,096 columns) has 8,192 before and after a change."""
MOST_ABSENT: Final = 500_000
"""Fields of one record that it does not have itself, which only cost room (36 bytes) and time: 0.1 s in all."""
MOST_NUMBER_KEYS: Final = 10_000
"""Entries of one map of which the keys are numbers; several together have as many if their squares are added. Python
places a number in a dict by its own value, so numbers can be chosen that all take one way through it, whatever its
seed: an entry then costs time for each one before it, and 10,000 take 0.3 s. Texts and bytes are hashed with a seed."""
NUMBER_DIGITS: Final = 1_000
"""Digits of a Decimal that is written as a number. Kafka's JSON parser takes numbers of 1,000 characters."""
DECIMAL_BYTES: Final = 65_536
"""Bytes of a Decimal that becomes a text. PostgreSQL's longest numeric, of 147,455 digits, has 61,231."""
MOST_SCALED: Final = 32 << 20
"""Bytes of the Decimals of one record that were read as numbers: `1e999` has five characters, and 415 bytes."""
SHORT_DECIMAL: Final = 16
"""Bytes of a Decimal that count as none: those of 38 digits, the most of databases, take no more than an int."""
MOST_REFERENCES: Final = 500
"""Schemas that one refers to, and that those refer to: each is a question to the registry."""
LONGEST_SCHEMA: Final = 4 << 20
"""Characters of a schema together with all that it refers to, as many as one answer of a registry may have."""
MOST_SCHEMA_TEXT: Final = 16 << 20
"""Characters of all that one schema says of its types, and of what is made of that, at each use of a type: four times
those of the longest schema. A namespace that is said once stands in the name of each of its types."""
_MEMBER: Final = 8
"""Characters that a member of a list or an object counts as besides, so that there are at most two million: 1 s to go
through the dearest of them."""
EMPTY_PARTS: Final = 16
"""Parts of an Avro list's element that take no byte, of which a few bytes could claim any number."""
MOST_ROOM: Final = 256 << 20
"""Bytes of memory that the objects of one record may take, in addition to ROOM_A_BYTE for each byte of it."""
ROOM_A_BYTE: Final = 64
"""Twice what records of a number and a short text take in a list. A record of 1 MB may take 320 MB in all."""
COLLECTED: Final = 16
"""Bytes of memory that Python's garbage collector adds to each list, dict or tuple."""
LIST: Final = COLLECTED + getsizeof([])
"""Bytes of memory of an empty list."""
ELEMENT: Final = 9
"""Bytes of memory that an element adds to a list, with an eighth in reserve."""
ENTRY: Final = 100
"""Bytes of memory that an entry adds to a dict (36 to 110), without the text of its key."""
# The bound of Java's int.
_INT: Final = 1 << 31
_BITS_OF_DIGIT: Final = 3
"""Fewer bits than a digit of a number needs."""
_WHOLE: Final = re.compile(r"[+-]?\d{1,10}", re.ASCII)
"""A whole number that may fit into 32 bits: Python refuses to read more than 4,300 digits."""


def check_size(size: int, most: int) -> None:
    """Raises DataError for a key or value of more bytes than are read."""
    if size > most:
        raise DataError(
            f"It has {size} bytes, and a converter reads {most} at most.",
            "Have no transform look at it, or raise consumer.override.max.partition.fetch.bytes to its size; the "
            "worker needs 50 times as much memory then.",
        )


def is_int(number: int) -> bool:
    """Returns whether a whole number fits into Java's int, which has 32 bits."""
    return -_INT <= number < _INT


def whole_of(value: Any, what: str) -> int:
    """Returns a whole number of 32 bits that a schema says, as a number or as a text. Raises DataError."""
    text = value if isinstance(value, str) else str(value) if type(value) is int and is_int(value) else ""
    if not _WHOLE.fullmatch(text) or not is_int(int(text)):
        raise DataError(f"The {what} is a whole number of 32 bits, and this is {shown(value)}.")
    return int(text)


class Extent:
    """Counts what one schema becomes: its types, how deep it is now, and what is said of them, all at each use.

    What a definition says once is gone through at each of its uses, so the text of a schema bounds neither time nor
    memory. A reader of schemas adds all that a type says (`add_said`), before it looks at any of it.
    """

    def __init__(self) -> None:
        # Types of the whole schema that were begun; it never falls.
        self._types = 0
        # Types that are open at the moment, one within the other.
        self._depth = 0
        # Characters of what was said and made for the whole schema; it never falls.
        self._text = 0

    def add_text(self, length: int, count: int = 1) -> None:
        """Adds `count` texts of `length` characters, before they are made. Raises DataError for too many."""
        self._text += count * length
        if self._text > MOST_SCHEMA_TEXT:
            raise DataError(
                f"The names, texts, lists and defaults of the schema have more than {MOST_SCHEMA_TEXT} characters, "
                "counted at each use.",
                "Shorten its names, its namespace or its lists.",
            )

    def add_members(self, count: int) -> None:
        """Adds members of a list or an object, before they are gone through. Raises DataError for too many."""
        self.add_text(_MEMBER, count)

    def add_said(self, part: Any) -> None:
        """Adds a part of a schema in JSON, with all within it. Raises DataError for too much."""
        left = [part]
        while left:
            part = left.pop()
            if isinstance(part, str):
                self.add_text(len(part))
            elif isinstance(part, list):
                self.add_members(len(part))
                left += part
            elif isinstance(part, dict):
                self.add_members(len(part))
                left += part
                left += part.values()
            elif isinstance(part, int):
                self.add_text(part.bit_length() // _BITS_OF_DIGIT)  # it may become a text

    def __enter__(self) -> None:
        self._types += 1
        self._depth += 1
        if self._depth > DEEPEST_SCHEMA:
            raise DataError(f"The schema is nested deeper than {DEEPEST_SCHEMA} levels.", "Make it flatter.")
        if self._types > MOST_TYPES:
            raise DataError(f"The schema has more than {MOST_TYPES} types in all.", "Split it, or leave types out.")

    def __exit__(self, *_: object) -> None:
        self._depth -= 1


def check_depth(depth: int) -> None:
    """Raises DataError for a value that is deeper than DEEPEST."""
    if depth > DEEPEST:
        raise DataError(f"The value is nested deeper than {DEEPEST} levels.")


class RoomLeft:
    """Counts the memory of the objects of one record, before they are made."""

    def __init__(self) -> None:
        # Of the present record, its size and how many more bytes its objects may take; `begin` sets both.
        self._size, self._left = 0, MOST_ROOM

    def begin(self, size: int) -> None:
        """Begins another record, of `size` bytes."""
        self._size, self._left = size, MOST_ROOM + ROOM_A_BYTE * size

    def add(self, room: int) -> None:
        """Adds `room` bytes. Raises DataError for more than the record may take."""
        self._left -= room
        if self._left < 0:
            raise DataError(
                f"The record of {self._size} bytes would take more than "
                f"{(MOST_ROOM + ROOM_A_BYTE * self._size) >> 20} MiB of memory, for what its schema adds to each byte.",
                "Send shorter lists, or leave records that hold next to nothing out of the schema of their elements.",
            )


class Scaled:
    """Counts the bytes of the long Decimals of one record that were numbers: an exponent or scale says most digits."""

    def __init__(self) -> None:
        # How many more bytes the Decimals of the present record may have; `begin` sets it for each record.
        self._left = MOST_SCALED

    def begin(self) -> None:
        """Begins another record."""
        self._left = MOST_SCALED

    def add(self, size: int) -> None:
        """Adds a Decimal of `size` bytes. Raises DataError for more than MOST_SCALED in all."""
        self._left -= size
        if self._left < 0:
            raise DataError(
                f"The Decimals of the value, written as numbers, have more than {MOST_SCALED} bytes in all.",
                "Give them a smaller scale or exponent, or write them in Base64.",
            )


class Absences:
    """Counts the fields that one record does not have itself, and that are made nevertheless: nulls and defaults.

    Also counts what the maps of one record may take of which the keys are numbers.
    """

    def __init__(self) -> None:
        # How many more fields the present record may lack; `begin` sets it for each record.
        self._left = MOST_ABSENT
        # How many pairs of entries of one map the present record may still have, if all of them collide.
        self._pairs = MOST_NUMBER_KEYS**2

    def begin(self, size: int = 0) -> None:
        """Begins another record, of which up to `size` fields that are counted, too, may be there."""
        self._left = MOST_ABSENT + size
        self._pairs = MOST_NUMBER_KEYS**2

    def add_number_keys(self, count: int) -> None:
        """Adds a map of `count` entries with numbers as keys, before it is made. Raises DataError for too many."""
        self._pairs -= count * count
        if self._pairs < 0:
            raise DataError(
                "The maps of the value, or the enums of its schema, have too many entries whose keys are numbers: one "
                f"may have {MOST_NUMBER_KEYS}, ten a third of that each.",
                "Make the keys texts, or the map a list of structs.",
            )

    def add(self, count: int) -> None:
        """Adds fields. Raises DataError for more than MOST_ABSENT in all."""
        self._left -= count
        if self._left < 0:
            raise DataError(f"The value lacks more than {MOST_ABSENT} fields of its schema in all.")
