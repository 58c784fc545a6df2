"""Finds the classes that a file names: Java's names of Kafka's, Confluent's and Debezium's classes, and short ones.

A module is imported when its class is asked for: a reading task starts with those alone that its connector names.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec import Struct


class ClassName(Struct, frozen=True):
    """A class by the name that a file has: `java` is its name in Connect, `place` is `module:class` of ours.

    `sided`: it has the variants `java$Key` and `java$Value`. `aliases`: other names of the same.
    """

    java: str
    place: str
    sided: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def simple(self) -> str:
        """Its name without the package."""
        return self.java.rpartition(".")[2]

    def load(self) -> Any:
        """Imports the class."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(module), name)


class Named(Struct, frozen=True):
    """A class that a file names, with `side`, the part after `$` (None if it has no variants)."""

    of: ClassName
    side: str | None


class ClassNames:
    """The classes of one kind: those there are, and those that are refused, each with why."""

    def __init__(self, kind: str, known: Iterable[ClassName], refused: Mapping[str, str] | None = None) -> None:
        self.kind: Final = kind
        self.known: Final = tuple(known)
        self._refused: Final = dict(refused or {})
        self._by_name = {
            name: Named(class_name, side)
            for class_name in self.known
            for base in (class_name.java, class_name.simple, *class_name.aliases)
            for side, name in _variants(base, sided=class_name.sided)
        }

    def find(self, name: str) -> Named:
        """Returns the class that `name` is of. Raises ValueError, which says what there is instead."""
        named = self._by_name.get(name)
        if named is not None:
            return named
        simple = name.rpartition(".")[2]
        for refused, why in self._refused.items():
            if name == refused or simple == refused.rpartition(".")[2]:
                raise ValueError(f"{simple} is not supported: {why}")
        if f"{name}$Value" in self._by_name:
            raise ValueError(f"write {name}$Key or {name}$Value.")
        near = get_close_matches(simple, [candidate.rpartition(".")[2] for candidate in self._by_name], n=1)
        meant = (
            f'; did you mean "{near[0]}"?'
            if near
            else f"; there is: {', '.join(class_name.simple for class_name in self.known)}."
        )
        raise ValueError(f"there is no such {self.kind}{meant}")

    def java_names(self) -> list[str]:
        """Lists the Java names of all classes, variants one by one."""
        return [name for class_name in self.known for _, name in _variants(class_name.java, sided=class_name.sided)]


def _variants(name: str, *, sided: bool) -> tuple[tuple[str | None, str], ...]:
    return tuple((side, f"{name}${side}") for side in ("Key", "Value")) if sided else ((None, name),)
