"""Reckons how much memory the messages of a record of Protobuf take, before any of them is parsed.

A message that is there takes room for all fields of its type: two bytes of a record may stand for a thousand numbers.
The schema says how much a byte takes at most; only a record that could exceed its bound by that is counted through.
"""

from __future__ import annotations

import math
from contextlib import suppress
from sys import getsizeof
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor

from connectors.data.bounds import COLLECTED, ENTRY, LIST, MOST_ROOM, ROOM_A_BYTE, RoomLeft
from connectors.data.pace import passed

_WIRE: Final = 7
"""The bits of a tag that say the wire type."""
_FIXED: Final = {1: 8, 5: 4}
"""Bytes of numbers of a fixed size, by their wire type."""
_SIZED: Final = 2
"""The wire type of what begins with its length: texts, messages."""
_BEGINS: Final = 3
_ENDS: Final = 4
"""The wire types of the two ends of a group."""
_TAG: Final = (1 << 32) - 1
"""The bits of a tag."""
_LEAST: Final = 2
"""Bytes of the smallest message: its tag and its length."""
_DEEPEST: Final = 100
"""Messages within one another that protobuf parses."""
_HEAD: Final = 24
"""Bytes of a message without fields, with the bits that say which are there."""
_REPEATED: Final = 32
"""Bytes that a message adds to the lists that hold it, of protobuf and of Python, as these grow."""
_FIELD: Final = 8
_TEXT: Final = 16
"""Bytes of a field in a message: a number or a pointer, a text or bytes."""
_TEXTS: Final = frozenset({FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES})


class _Layout:
    """What a message of one type takes (`room`, bytes), and the types of the messages in it.

    `inner` has these by the tag that they begin with, each with what it takes there.
    """

    __slots__ = ("inner", "room")

    def __init__(self, room: int) -> None:
        self.room = room
        self.inner: dict[int, tuple[int, _Layout]] = {}


_UNKNOWN: Final = (0, _Layout(0))
"""What the schema does not know, or what is no message."""


class RoomOfMessages:
    """Checks the records of one type of message, `descriptor`. Used by one thread."""

    def __init__(self, descriptor: Any) -> None:
        layouts: dict[str, _Layout] = {}
        self._left = RoomLeft()
        self._root = _layout(descriptor, layouts)
        dearest = max((room for layout in layouts.values() for room, _ in layout.inner.values()), default=0)
        over = dearest / _LEAST - ROOM_A_BYTE
        # Bytes of a record up to which it cannot take more than it may, whatever it holds.
        self._safe = (MOST_ROOM - self._root.room) / over if over > 0 else math.inf

    def check(self, data: bytes, start: int) -> None:
        """Raises DataError if the message that begins at `start` would take more than MOST_ROOM and ROOM_A_BYTE."""
        if len(data) > self._safe:
            self._left.begin(len(data))
            with suppress(LookupError):  # the data is no message, which parsing it says
                self._count(data, start, len(data), self._root)

    def _count(self, data: bytes, at: int, end: int, layout: _Layout, depth: int = 0) -> int:
        """Counts the messages within one that lies from `at` to `end`; returns the position after it.

        Raises LookupError if it is no message.
        """
        while at < end:
            tag, at = _varint(data, at)
            kind = tag & _WIRE
            if kind == _ENDS:
                return at
            room, inner = layout.inner.get(tag & _TAG, _UNKNOWN)
            self._left.add(room)
            passed(1)
            at, until = _span(data, at, kind, end)
            if until > end or depth > _DEEPEST:
                raise IndexError
            if kind == _BEGINS:
                at = self._count(data, at, end, inner, depth + 1)
                continue
            if inner.inner:
                self._count(data, at, until, inner, depth + 1)
            at = until
        return at


def _span(data: bytes, at: int, kind: int, end: int) -> tuple[int, int]:
    """Returns the first position of a value and the one after it; for a group at `at`, the last that it may have."""
    if kind == _SIZED:
        size, at = _varint(data, at)
        return at, at + size
    if kind == _BEGINS:
        return at, end
    return (at, _varint(data, at)[1]) if kind == 0 else (at, at + _FIXED[kind])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number and the position after it."""
    byte = data[at]
    if byte < 0x80:  # as nearly all are
        return byte, at + 1
    number = byte & 0x7F
    for place in range(1, 10):
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number, at + place + 1
    raise IndexError


def _layout(descriptor: Any, layouts: dict[str, _Layout]) -> _Layout:
    """Returns the layout of a type, which `layouts` keeps by the type's full name, as it does those within."""
    name = descriptor.full_name
    if name not in layouts:
        fields = descriptor.fields
        in_dict = COLLECTED + getsizeof(dict.fromkeys(range(len(fields))))
        own = sum(_TEXT if field.type in _TEXTS else _FIELD for field in fields)
        layout = layouts[name] = _Layout(_HEAD + own + in_dict)
        for field in fields:
            if field.message_type is not None:
                kind = _BEGINS if field.type == FieldDescriptor.TYPE_GROUP else _SIZED
                layout.inner[field.number << 3 | kind] = _of_field(field, layouts)
    return layouts[name]


def _of_field(field: Any, layouts: dict[str, _Layout]) -> tuple[int, _Layout]:
    """Returns what a message in a field takes, and its layout.

    An entry of a map has its value at once, whether the record says it or not.
    """
    inner = _layout(field.message_type, layouts)
    if not field.message_type.GetOptions().map_entry:
        return inner.room + _REPEATED, inner
    value = field.message_type.fields_by_name["value"]
    if value.message_type is None:
        return ENTRY, inner
    room, of = _of_field(value, layouts)
    entry = _Layout(0)
    entry.inner[next(iter(inner.inner))] = (0, of)
    return ENTRY + LIST + room, entry
