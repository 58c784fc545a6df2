"""From the texts of a file to typed values, with every fault on the way.

Pure: what comes in is a mapping of key → text, what goes out are values (defaults filled in) and faults. A key with
a fault has no value, so that rules over several keys can leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from connectors.config import release, suggest
from connectors.config.faults import Fault
from connectors.config.key import Key, Prefix
from connectors.config.secrets import printable, resolve

Hint = Callable[[str], str | None]
"""A sentence for an unknown key that deserves more than the nearest name; None for any other."""


class Schema(msgspec.Struct, frozen=True):
    """What a file may hold: single keys, families of keys, and hints for keys of other tools."""

    keys: Mapping[str, Key]
    prefixes: tuple[Prefix, ...]
    hint: Hint

    def prefix_of(self, name: str) -> str | None:
        """The family that `name` belongs to; a key of its own name is in none."""
        if name in self.keys:
            return None
        return next((p.name for p in self.prefixes if name.startswith(p.name) and name != p.name), None)

    def known(self) -> tuple[str, ...]:
        """All names and families, for the nearest one."""
        return (*self.keys, *(prefix.name for prefix in self.prefixes))


class Parsed(msgspec.Struct, frozen=True):
    """Typed values of single keys, texts of the families (by prefix, without it), and the faults."""

    values: dict[str, Any]
    families: dict[str, dict[str, str]]
    faults: tuple[Fault, ...]

    def without(self, faults: tuple[Fault, ...]) -> Parsed:
        """The same without the keys of `faults`, which were found before and are told already."""
        names = {fault.key for fault in faults}
        values = {name: value for name, value in self.values.items() if name not in names}
        return Parsed(values, self.families, tuple(fault for fault in self.faults if fault.key not in names))


def parse(schema: Schema, given: Mapping[str, str]) -> Parsed:
    """Reads `given` under `schema`. Texts of families keep their placeholders until they are used."""
    families = _families(schema, given)
    values: dict[str, Any] = {}
    faults = [*_unknown(schema, given)]
    for key in schema.keys.values():
        try:
            values[key.name] = _value(key, given.get(key.name))
        except ValueError as error:
            faults.append(Fault(key.name, str(error)))
    return Parsed(values, families, tuple(faults))


def _families(schema: Schema, given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {prefix.name: {} for prefix in schema.prefixes}
    for name, text in given.items():
        prefix = schema.prefix_of(name)
        if prefix:
            found[prefix][name.removeprefix(prefix)] = text.strip()
    return found


def _unknown(schema: Schema, given: Mapping[str, str]) -> Iterator[Fault]:
    for name in given:
        if name not in schema.keys and not schema.prefix_of(name):
            text = release.not_yet(name) or schema.hint(name) or suggest.unknown(name, schema.known())
            yield Fault(name, text)


def _value(key: Key, text: str | None) -> Any:
    if text is None and key.required:
        raise ValueError(f"missing; it is required: {key.kind.allowed}.")
    if text is None:
        return key.default_value
    value = _checked(key, text)
    if key.name in release.LATER and value != key.default_value:
        raise ValueError(release.only_default(key.name, key.default))
    return value


def _checked(key: Key, text: str) -> Any:
    resolved = resolve(text)
    try:
        return key.kind.parse(resolved.strip())
    except (ValueError, KeyError) as error:
        why = f"{error}; " if resolved == text and _speaks(error) else ""
        raise ValueError(f"{shown(key.name, text)} is not allowed: {why}allowed is {key.kind.allowed}.") from None


def _speaks(error: Exception) -> bool:
    return isinstance(error, ValueError) and bool(str(error))


def shown(name: str, text: str) -> str:
    """`text` in quotes as a message may show it; a secret is hidden."""
    return f'"{printable(name, text)}"'
