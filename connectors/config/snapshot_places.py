"""Bounds the places of snapshots of connectors made over REST, among folders and buckets that the worker may write.

A connector writes, lists and removes below `<snapshot.location>/<name>`. That may not be in `storage.location` or
around it, nor in the snapshots of another connector or around them: there it would change what is not its own. Links
are followed before places are compared.
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
from connectors.config.worker import ALLOWED

KEY: Final = "snapshot.location"

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
    if not _overlap(_own(config.name, place_of(here)), _own(other.name, place_of(there))):
        return None
    return Fault(KEY, f'would mix its snapshots with those of connector "{other.name}"; name another folder.')


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
