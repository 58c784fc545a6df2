"""Decides how many connectors may be given an offer now, and in which order. Pure.

Every connector that is offered something at the same time shares the processors with all others, so that each is done
only when nearly all are: what came in a moment after its offer was planned waits for two rounds. A few at a time are
done sooner, and each offer is planned later, with all that has come until then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FEWEST: Final = 8
"""So many connectors may always have an offer that is read, taken or published. Fewer would leave two cores idle: an
offer waits for a question, a micro-batch, disks and brokers for most of its time."""
A_CORE: Final = 4
"""Connectors for each core: half of FEWEST, which was measured on two cores."""
LONG_MS: Final = 500
"""An offer that is older (ms) counts no more: what it waits for, a slow store or a broker, takes no processor. On two
busy cores twenty connectors are done in 300 ms each."""


def most(connectors: int, cores: int) -> int:
    """Returns how many of `connectors` may have an offer at a time (count).

    Half of them at least: if they wait for stores, each then waits for one turn of others, however many they are.
    """
    return max(FEWEST, A_CORE * cores, connectors // 2)


def free(planned_ms: Iterable[int | None], now_ms: int, limit: int) -> int:
    """Returns how many offers may be planned now (count), if those under way were planned at `planned_ms`."""
    return limit - sum(1 for ms in planned_ms if ms is not None and now_ms - ms < LONG_MS)


def by_turn(planned_ms: int | None) -> tuple[bool, int]:
    """Returns the key by which connectors are sorted: the one comes first that was offered something longest ago."""
    return planned_ms is not None, planned_ms or 0
