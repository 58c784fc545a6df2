"""Bounds the places of snapshots of connectors made over REST, and keeps the Iceberg tables of connectors apart.

A connector writes, lists and removes below `<snapshot.location>/<name>`. That may not be in `storage.location` or
around it, nor in the snapshots of another connector or around them: there it would change what is not its own. Links
are followed before places are compared.

A table has one owner: the first that commits to it. So a table that another connector names is refused, of files too.
Over REST one that may be another's with its next topic is refused as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from compactor.storage.locations import azure_account
from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault
from connectors.config.fields import is_folder, store_location
from connectors.config.selection import pattern
from connectors.config.table_rules import TOPIC, is_catalog_file
from connectors.config.worker import ALLOWED
from connectors.errors import PatternError

KEY: Final = "snapshot.location"
_TABLE: Final = "snapshot.table.name"

Place = tuple[str, ...]
"""The parts of a location: what it is of (a machine's folders, or a bucket), then one for each folder."""


def place_of(location: str) -> Place:
    """Returns a location as it can be compared with another."""
    text = store_location(location)
    if is_folder(location):
        return ("file", *_parts(os.path.realpath(text)))
    url = urlsplit(text)
    return (f"{url.scheme}://{url.netloc}", *_parts(unquote(url.path)))


def rest_faults_of_place(config: ConnectorConfig, storage: str, allowed: Sequence[str] | None) -> Iterator[Fault]:
    """Yields a fault if the snapshots of a connector made over REST may not be at the place that it names.

    `storage` is the worker's storage.location, `allowed` its list of prefixes, None if it has none.
    """
    if config.snapshot_location is None:
        return
    place = place_of(config.snapshot_location)
    if "." in place or ".." in place:
        yield Fault(KEY, 'has "." or ".." in its prefix; write the prefix without.')
    elif allowed is not None and not any(_is_in(place, place_of(prefix)) for prefix in allowed):
        yield Fault(
            KEY, f"is not below a prefix of {ALLOWED} of the worker file, as a connector made over REST has to."
        )
    elif _overlap(own := _own(config.name, place), kept := _of_container(place_of(storage))):
        said = "in" if _is_in(own, kept) else "around"
        yield Fault(KEY, f"would have snapshots {said} the worker's storage.location; name a folder of their own.")


def rest_fault_of_account(config: ConnectorConfig, own: Iterable[str | None]) -> Fault | None:
    """Returns the fault of a connector made over REST if its snapshots would go to another account of Azure than `own`.

    The worker's credentials go along: the owner of another account would see those that are sent with each request.
    """
    account = azure_account(config.snapshot_location) if config.snapshot_location else None
    if account is None or account in own:
        return None
    return Fault(
        KEY,
        "names another account than storage.azure.account.name, which would be sent the worker's credentials; name "
        f"that account, or have the operator name a prefix of this one in {ALLOWED} of the worker file.",
    )


def place_clash(config: ConnectorConfig, other: ConnectorConfig) -> Fault | None:
    """Returns the fault of a connector made over REST if its snapshots would be among those of `other`, or around."""
    here, there = config.snapshot_location, other.snapshot_location
    if not config.limits.over_rest or here is None or there is None or here == there:  # names differ, and so do folders
        return None
    places = place_of(here), place_of(there)
    own, others = _own(config.name, places[0]), _own(other.name, places[1])
    if _overlap(own, others):
        return Fault(KEY, f'would mix its snapshots with those of connector "{other.name}"; name another folder.')
    if _is_in_catalog(own, other, places[1]):
        return Fault(KEY, f'is where connector "{other.name}" has its Iceberg catalog; name another folder.')
    if _is_in_catalog(others, config, places[0]):
        return Fault(KEY, f'would have the Iceberg catalog where connector "{other.name}" is; name another folder.')
    return None


def _is_in_catalog(folder: Place, other: ConnectorConfig, there: Place) -> bool:
    """Returns whether `folder` is in the way of the SQL catalog of `other`, which has its snapshots `there`."""
    inside = folder[len(there) :] if _is_in(folder, there) else ()
    return _catalog_of(other) == (there,) and bool(inside) and is_catalog_file(inside[0])


def table_clash(config: ConnectorConfig, other: ConnectorConfig) -> Fault | None:
    """Returns the fault of a connector of which an Iceberg table would be one of `other`, or be among those.

    Of two patterns only equal ones are known to have tables in common, and of a pattern the topics that the other
    names; what they come to share is refused by the commit.
    """
    catalog = _catalog_of(config)
    if catalog is None or catalog != _catalog_of(other):
        return None
    own = config.given.get(_TABLE, TOPIC)  # as it is written, if a placeholder stands in it
    if _share_table(config, other):
        return Fault(_TABLE, f'"{own}" is a table of connector "{other.name}"; name another one.')
    if config.limits.over_rest and _may_share(config, other):
        text = "is among the tables of connector"
        return Fault(_TABLE, f'"{own}" {text} "{other.name}"; put a namespace of its own in front, with a dot.')
    return None


def _catalog_of(config: ConnectorConfig) -> tuple[object, ...] | None:
    """Returns what tells the catalog of a connector's Iceberg tables from others; None if it has no such tables."""
    if config.snapshot_table != "iceberg" or config.snapshot_location is None:
        return None
    properties = config.iceberg_catalog
    if not properties:
        return (place_of(config.snapshot_location),)
    uri = properties.get("uri")
    return (uri, properties.get("warehouse")) if uri else tuple(sorted(properties.items()))


def _share_table(config: ConnectorConfig, other: ConnectorConfig) -> bool:
    try:
        shared = bool(config.iceberg_tables.keys() & other.iceberg_tables.keys())
        return shared or _by_pattern(config, other) or _by_pattern(other, config) or _same_pattern(config, other)
    except PatternError:  # of the other one, which fails by it; that of `config` was matched when it was checked
        return False


def _by_pattern(own: ConnectorConfig, other: ConnectorConfig) -> bool:
    if other.topics_regex is None:
        return False
    rule = pattern(other)
    return any(
        other.iceberg_table(topic) == table and rule.matches(topic) for table, topic in own.iceberg_tables.items()
    )


def _same_pattern(own: ConnectorConfig, other: ConnectorConfig) -> bool:
    same = own.topics_regex is not None and own.topics_regex == other.topics_regex
    return same and own.iceberg_table(TOPIC) == other.iceberg_table(TOPIC)


def _may_share(own: ConnectorConfig, other: ConnectorConfig) -> bool:
    """Returns whether a topic that one of both reads some day may have a table of the other one.

    Two that name all of their tables have none in common, once that was compared.
    """
    mine, theirs = _template(own), _template(other)
    if mine is not None and theirs is not None:
        return _fits(mine, theirs)
    if mine is not None:
        return any(_fits(table, mine) for table in other.iceberg_tables)
    return theirs is not None and any(_fits(table, theirs) for table in own.iceberg_tables)


def _template(config: ConnectorConfig) -> tuple[str, ...] | None:
    """Returns how tables are called if others may come, with `${topic}` in it; None if they may not.

    They may by a pattern of topics, or in the namespace that is the connector's name.
    """
    is_named = config.topics and "." in config.snapshot_table_name
    return None if is_named else config.iceberg_table(TOPIC)


def _fits(table: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return len(table) == len(other) and all(map(_part_fits, table, other))


def _part_fits(part: str, other: str) -> bool:
    """Returns whether topics may stand in both for what makes them equal."""
    if TOPIC not in part:
        part, other = other, part
    (before, _, _), (_, is_open, after) = part.partition(TOPIC), part.rpartition(TOPIC)
    if not is_open:
        return part == other
    if TOPIC not in other:
        return other.startswith(before) and other.endswith(after) and len(other) > len(before) + len(after)
    (first, _, _), (_, _, last) = other.partition(TOPIC), other.rpartition(TOPIC)
    return (before.startswith(first) or first.startswith(before)) and (after.endswith(last) or last.endswith(after))


def _own(name: str, place: Place) -> Place:
    return (*_of_container(place), name)


def _of_container(place: Place) -> Place:
    """Returns a place of Azure without its account: `az:` and `abfss:` may name the same container."""
    store, *folders = place
    container = store.removeprefix("abfss://").partition("@")[0]
    return (f"az://{container}" if store.startswith("abfss://") else store, *folders)


def _overlap(place: Place, other: Place) -> bool:
    return _is_in(place, other) or _is_in(other, place)


def _is_in(inner: Place, outer: Place) -> bool:
    return inner[: len(outer)] == outer


def _parts(path: str) -> Place:
    stripped = path.strip("/")
    return tuple(stripped.split("/")) if stripped else ()
