"""Says which branch of a union a value is of before fastavro writes it.

Without that fastavro checks a value, and all within it, against each branch, and does so again at each level: ninety
nullable records within each other took 45 s for 600 kB. A pair (name of the branch, value) is written as it is. Only
records, lists and maps get one: to check a value without parts takes no longer than to make the pair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from connectors.data.pace import paced

Convert = Callable[[Any], Any]
_RECORDS: Final = ("record", "error")
_PARTS: Final = {"array": "items", "map": "values"}


def writer_of_branches(avro: Any, named: Mapping[str, Any]) -> Convert | None:
    """Returns what puts the names of branches into values of `avro`, parsed; None if it has no such union.

    `named` are its named types. Values are as fastavro takes them: those of named types may have names already. What is
    no value of the schema passes as it is or raises what it stumbles over.
    """
    return _Branches(named).of(avro)


class _Branches:
    """Makes what converts values of a schema, for each named type once."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        # By full name, what converts values of that type; None as well while it is made: a type within itself gets no
        # names from there on, which takes longer and is no less right.
        self._made: dict[str, Convert | None] = {}

    def of(self, avro: Any) -> Convert | None:
        """Returns what converts values of `avro`, None if they stay as they are."""
        if isinstance(avro, list):
            return self._of_union(avro)
        if isinstance(avro, str):
            return self.of(self._named[avro]) if avro in self._named else None
        kind = avro["type"]
        if kind in _RECORDS:
            if avro["name"] not in self._made:
                self._made[avro["name"]] = None
                self._made[avro["name"]] = _of_record({each["name"]: self.of(each["type"]) for each in avro["fields"]})
            return self._made[avro["name"]]
        if kind in _PARTS:
            return _of_parts(kind, self.of(avro[_PARTS[kind]]))
        return self.of(kind) if isinstance(kind, list | dict) else None

    def _of_union(self, branches: list[Any]) -> Convert | None:
        parts = {self._name_of(branch): self.of(branch) for branch in branches if self._has_parts(branch)}
        if not parts:
            return None
        lists, maps = "array" in parts, "map" in parts
        # A dict without a name is a map, or a record if there is but one.
        dicts = "map" if maps else next((name for name in parts if name != "array"), None)

        def name(value: Any) -> Any:
            if isinstance(value, tuple):
                convert = parts.get(value[0])
                return value if convert is None else (value[0], convert(value[1]))
            branch = dicts if isinstance(value, dict) else "array" if lists and isinstance(value, list) else None
            if branch is None:
                return value
            convert = parts[branch]
            return branch, value if convert is None else convert(value)

        return name

    def _definition(self, branch: Any) -> Any:
        return self._named.get(branch, branch) if isinstance(branch, str) else branch

    def _has_parts(self, branch: Any) -> bool:
        definition = self._definition(branch)
        return isinstance(definition, dict) and definition["type"] in (*_RECORDS, *_PARTS)

    def _name_of(self, branch: Any) -> str:
        definition = self._definition(branch)
        return str(definition["name"] if definition["type"] in _RECORDS else definition["type"])


def _of_record(fields: Mapping[str, Convert | None]) -> Convert | None:
    converters = [(name, convert) for name, convert in fields.items() if convert is not None]
    if not converters:
        return None

    def convert(value: Any) -> Any:
        named = dict(value)
        for name, convert_field in converters:
            held = named.get(name)
            if held is not None:
                named[name] = convert_field(held)
        return named

    return convert


def _of_parts(kind: str, inner: Convert | None) -> Convert | None:
    if inner is None:
        return None
    if kind == "array":
        return lambda value: [inner(item) for item in paced(value)]
    return lambda value: {name: inner(item) for name, item in paced(value.items())}
