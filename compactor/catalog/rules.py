"""Compares the rules that a catalog was created with, and keeps for good, with those that a connector asks for."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, UnsetType

from compactor.errors import CatalogError
from compactor.model.state import BYTES, CatalogState


class Rules(NamedTuple):
    """By what records are compared: their order, the identity of their keys, and the scope of a key.

    `fill`: what is filled of their values; unset is nothing.
    """

    order: str
    identity: str
    scope: str
    fill: str | UnsetType = UNSET


def refuse_others(state: CatalogState, connector: str, asked: Rules) -> None:
    """Raises CatalogError if the catalog with `state` was created with other rules than `asked`."""
    created = Rules(state.order, state.identity, state.scope, state.fill)
    if created == asked:
        return
    can_change = created.identity == asked.identity
    again = "have the source read again by the new ones (keyfold resync CONNECTOR.json), " if can_change else ""
    raise CatalogError(
        f"Connector {connector}: {_changes(created, asked)}.",
        f"A start does not change it: set it back, {again}or start under a new connector name, with another output "
        "topic.",
    )


def _changes(created: Rules, asked: Rules) -> str:
    """Returns in words which of the rules differ."""
    settings = ("compaction.order", "compaction.key.identity", "compaction.scope", "compaction.fill")
    named = zip(settings, map(_word, created), map(_word, asked), strict=True)
    return ", ".join(f"{what} was {was} so far and is {now} now" for what, was, now in named if was != now)


def _word(rule: str | UnsetType) -> str:
    if rule is UNSET:
        return "none"
    return "bytes" if rule == BYTES else rule
