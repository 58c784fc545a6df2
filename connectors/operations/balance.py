"""The balance of a full fold: what is kept before, what goes by which rule, and what stays. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from compactor.analyze.effect import Amount, Effect
from connectors.operations.analyze import PartitionReport, outcomes


class BalanceLine(Struct, frozen=True):
    """A line of a balance: a field of Effect, counted down if it goes; `always` or if there is any.

    `depth` says of how many lines before it the line is a part.
    """

    label: str
    field: str
    depth: int = 0
    goes: bool = False
    always: bool = False

    def shown(self, effects: Iterable[Effect]) -> bool:
        """Returns whether the line says anything."""
        return self.always or any(getattr(effect, self.field) != Amount() for effect in effects)

    def amount(self, effect: Effect) -> Amount:
        """Returns the line's amount, negative if it goes."""
        amount: Amount = getattr(effect, self.field)
        return Amount() - amount if self.goes else amount


BALANCE: Final = (
    BalanceLine("kept now", "before", always=True),
    BalanceLine("taken by retention", "retention", 1, goes=True),
    BalanceLine("superseded by a later record", "superseded", 1, goes=True, always=True),
    BalanceLine("tombstones past their horizon", "expired", 1, goes=True, always=True),
    BalanceLine("rejected, or without a key", "rejected", 1, goes=True),
    BalanceLine("kept after a full fold", "after", always=True),
    BalanceLine("last records of their keys", "live", 1, always=True),
    BalanceLine("tombstones", "tombstones", 1, always=True),
    BalanceLine("held by {held}", "held", 1, always=True),
    BalanceLine("rejected among them", "waiting", 2),
    BalanceLine("not folded by key", "unfolded", 1),
)


def held_by(partitions: Iterable[PartitionReport]) -> str:
    """Names what holds records of `partitions` back, under any of the settings; else what could."""
    reasons = {each.held_by for _, *both in outcomes(partitions) for each in both if each and each.held_by}
    return " or ".join(sorted(reasons)) or "min.compaction.lag.ms"
