"""One connector's reading through the worker's streaming query: what is offered to it, read for it and taken by it.

Offsets go round in one direction, at most one *offer* of a subscription at a time:

    plan()      the poller's thread: the planner has found something new, which becomes the offer
    claim()     Spark's thread: the offer becomes a portion of the next micro-batch
    deliver()   Spark's thread: what was read of the portion; `abandon()` where the micro-batch failed
    next()      the connector's own thread: what was delivered, to be taken by its engine
    taken()     the connector's own thread: the position moves past what was taken, and plan() may offer again

So nothing new is offered to a connector that is behind, and a portion that is delivered after its subscription was
closed is dropped. What a micro-batch did not read to its end, for whatever reason, is offered to the connector's
own thread (`Alone`): it is read in a job of its own, where an error or a delay concerns nobody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog
from msgspec import Struct

from compactor.errors import DEFECT, IngestError, KeyfoldError
from compactor.ingest.appends import Batch, up_to_holes
from compactor.model.record import RangeRead, TopicPartition
from connectors.clock import Clock
from connectors.errors import PortionLateError
from connectors.source import plan
from connectors.source.options import SourceOptions
from connectors.source.plan import Offsets, SourceRange
from connectors.source.planner import Planner
from connectors.threads import let_go

_log = structlog.get_logger()

ALONE_MAX: Final = 5_000_000
"""Offsets that one offer has at most where there are other connectors, or may come: reads alone take turns."""
ALONE_IN_DRIVER_MAX: Final = 20_000
"""Offsets that are read alone in this process at most: more than of a micro-batch, as no other connector waits."""
SHARED_MAX: Final = 200_000
"""Offsets that a portion has at most where other connectors wait for the same micro-batch; more is read alone."""
LATE_S: Final = 60.0
"""How long (s) a connector is read alone whose chain took longer than a micro-batch waits: the next portion may be as
late, and each costs the others that wait. After that one more portion of it shows whether it still is."""


class Offer(Struct, frozen=True):
    """What is to be read next of one connector: `ranges`, with `options`; `end` is the position behind them."""

    options: SourceOptions
    ranges: tuple[SourceRange, ...]
    end: Offsets

    def without_holes(self, batch: Batch) -> Batch:
        """Returns what of `batch` continues each partition from where this offer begins."""
        return up_to_holes(batch, {one.topic_partition: one.lo for one in self.ranges})


class Alone(Struct, frozen=True):
    """An offer that the connector's own thread has to have read. `suspect`: its micro-batch failed as a whole.

    `stalled`: the read of a large offer before it made no progress; whatever is wrong is to be found out.
    """

    offer: Offer
    suspect: bool = False
    stalled: bool = False

    @property
    def is_large(self) -> bool:
        """Whether tasks of Spark's read it, for which others wait: it may be read in part."""
        return not self.stalled and plan.size(self.offer.ranges) > ALONE_IN_DRIVER_MAX


