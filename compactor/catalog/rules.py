"""Compares the rules of a catalog, which a start does not change, with those that a connector asks for."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from compactor.errors import CatalogError
from compactor.model.state import BY_BYTES, BYTES, CatalogState


class Rules(NamedTuple):
    """By what records are compared: their order, the identity of their keys, and the scope of a key.

    `fill`: what is filled of their values; unset is nothing.
    """

    order: str
    identity: str
    scope: str
    fill: str | UnsetType = UNSET


def refuse_others(state: CatalogState, connector: str, asked: Rules) -> None:
    """Raises CatalogError if the catalog with `state` has other rules than `asked`."""
    created = Rules(state.order, state.identity, state.scope, state.fill)
    if created == asked:
        return
    raise CatalogError(
        f"Connector {connector}: {_changes(created, asked)}.",
        "A start does not change it: set it back, have the source read again by the new ones (keyfold resync "
        "CONNECTOR.json), or start under a new connector name, with another output topic.",
    )


def _changes(created: Rules, asked: Rules) -> str:
    """Returns in words which of the rules differ."""
    settings = ("compaction.order", "compaction.key.identity", "compaction.scope", "compaction.fill")
    named = zip(settings, map(_word, created), map(_word, asked), strict=True)
    return ", ".join(f"{what} was {was} so far and is {now} now" for what, was, now in named if was != now)


def _word(rule: str | UnsetType) -> str:
    if rule is UNSET:
        return "none"
    return BY_BYTES if rule == BYTES else rule
