"""One connector's reading through the worker's streaming query: a lock around its `Portion`.

    thread                 calls                                    its portion then
    the poller's           partitions(), plan()                     OFFERED, READ_APART; FAILED by an error
    Spark's                claim(); deliver() or abandon()          CLAIMED; READY, READ_APART or FAILED
    the connector's own    next(), taken(); pause(), resume()       IDLE again
    any                    fail(), close()                          FAILED, CLOSED

A portion that is delivered after its connector was closed is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.model.record import RangeRead, TopicPartition
from connectors.clock import Clock
from connectors.errors import PortionLateError
from connectors.source import plan, read_route
from connectors.source.options import SourceOptions
from connectors.source.planner import Planner
from connectors.source.portion import OVER, Offer, Portion, State
from connectors.source.read_route import Trouble
from connectors.threads import let_go

_log = structlog.get_logger()

LATE_MS: Final = 60_000
"""How long a connector is read apart after its chain took longer than a micro-batch waits: the next portion may be
as late, and each costs the others that wait. After that one more portion of it shows whether it still is."""


class Subscription:
    """Reads one connector's topics through the query.

    `plan_soon` is called when it has something to plan; `shared` says whether other connectors read through the same
    query now. `suspect`: a micro-batch of an earlier run failed as a whole, see `Trouble`.
    """

    def __init__(
        self,
        options: SourceOptions,
        planner: Planner,
        clock: Clock,
        plan_soon: Callable[[], None],
        *,
        shared: Callable[[], bool],
        suspect: bool = False,
    ) -> None:
        self.options = options
        self._planner = planner
        self._clock = clock
        self._plan_soon = plan_soon
        self._shared = shared
        # Guards `_portion` and `_paused`; `next` waits for it.
        self._changed = threading.Condition()
        self._portion = Portion(trouble=Trouble(suspect=suspect))
        # While it is set nothing is planned or claimed; what is claimed is still delivered.
        self._paused = False
        # Of the last offer: the files of each have its number in their names.
        self._number = 0
        # When (monotonic ms) the last offer was made; the next one waits for the connector's interval.
        self._offered_at_ms: float = float("-inf")
        # Until when (monotonic ms) portions are read apart, as its chain was late.
        self._late_until_ms = 0

    def begin(self) -> None:
        """Asks the brokers for its first offsets and, pinned, for its last ones; plans nothing before.

        Raises SourceChangedError, UnreachableError after the time for retries.
        """
        if self.options.pinned:
            self._planner.pin()
        position = self._planner.initial()
        with self._changed:
            self._set(replace(self._portion, position=position))

    @property
    def finished(self) -> bool:
        """Whether, pinned, everything up to the end was taken."""
        return self._portion.state is State.FINISHED

    @property
    def is_idle(self) -> bool:
        """Whether it has begun, and has no offer that is still to be read or taken."""
        return self._portion.position is not None and self._portion.offer is None

    @property
    def silent_ms(self) -> int:
        """For how long the brokers have not told the ends of its source; 0 while they are not asked."""
        return 0 if self._paused or self._portion.offer is not None else self._planner.silent_ms

    @property
    def suspect(self) -> bool:
        """Whether its last micro-batch failed as a whole, and nothing of it was read apart since."""
        return self._portion.trouble.suspect

    @property
    def claimable(self) -> bool:
        """Whether there is an offer for the next micro-batch."""
        return self._portion.state is State.OFFERED and not self._paused

    @property
    def plannable(self) -> bool:
        """Whether `plan` asks the brokers now: nothing is offered, and its interval is over."""
        portion = self._portion
        if self._paused or portion.state is not State.IDLE or portion.position is None:
            return False
        if self.options.pinned or portion.trouble.keeps_apart:  # what is left of a micro-batch follows at once
            return True
        return self._clock.monotonic_ms() - self._offered_at_ms >= self.options.interval_ms

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
            self._plan_soon()

    def close(self) -> None:
        """Ends it: nothing more is planned or delivered."""
        self._planner.close()
        with self._changed:
            self._set(self._portion.closed())

    def fail(self, error: BaseException) -> None:
        """Hands `error` to the connector's own thread."""
        let_go(error)
        with self._changed:
            self._set(self._portion.failed(error))

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that `plan` is going to ask about; none if it has nothing to plan now."""
        position = self._portion.position
        if not self.plannable or position is None or self.options.pinned:
            return []
        return self._planner.partitions(position)

    def plan(self) -> bool:
        """Makes an offer of what is new by now, if anything is; returns whether it did."""
        portion = self._portion
        if not self.plannable or portion.position is None:
            return False
        most = read_route.most_offsets(self.options.limits.max_offsets, portion.trouble, shared=self._shared())
        try:
            end = self._planner.latest(portion.position, most)
            ranges = tuple(plan.ranges(self.options.connector, portion.position, end))
        except Exception as error:  # noqa: BLE001  # the connector's own thread raises it
            self.fail(error)
            return False
        with self._changed:
            if not ranges:
                finished = self.options.pinned and end is portion.position
                self._set(self._portion.nothing_new(end, finished=finished))
                return False
            self._offered_at_ms = self._clock.monotonic_ms()
            late = self._offered_at_ms < self._late_until_ms
            route = read_route.of_portion(plan.size(ranges), portion.trouble, shared=self._shared(), late=late)
            self._set(self._portion.planned(Offer(self._numbered(), ranges, end, route)))
            return self._portion.state not in OVER

    def claim(self) -> Offer | None:
        """Returns the offer for a portion of the next micro-batch, once; None if there is none."""
        with self._changed:
            if not self.claimable:
                return None
            self._set(self._portion.claimed())
            return self._portion.offer

    def deliver(self, answer: Batch | KeyfoldError | None, *, ended_early: bool = False) -> None:
        """Hands over what was read of the claimed offer: a batch, why there is none, or None for nothing at all.

        PortionLateError is no failure: it is read apart, as what is missing. If the micro-batch has `ended_early`, its
        tasks may have left holes: what comes after a hole is left out.
        """
        with self._changed:
            portion = self._portion
            if portion.state in OVER or portion.offer is None:
                return
            if isinstance(answer, Batch) and ended_early:
                answer = portion.offer.without_holes(answer)
            if isinstance(answer, PortionLateError):
                self._late_until_ms = self._clock.monotonic_ms() + LATE_MS
                event, reason = "connector is read by jobs of its own", answer.message
                _log.warning(event, connector=self.options.connector, reason=reason, seconds=LATE_MS // 1000)
            elif isinstance(answer, KeyfoldError):
                self._set(portion.failed(answer))
                return
            if isinstance(answer, Batch) and answer.ranges:
                self._set(portion.delivered(answer))
            else:
                self._set(portion.unread(self._numbered()))

    def abandon(self) -> None:
        """Says that the micro-batch of the claimed offer has failed as a whole: the portion is read apart."""
        with self._changed:
            self._set(self._portion.abandoned(self._numbered()))

    def next(self, seconds: float) -> Batch | Offer | None:
        """Waits at most `seconds` for what is to be taken (Batch) or read apart (Offer).

        Raises what reading or planning raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._paused or self._portion.state in _ANSWERS, seconds)
            portion = self._portion
            if portion.state is State.FAILED and portion.error is not None:
                raise portion.error
            if portion.state is State.READ_APART:
                return portion.offer
            return portion.batch if portion.state is State.READY else None

    def taken(self, ranges: tuple[RangeRead, ...]) -> None:
        """Moves the position by what was read; what is missing of the offer is read apart next.

        Raises IngestError if the offer was to be read to its end, and was not.
        """
        with self._changed:
            self._set(self._portion.taken(ranges))

    def _set(self, portion: Portion) -> None:
        """Changes the portion, and wakes who waits for that; to be called with the lock."""
        before, self._portion = self._portion.state, portion
        self._changed.notify_all()
        if portion.state is State.IDLE and before is not State.IDLE:
            self._plan_soon()

    def _numbered(self) -> SourceOptions:
        """Returns the options of the next offer."""
        self._number += 1
        return self.options.of_batch(self._number, self._clock.now_ms())


_ANSWERS: Final = OVER | {State.READY, State.READ_APART}
"""The states that `next` waits for."""