class Subscription:
    """Reads one connector's topics through the query.

    `shared` says whether other connectors read through the same query now. `taken` is called when it may be offered
    more. `suspect`: a micro-batch of an earlier run failed as a whole, so it is read alone until that has succeeded.
    """

    def __init__(
        self,
        options: SourceOptions,
        planner: Planner,
        clock: Clock,
        taken: Callable[[], None],
        *,
        shared: Callable[[], bool],
        suspect: bool = False,
    ) -> None:
        self.options = options
        self._planner = planner
        self._clock = clock
        self._shared = shared
        self._taken = taken
        self._changed = threading.Condition()
        self._position: Offsets | None = None
        self._offer: Offer | None = None
        self._claimed = False
        self._ready: Batch | Alone | None = None
        self._error: BaseException | None = None
        self._alone = self._suspect = suspect
        self._stalled = False
        """Whether a large read alone was left in part: the next one is small and finds out why."""
        self._finished = False
        self._closed = False
        self._paused = False
        self._number = 0
        self._offered_at = float("-inf")
        self._alone_until = float("-inf")
        """Until when (monotonic s) it is read alone, as its chain was late."""

    def begin(self) -> None:
        """Asks the brokers where reading begins and, pinned, where it ends; plans nothing before.

        Raises SourceChangedError, UnreachableError after the time for retries.
        """
        if self.options.pinned:
            self._planner.pin()
        position = self._planner.initial()
        with self._changed:
            self._position = position

    @property
    def finished(self) -> bool:
        """Whether, pinned, everything up to the end was taken."""
        return self._finished

    @property
    def is_idle(self) -> bool:
        """Whether it has begun, and has no offer that is still to be read or taken."""
        return self._position is not None and self._offer is None

    @property
    def silent_s(self) -> float:
        """For how long (s) the brokers have not told where its source ends; 0 while they are not asked."""
        return 0.0 if self._paused or self._offer is not None else self._planner.silent_s

    def close(self) -> None:
        """Ends it: nothing more is planned or delivered."""
        self._planner.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def pause(self) -> None:
        """Has nothing planned or read until `resume`; what is read at this moment is still delivered.

        A `next` that waits returns at once.
        """
        with self._changed:
            self._paused = True
            self._changed.notify_all()

    def resume(self) -> None:
        """Ends a pause, if there is one: what is new by now is planned at once."""
        if self._paused:
            with self._changed:
                self._paused = False
            self._taken()

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions whose ends `plan` is going to ask for; none where it has nothing to plan now."""
        position = self._position
        if not self.plannable or position is None or self.options.pinned:
            return []
        return self._planner.partitions(position)

    def plan(self) -> bool:
        """Makes an offer of what is new by now, if anything is; returns whether it did."""
        position = self._position
        if not self.plannable or position is None:
            return False
        try:
            end = self._planner.latest(position, self._limit())
            ranges = tuple(plan.ranges(self.options.connector, position, end))
        except Exception as error:  # noqa: BLE001  # the connector's own thread raises it
            self.fail(error)
            return False
        with self._changed:
            if self._closed:
                return False
            if not ranges:  # topics that were found begin at their log starts
                self._position = end
                self._finished = self.options.pinned and end is position
                self._changed.notify_all()
                return False
            self._offered_at = self._clock.monotonic()
            self._offer = self._numbered(ranges, end)  # also where it was paused meanwhile: it waits to be claimed
            if self._is_late or self._alone or (self._shared() and plan.size(ranges) > SHARED_MAX):
                self._ready = Alone(self._offer, self._suspect, self._stalled)
                self._changed.notify_all()
            return True

    def claim(self) -> Offer | None:
        """Returns the offer for a portion of the next micro-batch, once; None where there is none."""
        with self._changed:
            if not self.claimable:
                return None
            self._claimed = True
            return self._offer

    @property
    def suspect(self) -> bool:
        """Whether its last micro-batch failed as a whole, and nothing of it was read alone since."""
        return self._suspect

    @property
    def claimable(self) -> bool:
        """Whether there is an offer for the next micro-batch."""
        idle = not (self._closed or self._claimed or self._paused)
        return idle and self._offer is not None and self._ready is None

    def deliver(self, found: Batch | KeyfoldError | None, *, ended_early: bool = False) -> None:
        """Hands over what was read of the claimed offer: a batch, why there is none, or None for nothing at all.

        PortionLateError is no failure: it is read alone, as what is missing. Where the micro-batch has `ended_early`,
        its tasks may have left holes: what lies behind one is left out.
        """
        with self._changed:
            if self._closed or self._offer is None:
                return
            if ended_early and isinstance(found, Batch):
                found = self._offer.without_holes(found)
            if isinstance(found, PortionLateError):
                self._note_late(found)
            elif isinstance(found, KeyfoldError):
                self._error = found
            elif found is None or not found.ranges:
                self._leave_alone(self._offer)
            else:
                self._ready = found
            self._changed.notify_all()

    def _note_late(self, error: PortionLateError) -> None:
        """Has the claimed offer, and all others for a while, read alone."""
        self._alone_until = self._clock.monotonic() + LATE_S
        if self._offer is not None:
            self._leave_alone(self._offer)
        name, reason = self.options.connector, error.message
        _log.warning("connector is read by jobs of its own", connector=name, reason=reason, seconds=round(LATE_S))

    def _leave_alone(self, offer: Offer, *, suspect: bool = False) -> None:
        """Has `offer` read alone: as it is or, where it is larger than others could wait for, planned again."""
        if plan.size(offer.ranges) <= ALONE_MAX:
            self._ready = Alone(self._renumbered(offer), suspect)
            return
        self._alone, self._offer, self._claimed = True, None, False
        self._taken()

    def abandon(self) -> None:
        """Says that the micro-batch of the claimed offer failed as a whole: each of its offers is read alone now."""
        with self._changed:
            self._suspect = True
            if not self._closed and self._offer is not None:
                self._leave_alone(self._offer, suspect=True)
                self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Hands `error` to the connector's own thread."""
        let_go(error)
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def next(self, seconds: float) -> Batch | Alone | None:
        """Waits at most `seconds` for what is to be taken or read alone; raises what reading or planning raised."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._paused or self._finished or self._error or self._ready is not None,
                seconds,
            )
            if self._closed:
                return None
            if self._error is not None:
                raise self._error
            return self._ready

    def taken(self, stated: tuple[RangeRead, ...]) -> None:
        """Moves the position past what was read, as `stated`; what is missing of the offer is read alone next.

        A large offer that was read alone in part is read on in a small one, which finds out what is wrong. Raises
        IngestError where that has not read its offer to the end either.
        """
        with self._changed:
            offer, alone = self._offer, self._ready if isinstance(self._ready, Alone) else None
            assert offer is not None
            assert self._position is not None
            reached = plan.reached(self._position, stated)
            left = plan.ranges(self.options.connector, reached, offer.end)
            if left and alone is not None and not alone.is_large:
                raise _unread(self.options.connector, left[0])
            self._stalled = bool(left) and alone is not None
            self._position = {**offer.end, **reached} if left else offer.end
            self._alone, self._suspect = bool(left), self._suspect and self._stalled  # what is left may be to blame
            self._offer, self._ready, self._claimed = None, None, False
        self._taken()

    @property
    def _is_late(self) -> bool:
        """Whether its chain was late a short time ago."""
        return self._clock.monotonic() < self._alone_until

    @property
    def plannable(self) -> bool:
        """Whether `plan` asks the brokers now: nothing is offered, and its interval is over."""
        idle = self._offer is None and self._error is None and not (self._closed or self._finished or self._paused)
        waits = not (self.options.pinned or self._alone)  # what is left of a micro-batch follows at once
        over = self._clock.monotonic() - self._offered_at >= self.options.interval_ms / 1000
        return idle and (over or not waits)

    def _limit(self) -> int | None:
        most = self.options.limits.max_offsets
        if self._stalled:
            return min(most or ALONE_IN_DRIVER_MAX, ALONE_IN_DRIVER_MAX)
        return min(most or ALONE_MAX, ALONE_MAX) if self._shared() or self._alone else most

    def _numbered(self, ranges: tuple[SourceRange, ...], end: Offsets) -> Offer:
        self._number += 1
        return Offer(self.options.of_batch(self._number, self._clock.now_ms()), ranges, end)

    def _renumbered(self, offer: Offer) -> Offer:
        """Returns the offer under a number of its own: files of the failed portion are of a batch that never was."""
        self._offer = self._numbered(offer.ranges, offer.end)
        return self._offer


def _unread(connector: str, left: SourceRange) -> IngestError:
    where = f"{left.topic_partition}, offsets [{left.lo}, {left.hi})"
    return IngestError(f"Connector {connector}: {where} were not read, and nothing says why.", DEFECT)
