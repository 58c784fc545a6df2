"""Waits until read_committed readers see what was published.

A commit is answered once its coordinator has written the decision; the markers that end the transaction in each output
partition are written afterwards. Until a partition has its marker its last stable offset stays below our records, so a
reader that begins right then ends without them. What we have published lies below the output offset that the catalog
keeps for each log (`OutputPoint`), so a partition with a last stable offset that has reached that one hides none of it,
whatever others have open above.

Code that takes the last record of an output for the last that was sent needs more than that: nothing at all may be
hidden below the high watermark (`require_stable`). A record of ours there would count as never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import structlog
from msgspec import Struct

from compactor.errors import NotVisibleError
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.kafka.admin import Admin

VISIBLE_MS: Final = 30_000
"""How long markers are waited for. A leader that fails over has them after some seconds; a transaction that
somebody else has left open may last for minutes, which is left to the next try."""
_PAUSE_MS: Final = 100
"""Between two looks."""
_SAY_AFTER_MS: Final = 1_000
"""Markers are late by milliseconds as a rule: only a longer wait is worth a line of the log."""

_log = structlog.get_logger()

Ends = Mapping[TopicPartition, int]


class HiddenEnd(Struct, frozen=True):
    """An output partition of which readers see the records below `visible` only, though we published up to `end`."""

    place: TopicPartition
    end: int
    visible: int

    def __str__(self) -> str:
        return f"{self.place} is visible up to offset {self.visible}, published up to {self.end}"


def published_ends(state: CatalogState, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Returns, for each output partition of the source topics `topics`, the offset below which all lies that we sent.

    Topics that are closed are left out, as their outputs may be gone; so are partitions that nothing was sent to.
    """
    logs = (log for log in state.logs if log.topic in topics and log.output is not None)
    places = ((state.topics[log.topic], log) for log in logs)
    return {
        TopicPartition(topic.output, log.partition): log.output.output_offset
        for topic, log in places
        if topic.output is not None and topic.closed is None and log.output is not None
    }


def hidden_ends(published: Ends, stable: Ends) -> tuple[HiddenEnd, ...]:
    """Returns the partitions of `published` with a last stable offset, in `stable`, below what was published."""
    return tuple(
        HiddenEnd(place, end, stable[place]) for place, end in sorted(published.items()) if stable[place] < end
    )


def await_visible(
    published: Ends,
    stable_ends: Callable[[Collection[TopicPartition]], Ends],
    stopped: Callable[[], bool],
    clock: Clock = SYSTEM_CLOCK,
    wait_ms: int | None = None,
) -> tuple[HiddenEnd, ...]:
    """Waits until readers see all that was `published`; returns the partitions of which they do not in time.

    `stable_ends` asks for last stable offsets; only what was hidden at the last look is asked for again. A stop ends
    the wait, and VISIBLE_MS or `wait_ms` do. Raises what `stable_ends` raises.
    """
    began_ms, said = clock.monotonic_ms(), False
    longest_ms = VISIBLE_MS if wait_ms is None else wait_ms
    hidden = hidden_ends(published, stable_ends(published)) if published else ()
    while hidden and (waited_ms := clock.monotonic_ms() - began_ms) < longest_ms and not stopped():
        if waited_ms >= _SAY_AFTER_MS and not said:
            said = True
            _log.info("waiting until readers see what was published", partitions=len(hidden), first=str(hidden[0]))
        clock.sleep_ms(_PAUSE_MS)
        waiting = {hidden_end.place: hidden_end.end for hidden_end in hidden}
        hidden = hidden_ends(waiting, stable_ends(waiting))
    return hidden


def reason(hidden: Iterable[HiddenEnd]) -> str:
    """Returns a sentence that says of `hidden` partitions what readers see; there is one at least."""
    first, more = _first(hidden)
    return (
        f"read_committed readers do not see all that was published: after {VISIBLE_MS / 1000:.0f} s {first}{more}. Its "
        "transaction is committed, and the broker has not ended it there, or another producer's transaction is open."
    )


def _first(hidden: Iterable[HiddenEnd]) -> tuple[HiddenEnd, str]:
    """Returns the first of `hidden` partitions, and what a message says of the others."""
    first, *others = hidden
    return first, f" ({len(others)} more like it)" if others else ""


def require_stable(
    doing: str,
    reached: Ends,
    admin: Admin,
    stopped: Callable[[], bool] = lambda: False,
    wait_ms: int | None = None,
) -> None:
    """Waits until read_committed readers see all records that output partitions hold now.

    `reached`: the partitions, each with an offset up to which it is known to hold records, 0 if none is known. No
    producer of ours may have a transaction open there. Raises NotVisibleError after VISIBLE_MS (or `wait_ms`), and what
    `admin` raises; `doing` says what cannot be done then.
    """
    watermarks = admin.high_watermarks(reached)
    held = {place: max(offset, watermarks[place]) for place, offset in reached.items()}
    hidden = await_visible(held, admin.ends, stopped, wait_ms=wait_ms)
    if not hidden:
        return
    first, more = _first(hidden)
    raise NotVisibleError(
        f"{doing}: {first.place} holds records up to offset {first.end}, and read_committed readers see those below "
        f"{first.visible} only{more}. A transaction is open there, of another producer as ours were ended, or the "
        "broker has not ended it there yet.",
        "Nothing was changed, and nothing sent. Try again once the transaction is over, at the latest after its "
        "transaction.timeout.ms; kafka-transactions.sh find-hanging and abort end one that is left.",
    )
