"""Writes large values of Avro in parts, so that other threads of the process get on in between.

fastavro is compiled: while it writes a value, no other thread works, for 2 s if that is 8 MiB of fields that may be
null. Here the members of lists and maps are written some thousand at a time. The bytes are those of one call.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import fastavro

from connectors.converters.avro.parsed import NAMED_MARK, PARSED_MARK
from connectors.data.pace import EVERY, passed

Member = TypeVar("Member")

_HOLDING: Final = (list, dict, tuple)


def write(out: io.BytesIO, avro: Any, value: Any) -> None:
    """Writes `value` as fastavro does with `avro`, parsed; raises what fastavro stumbles over.

    Of a large value, raises what the limit raises (`data/pace.py`), if its time has come.
    """
    if _is_large(value):
        _Parts(out, avro).write(avro, value)
    else:
        fastavro.schemaless_writer(out, avro, value)


class _Parts:
    """Writes one value of the parsed schema `avro` to `out`."""

    def __init__(self, out: io.BytesIO, avro: Any) -> None:
        self._out = out
        marked = (each for each in _branches_of(avro) if NAMED_MARK in each)
        self._named: Mapping[str, Any] = next((each[NAMED_MARK] for each in marked), {})
        # Lists and maps of schemas by their kind and the schema's id: all are parts of `avro`.
        self._holding: dict[tuple[str, int], Any] = {}

    def write(self, avro: Any, value: Any) -> None:
        """Writes a value of the schema `avro`: a large one member by member."""
        definition = self._definition(avro)
        if isinstance(definition, str) or not _is_large(value):
            self._write_members("array", "items", avro, [value])
        elif isinstance(definition, list):
            self._write_branch(definition, value)
        elif isinstance(definition["type"], list | dict):
            self.write(definition["type"], value)
        elif definition["type"] == "array" and isinstance(value, list):
            self._write_list(definition["items"], value)
        elif definition["type"] == "map" and isinstance(value, dict):
            self._write_map(definition["values"], value)
        elif "fields" in definition and isinstance(value, dict):
            for field in definition["fields"]:
                self.write(field["type"], value.get(field["name"], field.get("default")))
        else:
            self._write_members("array", "items", avro, [value])  # which says what is wrong

    def _write_branch(self, branches: list[Any], value: Any) -> None:
        """Writes a value of a union. Its branch has a name by `branches.py`, but in types within themselves."""
        name, held = value if isinstance(value, tuple) else (None, value)
        kinds = ("array",) if isinstance(held, list) else ("map", "record", "error")
        fitting = [
            at
            for at, branch in enumerate(map(self._definition, branches))
            if isinstance(branch, dict) and (name or branch["type"]) in (branch.get("name"), branch["type"])
            if branch["type"] in kinds
        ]
        if len(fitting) == 1:
            self._out.write(_long(fitting[0]))
            self.write(branches[fitting[0]], held)
        else:
            self._write_members("array", "items", branches, [value])  # fastavro looks for the branch

    def _write_list(self, items: Any, value: list[Any]) -> None:
        self._out.write(_long(len(value)))
        has_parts = any(not isinstance(each, str) or each in self._named for each in _branches_of(items))
        for group in _groups(value, lambda item: item) if has_parts else _slices(value):
            if len(group) == 1:
                self.write(items, group[0])
            else:
                self._write_members("array", "items", items, group)
        self._out.write(_END)

    def _write_map(self, values: Any, value: dict[str, Any]) -> None:
        self._out.write(_long(len(value)))
        for group in _groups(value.items(), lambda item: item[1]):
            if len(group) == 1:
                self._write_members("array", "items", "string", [group[0][0]])
                self.write(values, group[0][1])
            else:
                self._write_members("map", "values", values, dict(group))
        self._out.write(_END)

    def _write_members(self, kind: str, of: str, avro: Any, members: list[Any] | dict[str, Any]) -> None:
        """Writes the members of a list or a map in one call, without its number of members and its end."""
        key = kind, id(avro)
        if key not in self._holding:
            self._holding[key] = {"type": kind, of: avro, PARSED_MARK: True, NAMED_MARK: self._named}
        written = io.BytesIO()
        fastavro.schemaless_writer(written, self._holding[key], members)
        self._out.write(written.getbuffer()[len(_long(len(members))) : -len(_END)])

    def _definition(self, avro: Any) -> Any:
        return self._named.get(avro, avro) if isinstance(avro, str) else avro


_END: Final = b"\0"
"""What follows the members of a list or a map."""


def _long(number: int) -> bytes:
    """Returns a number that is not negative as Avro writes it."""
    left, digits = number << 1, bytearray()
    while left > 0x7F:
        digits.append(left & 0x7F | 0x80)
        left >>= 7
    digits.append(left)
    return bytes(digits)


def _branches_of(avro: Any) -> list[Any]:
    return avro if isinstance(avro, list) else [avro]


def _slices(members: list[Any]) -> Iterator[list[Any]]:
    """Yields `members`, which have no parts, EVERY at a time. Asks the limit after each."""
    for first in range(0, len(members), EVERY):
        yield members[first : first + EVERY]
        passed(EVERY)


def _is_large(value: Any) -> bool:
    return isinstance(value, _HOLDING) and _left(value, EVERY) < 0


def _left(value: Any, left: int) -> int:
    """Returns `left` less the members of a list, map or struct and of those in it; counts no further below 0."""
    left -= len(value)
    for member in value.values() if isinstance(value, dict) else value:
        if left < 0:
            break
        if isinstance(member, _HOLDING):
            left = _left(member, left)
    return left


def _groups(members: Iterable[Member], value_of: Callable[[Member], Any]) -> Iterator[list[Member]]:
    """Yields `members` in groups of about EVERY values; those that are large come alone. Asks the limit after each."""
    group: list[Member] = []
    left = EVERY
    for member in members:
        value = value_of(member)
        left -= 1
        if isinstance(value, _HOLDING):
            left = _left(value, left)
        group.append(member)
        if left < 0:
            if _is_large(value):
                yield group[:-1]
                group = [member]
            yield group
            passed(EVERY)
            group, left = [], EVERY
    yield group
