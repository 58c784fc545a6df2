"""One connector's reading through the worker's streaming query: a lock around its `Portion`, which decides.

docs/design.md ("A portion's states") says which thread calls what. A portion that is delivered after its connector was
closed is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.model.record import TopicPartition
from connectors.clock import Clock
from connectors.errors import PortionLateError
from connectors.source import plan
from connectors.source.options import SourceOptions
from connectors.source.planner import Planner
from connectors.source.portion import LATE_MS, OVER, Offer, Portion, State
from connectors.source.read_route import Trouble
from connectors.threads import let_go

_log = structlog.get_logger()

_ANSWERS: Final = OVER | {State.READY, State.READ_APART}
"""The states that `next` waits for."""


class Subscription:
    """Reads one connector's topics through the query.

    `plan_soon` is called when it has something to plan; `shared` says whether other connectors read through the same
    query now, and `starts` that the query has run no micro-batch yet. `suspect`: a micro-batch of an earlier run failed
    as a whole, see `Trouble`.
    """

    def __init__(
        self,
        options: SourceOptions,
        planner: Planner,
        clock: Clock,
        plan_soon: Callable[[], None],
        *,
        shared: Callable[[], bool],
        starts: Callable[[], bool] = lambda: False,
        suspect: bool = False,
    ) -> None:
        self.options = options
        self._planner = planner
        self._clock = clock
        self._plan_soon = plan_soon
        self._shared = shared
        self._starts = starts
        # Guards changes of `portion`; `next` waits for it.
        self._changed = threading.Condition()
        self.portion = Portion(options, trouble=Trouble(suspect=suspect))

    def begin(self) -> None:
        """Asks the brokers for its first offsets and, pinned, for its last ones; plans nothing before.

        Raises SourceChangedError, UnreachableError after the time for retries.
        """
        if self.options.pinned:
            self._planner.pin()
        position = self._planner.initial()
        self._change(lambda portion: replace(portion, position=position))

    @property
    def finished(self) -> bool:
        """Whether, pinned, everything up to the end was taken."""
        return self.portion.state is State.FINISHED

    @property
    def pinned_ends(self) -> Mapping[TopicPartition, int] | None:
        """The ends of the source up to which it reads, pinned; None if it reads on."""
        return self._planner.pinned_ends

    @property
    def is_idle(self) -> bool:
        """Whether it has begun, and has no offer that is still to be read or taken."""
        return self.portion.position is not None and self.portion.offer is None

    @property
    def planned_ms(self) -> int | None:
        """When (monotonic ms) its last offer was planned; None before the first."""
        return self.portion.planned_ms

    @property
    def silent_ms(self) -> int:
        """For how long the brokers have not told the ends of its source; 0 while they are not asked."""
        return 0 if self.portion.paused or self.portion.offer is not None else self._planner.silent_ms

    @property
    def plannable(self) -> bool:
        """Whether `plan` asks the brokers now."""
        return self.portion.is_plannable(self._clock.monotonic_ms())

    def pause(self) -> None:
        """Has nothing planned or read until `resume`; what is read at this moment is still delivered.

        A `next` that waits returns at once.
        """
        self._change(lambda portion: replace(portion, paused=True))

    def resume(self) -> None:
        """Ends a pause, if there is one: what is new by now is planned at once."""
        if self.portion.paused:
            self._change(lambda portion: replace(portion, paused=False))
            self._plan_soon()

    def leave_out(self, topics: frozenset[str]) -> None:
        """Has nothing more of `topics` read; what is read of them at this moment is still delivered."""
        self._planner.leave_out(topics)

    def close(self) -> None:
        """Ends it: nothing more is planned or delivered."""
        self._planner.close()
        self._change(Portion.closed)

    def fail(self, error: BaseException) -> None:
        """Hands `error` to the connector's own thread."""
        let_go(error)
        self._change(lambda portion: portion.failed(error))

    def partitions(self) -> list[TopicPartition]:
        """Returns the partitions that `plan` is going to ask about; none if it has nothing to plan now."""
        position = self.portion.position
        if not self.plannable or position is None or self.options.pinned:
            return []
        return self._planner.partitions(position)

    def plan(self) -> bool:
        """Makes an offer of what is new by now, if anything is; returns whether it did."""
        portion = self.portion
        if not self.plannable or portion.position is None:
            return False
        try:
            end = self._planner.latest(portion.position, portion.most_offsets(shared=self._shared()))
            ranges = tuple(plan.ranges(self.options.connector, portion.position, end))
        except Exception as error:  # noqa: BLE001  # the connector's own thread raises it
            self.fail(error)
            return False
        if not ranges and end is portion.position and not self.options.pinned:
            return False  # it is as before, and wakes no thread
        times, others = (self._clock.monotonic_ms(), self._clock.now_ms()), self._shared()
        after = self._change(lambda portion: portion.planned(ranges, end, *times, shared=others, starts=self._starts()))
        return after.state in (State.OFFERED, State.READ_APART)

    def claim(self) -> Offer | None:
        """Returns the offer for a portion of the next micro-batch, once; None if there is none."""
        with self._changed:
            return self._change(Portion.claimed).offer if self.portion.claimable else None

    def deliver(self, answer: Batch | KeyfoldError | None, *, ended_early: bool = False) -> None:
        """Hands over what was read of the claimed offer, see `Portion.delivered`."""
        times = self._clock.monotonic_ms(), self._clock.now_ms()
        if isinstance(answer, PortionLateError) and self.portion.state is State.CLAIMED:
            event, reason = "connector is read apart", answer.message
            _log.warning(event, connector=self.options.connector, reason=reason, seconds=LATE_MS // 1000)
        self._change(lambda portion: portion.delivered(answer, *times, ended_early=ended_early))

    def abandon(self) -> None:
        """Says that the micro-batch of the claimed offer has failed as a whole: the portion is read apart."""
        now_ms = self._clock.now_ms()
        self._change(lambda portion: portion.abandoned(now_ms))

    def next(self, seconds: float) -> Batch | Offer | None:
        """Waits at most `seconds` for what is to be taken (Batch) or read apart (Offer).

        Raises what reading or planning raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.portion.paused or self.portion.state in _ANSWERS, seconds)
            return self.portion.answer()

    def taken(self, batch: Batch, kept: Batch | None = None) -> None:
        """Moves the position by what was read, and kept of it, see `Portion.taken`."""
        self._change(lambda portion: portion.taken(batch, kept))

    def give_up(self) -> None:
        """Gives up what a pause has ended before it was taken: after the pause the same is read, by another number."""
        now_ms = self._clock.now_ms()
        self._change(lambda portion: portion.given_up(now_ms))

    def halve(self) -> bool:
        """Gives up a portion that needs too much at once for one half as large; returns False if it has one offset."""
        offer = self.portion.offer
        if offer is None or plan.size(offer.ranges) < 2:
            return False
        self._change(Portion.halved)
        return True

    def _change(self, event: Callable[[Portion], Portion]) -> Portion:
        """Makes `event` happen to the portion, and wakes who waits for that; returns the portion after it."""
        with self._changed:
            before, self.portion = self.portion.state, event(self.portion)
            self._changed.notify_all()
            if self.portion.state is State.IDLE and before is not State.IDLE:
                self._plan_soon()
            return self.portion
