"""Passes over Avro's data without making values of it, which finds data that ends too early.

fastavro cannot do it: with a reader's schema without fields it takes twice as long, takes a length below 0 for one,
and does not see that a text at the very end is cut off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import Any, Final

from connectors.converters.avro.schemas import OfTypes
from connectors.data.bounds import COLLECTED, ELEMENT, ENTRY, LIST
from connectors.data.pace import EVERY, passed
from connectors.errors import DataError

Skip = Callable[[bytes, int], int]
"""Returns the end of the value that begins at a position; raises DataError or IndexError if the data ends before."""
Add = Callable[[int], None]
"""Adds bytes of memory that lists, maps and records take once they are read; what it raises ends the pass."""
_LONGEST: Final = 10
"""Bytes of a number."""


def skip_of(avro: Any, add: Add | None = None) -> Skip:
    """Returns what passes over a value of `avro`, in which a named type is defined at its first use."""
    return _Skips(add).of(avro)


def check_end(data: bytes, at: int) -> None:
    """Raises DataError if `at` lies beyond the end of `data`."""
    if at > len(data):
        raise DataError("It ends too early.")


class _Skips(OfTypes[Skip]):
    """Makes what passes over the values of one schema, and tells `add`, if there is one, what they take."""

    def __init__(self, add: Add | None) -> None:
        super().__init__()
        self._add = add

    def of_union(self, branches: list[Any]) -> Skip:
        """See OfTypes."""
        return _union([self.of(branch) for branch in branches])

    def of_kind(self, kind: str, avro: Any) -> Skip:
        """See OfTypes."""
        if kind in _PLAIN:
            return _PLAIN[kind]
        match kind:
            case "array":
                return self._counted(LIST, _blocks(self.of(avro["items"]), self._add, of_map=False))
            case "map":
                return self._counted(
                    COLLECTED + getsizeof({}), _blocks(self.of(avro["values"]), self._add, of_map=True)
                )
            case "fixed":
                return _bytes(avro["size"])
            case _:
                own = COLLECTED + getsizeof(dict.fromkeys(field["name"] for field in avro["fields"]))
                return self._counted(own, _record([self.of(field["type"]) for field in avro["fields"]]))

    def _counted(self, room: int, skip: Skip) -> Skip:
        """Returns `skip`, which adds `room` for each value if it is to be counted."""
        add = self._add
        if add is None:
            return skip

        def counted(data: bytes, at: int) -> int:
            add(room)
            return skip(data, at)

        return counted


def _number(data: bytes, at: int) -> int:
    while data[at] & 0x80:
        at += 1
    return at + 1


def _read(data: bytes, at: int) -> tuple[int, int]:
    """Returns a number, and the position after it."""
    number = data[at]
    if not number & 0x80:  # as nearly all are
        return (number >> 1) ^ -(number & 1), at + 1
    number = 0
    for place in range(_LONGEST):
        byte = data[at + place]
        number |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), at + place + 1
    raise DataError("A number has too many bytes.")


def _sized(data: bytes, at: int) -> int:
    size = data[at]
    if size & 0x81:  # long, or below 0
        size, at = _read(data, at)
        if size < 0:
            raise DataError("A length is below 0.")
        return at + size
    return at + 1 + (size >> 1)


def _bytes(size: int) -> Skip:
    return lambda _, at: at + size


def _record(fields: Sequence[Skip]) -> Skip:
    def skip(data: bytes, at: int) -> int:
        for field in fields:
            at = field(data, at)
        return at

    return skip


def _union(branches: Sequence[Skip]) -> Skip:
    of_byte = {2 * number: branch for number, branch in enumerate(branches[:64])}

    def skip(data: bytes, at: int) -> int:
        branch = of_byte.get(data[at])
        if branch is not None:
            return branch(data, at + 1)
        number, at = _read(data, at)
        if not 0 <= number < len(branches):
            raise DataError("A union has a branch that its schema has not.")
        return branches[number](data, at)

    return skip


def _blocks(item: Skip, add: Add | None, *, of_map: bool) -> Skip:
    room = ENTRY if of_map else ELEMENT

    def skip(data: bytes, at: int) -> int:
        count, at = _read(data, at)
        while count:
            if add is not None:
                add(room * abs(count))
            if count < 0:  # its bytes are said too
                at = _number(data, at)
            for number in range(abs(count)):
                if number % EVERY == 0:
                    passed(min(EVERY, abs(count) - number))
                at = item(data, _sized(data, at) if of_map else at)
                check_end(data, at)
            count, at = _read(data, at)
        return at

    return skip


_PLAIN: Final[dict[str, Skip]] = {
    "null": _bytes(0),
    "boolean": _bytes(1),
    "float": _bytes(4),
    "double": _bytes(8),
    "int": _number,
    "long": _number,
    "enum": _number,
    "string": _sized,
    "bytes": _sized,
}
