"""The settings of a connector for its page: in the groups of the documents, each with its meaning. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from connectors.config.connector import ConnectorConfig
from connectors.config.definitions import definitions, documentation, families, family_of
from connectors.rest.endpoints.plugins import settings_in
from connectors.ui.texts import bounded

VALUE_MAX: Final = 2_000
"""Characters of a value that are shown: a list of a hundred topics, or a long JAAS entry with its secret hidden."""
_FAMILIES: Final = "Converters, transforms, clients"
_OWN_TOO: Final = "Settings that keyfold passes on, or keeps as they are"


class SettingRow(Struct, frozen=True):
    """A setting: its text as a file would have it, secrets hidden, and whether that is its default; None: not set."""

    name: str
    value: str | None
    is_default: bool
    meaning: str
    allowed: str


class SettingGroup(Struct, frozen=True):
    """The settings below a heading; `given` is how many of them the connector sets itself."""

    title: str
    rows: tuple[SettingRow, ...]
    given: int


def setting_groups(shown: Mapping[str, str]) -> tuple[SettingGroup, ...]:
    """Returns all settings of a connector with the config `shown`: those that it sets, and the defaults of others."""
    known, meanings = definitions(ConnectorConfig), documentation(ConnectorConfig)
    groups: dict[str, list[SettingRow]] = {}
    for name, key in known.items():
        value = shown.get(name)
        text = key.default if value is None else bounded(value, VALUE_MAX)
        groups.setdefault(key.group, []).append(
            SettingRow(name, text, value is None, meanings[key.field], key.valid_values)
        )
    rest = {name: value for name, value in shown.items() if name not in known}
    if rest:
        groups[_FAMILIES] = list(_of_families(rest, shown))
    return tuple(
        SettingGroup(title, tuple(rows), sum(not each.is_default for each in rows)) for title, rows in groups.items()
    )


def _of_families(rest: Mapping[str, str], shown: Mapping[str, str]) -> Iterator[SettingRow]:
    """Yields the settings that have no field of their own, with what the class that takes them says."""
    classes = {each.name: each.documentation for each in settings_in(shown)}
    prefixes, meanings = families(ConnectorConfig), documentation(ConnectorConfig)
    for name, value in sorted(rest.items()):
        prefix = family_of(ConnectorConfig, name)
        of_prefix = _OWN_TOO if prefix is None else meanings[prefixes[prefix].field]
        yield SettingRow(
            name, bounded(value, VALUE_MAX), is_default=False, meaning=classes.get(name, of_prefix), allowed=""
        )
