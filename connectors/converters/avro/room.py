"""Reckons how much memory a record of Avro takes as objects of Python, before it is read.

A byte of Avro may stand for many objects: a boolean within fifty records, of which each holds nothing but the next. The
schema says how much a byte takes at most; only a record that could exceed its bound by that is counted through.
"""

from __future__ import annotations

import math
from contextlib import suppress
from sys import getsizeof
from typing import Any, Final, NamedTuple

from connectors.converters.avro.schemas import OfTypes
from connectors.converters.avro.skips import Skip, skip_of
from connectors.data.bounds import COLLECTED, ELEMENT, ENTRY, LIST, MOST_ROOM, ROOM_A_BYTE, RoomLeft


class _Share(NamedTuple):
    """A value of so many bytes takes `fixed` bytes of memory, and `a_byte` for each of its bytes; it has `least`."""

    least: int
    fixed: float
    a_byte: float


_NAMED_BRANCH: Final = 72
"""Bytes of the pair of a name and a value that a union of several types is read as."""
_LEAVES: Final = {
    "null": _Share(0, 0, 0),
    "boolean": _Share(1, 0, 0),
    "int": _Share(1, 0, 16),  # those up to 256 are there once; others have 32 bytes for two
    "long": _Share(1, 0, 16),
    "float": _Share(4, 0, 6),
    "double": _Share(8, 0, 3),
    "bytes": _Share(1, 0, 34),
    "string": _Share(1, 0, 40),  # one of a single character is there once, unless it has two bytes
    "enum": _Share(1, 0, 0),
}


class RoomOfRecords:
    """Checks the records of one schema, `avro`, in which a named type is defined at its first use."""

    def __init__(self, avro: Any) -> None:
        self._avro = avro
        self._left = RoomLeft()
        # What counts a record through, made for the first that needs it: a schema may be far larger than its records.
        self._counts: Skip | None = None
        share = _Shares().of(avro)
        over = share.a_byte - ROOM_A_BYTE
        self.safe_bytes = (MOST_ROOM - share.fixed) / over if over > 0 else math.inf
        """Bytes of a record up to which it cannot take more than it may, whatever it holds."""

    def check(self, data: bytes, start: int) -> None:
        """Raises DataError if the record that begins at `start` would take more than MOST_ROOM and ROOM_A_BYTE."""
        if len(data) > self.safe_bytes:
            self._left.begin(len(data))
            if self._counts is None:
                self._counts = skip_of(self._avro, self._left.add)
            with suppress(IndexError):  # the data ends too early, which reading it says
                self._counts(data, start)


class _Shares(OfTypes[_Share]):
    """Reckons what values of the types of one schema take."""

    def of_union(self, branches: list[Any]) -> _Share:
        """See OfTypes. Each value has a byte more than its branch, to which the fixed part of the branch belongs."""
        shares = [self.of(branch) for branch in branches]
        more = _NAMED_BRANCH if len(shares) > 2 else 0
        ratios = [(share.fixed + more) / (1 + share.least) + share.a_byte for share in shares]
        return _Share(1 + min((share.least for share in shares), default=0), 0, max(ratios, default=0))

    def of_kind(self, kind: str, avro: Any) -> _Share:
        """See OfTypes."""
        if kind in _LEAVES:
            return _LEAVES[kind]
        match kind:
            case "array":
                item = self.of(avro["items"])
                return _Share(1, LIST, (item.fixed + ELEMENT) / max(1, item.least) + item.a_byte)
            case "map":
                item = self.of(avro["values"])
                return _Share(1, COLLECTED + getsizeof({}), (item.fixed + ENTRY) / (1 + item.least) + item.a_byte)
            case "fixed":
                return _Share(avro["size"], 0, 34)
            case _:
                fields = [self.of(field["type"]) for field in avro["fields"]]
                own = COLLECTED + getsizeof(dict.fromkeys(field["name"] for field in avro["fields"]))
                ratio = max((field.a_byte for field in fields), default=0)
                return _Share(sum(field.least for field in fields), own + sum(field.fixed for field in fields), ratio)
