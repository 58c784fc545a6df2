"""The micro-batches of the worker's streaming query, and which connectors' portions each holds: the driver's side.

A position of the query is the number of a micro-batch, nothing more. What a number stands for is kept here and lives
as long as the query: a query that is started again numbers on, and nothing ever goes on from Spark's own record of
progress, as every connector goes on from its catalog. So connectors come and go without the query noticing.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import count, starmap
from typing import Final

from compactor.errors import KeyfoldError
from compactor.failpoints import hit
from compactor.ingest.appends import Batch
from connectors.kafka.client_settings import ClientSettings
from connectors.source import plan, read_route
from connectors.source.assignment import NEVER, EarlyEnd, PortionSplit, ReadTask
from connectors.source.plan import SourceRange
from connectors.source.portion import Offer
from connectors.source.subscription import Subscription

WAIT_S: Final = 10.0
"""How long (s) a question for the next micro-batch waits for one. Each answer without one has Spark's JVM and its
planner process ask again; what ends a query, or offers something, ends the wait at once."""
SMALLEST: Final = 2_500
"""Offsets for which another reading task is planned, if a micro-batch holds portions of several connectors."""


class MicroBatches:
    """Plans micro-batches of what subscriptions are offered, and hands each its portion. Threads may share it.

    `tasks` is how many Spark tasks run at once. `shared`: whether the worker has more than one connector, as it is now.
    `marks`: a path, which with an end of its own becomes that of each EarlyEnd. `wait_s`: see WAIT_S.
    """

    def __init__(self, tasks: int, *, shared: bool, wait_s: float = WAIT_S) -> None:
        self.shared = shared
        self.marks = ""
        self._tasks = tasks
        self._wait_s = wait_s
        self._changed = threading.Condition()
        # Those that are offered, with the client settings that others may share with them.
        self._subscriptions: dict[Subscription, ClientSettings] = {}
        # Numbers portions, over all micro-batches and queries.
        self._portions = count(1)
        # The portions of the last micro-batch that are not delivered.
        self._claimed: dict[int, Subscription] = {}
        # The number of the last micro-batch, and the tasks of it and the one before: Spark may ask for them again.
        self._last = 0
        self._planned: dict[int, list[ReadTask]] = {}
        # Whether the driver reads the last micro-batch.
        self._in_driver = False
        # The tasks of a first micro-batch without portions, see `warm_up`; None once it is planned.
        self._first: list[ReadTask] | None = None
        # Whether no micro-batch has been handed out yet.
        self._starts = True
        # Rises when a query fails, so that a question of its planner process claims nothing any more.
        self._run = 0
        # The number of the last micro-batch that was given up: nothing is added to it.
        self._abandoned = 0
        # Names of connectors that are suspect; they outlive their subscriptions.
        self._suspects: set[str] = set()
        # Of the last micro-batch.
        self._early_end = NEVER
        # The number of the micro-batch that was last asked to end early.
        self._ending: int | None = None
        self._closed = False

    def share(self, *, shared: bool) -> None:
        """Says whether the worker has more than one connector from now on.

        A micro-batch without bounds that is read for the only one so far ends early, and what it leaves is read within
        the bounds of those that wait.
        """
        with self._changed:
            self.shared = shared
            if shared and self._claimed and self._is_unbounded():
                self._ending = self._last
                self._early_end.ask()

    @property
    def starts(self) -> bool:
        """Whether the query has run no micro-batch yet: Spark takes a second for the first."""
        with self._changed:
            return self._starts

    @property
    def ending(self) -> int | None:
        """The number of the micro-batch that was asked to end early and has not ended yet; None if there is none."""
        with self._changed:
            return self._ending if self._claimed and self._ending == self._last else None

    @property
    def number(self) -> int:
        """The number of the micro-batch that was planned last."""
        with self._changed:
            return self._last

    def is_suspect(self, connector: str) -> bool:
        """Returns whether its last micro-batch failed as a whole, and nothing of it was read apart since."""
        with self._changed:
            return connector in self._suspects

    def add(self, subscription: Subscription, clients: ClientSettings) -> None:
        """Lets `subscription` be offered; portions of all with the same `clients` may be read by one consumer."""
        with self._changed:
            self._subscriptions[subscription] = clients

    def remove(self, subscription: Subscription) -> bool:
        """Takes `subscription` out: nothing more is offered or delivered to it.

        Returns whether a task without bounds is reading for it: nothing else is read before that has ended.
        """
        subscription.close()
        with self._changed:
            self._subscriptions.pop(subscription, None)
            if not subscription.portion.trouble.suspect:
                self._suspects.discard(subscription.options.connector)
            return self._is_unbounded() and subscription in self._claimed.values()

    def warm_up(self, processes: int) -> None:
        """Has the next micro-batch hold nothing, read by so many of Spark's processes; with 0 Spark runs no job for it.

        Spark's first micro-batch takes a second more than others, and the first job another one: they pass during the
        take-overs.
        """
        self._first = [ReadTask((), bounded=True)] * processes

    def wake(self) -> None:
        """Lets a waiting `latest` look again: subscriptions have new offers."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Plans nothing more, so that the query can be stopped at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def begin(self) -> int:
        """Begins another run of the query; returns the number of the last micro-batch that was planned.

        What was planned for the run before is abandoned: a planner process that has ended may have asked last.
        """
        self.abandon()
        return self._last

    def latest(self, start: int) -> int:
        """Plans the next micro-batch (step 1); returns its number, or `start` if nothing comes for a while.

        A query that has failed meanwhile gets `start`: what it claimed would not be read.
        """
        with self._changed:
            run = self._run
            if self._last > start:
                return self._last
            if self._first is not None:
                first, self._first = self._first, None
                self._in_driver = not first
                return self._plan(first)
            self._changed.wait_for(
                lambda: run != self._run or self._closed or self._offered(),
                self._wait_s,
            )
            if run != self._run or self._closed:
                return start
            claimed = [(each, offer) for each in self._subscriptions if (offer := each.claim())]
            if not claimed:
                return start
            self._in_driver = _is_for_driver(claimed)
            latest = self._plan(self._read_tasks(self._numbered(claimed)))
        hit("source.plan")
        return latest

    def more(self, number: int, seconds: float) -> list[ReadTask]:
        """Adds what is offered within `seconds` to micro-batch `number`, which the driver reads (step 1).

        Returns the tasks that read it. There are none if nothing is offered, or more than the driver reads, which is
        left to the next micro-batch. Nor are there any once its query has failed or ends.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._goes_on(number) or self._offered(), seconds)
            offered = self._offered() if self._goes_on(number) else []
            if not _is_for_driver(offered):
                return []
            claimed = [(each, offer) for each, _ in offered if (offer := each.claim())]
            tasks = self._read_tasks(self._numbered(claimed)) if claimed else []
        if tasks:
            hit("source.plan")
        return tasks

    def tasks(self, start: int, end: int) -> list[ReadTask]:
        """Returns the reading tasks of the micro-batches after `start` up to `end`, however often it is asked."""
        with self._changed:
            return [task for number in range(start + 1, end + 1) for task in self._planned.get(number, [])]

    def driver_tasks(self) -> list[ReadTask] | None:
        """Returns the tasks of the last micro-batch if the driver reads it; None: Spark does."""
        with self._changed:
            return self._planned.get(self._last, []) if self._in_driver else None

    def deliver(self, answers: Mapping[int, Batch | KeyfoldError]) -> None:
        """Hands each connector what was read of its portion of the last micro-batch; see `gather`."""
        with self._changed:
            claimed, self._claimed = self._claimed, {}
            self._starts = False
            ended_early = self._ending == self._last
        for portion, subscription in claimed.items():
            subscription.deliver(answers.get(portion), ended_early=ended_early)

    def deliver_portion(self, portion: int, answer: Batch | KeyfoldError) -> None:
        """Hands over the portion of this number before the others of its micro-batch, which `deliver` ends."""
        with self._changed:
            subscription = self._claimed.pop(portion, None)
        if subscription is not None:
            subscription.deliver(answer)

    def abandon(self) -> int:
        """Gives up the micro-batch that was planned and not delivered, as the query has failed; counts its portions."""
        with self._changed:
            claimed, self._claimed = self._claimed, {}
            self._run += 1
            self._abandoned = self._last
            for subscription in claimed.values():  # before `remove` looks: one that ends now is suspect as well
                subscription.abandon()
                self._suspects.add(subscription.options.connector)
            self._changed.notify_all()
        return len(claimed)

    def fail(self, error: BaseException) -> None:
        """Hands `error` to every connector: the query cannot be run."""
        with self._changed:
            subscriptions = list(self._subscriptions)
        for subscription in subscriptions:
            subscription.fail(error)

    def _goes_on(self, number: int) -> bool:
        """Returns whether micro-batch `number` is the last one, and its query has neither failed nor is to end."""
        return not self._closed and self._last == number > self._abandoned

    def _offered(self) -> list[tuple[Subscription, Offer]]:
        """Returns the connectors with an offer for a micro-batch, and what each offers."""
        portions = ((each, each.portion) for each in self._subscriptions)
        return [(each, portion.offer) for each, portion in portions if portion.claimable and portion.offer is not None]

    def _numbered(self, claimed: Sequence[tuple[Subscription, Offer]]) -> dict[int, tuple[Subscription, Offer]]:
        """Numbers the portions of the last micro-batch that were claimed now."""
        numbered = {next(self._portions): pair for pair in claimed}
        self._claimed.update({portion: subscription for portion, (subscription, _) in numbered.items()})
        return numbered

    def _is_unbounded(self) -> bool:
        """Returns whether the last micro-batch that was planned has tasks without bounds."""
        return any(not task.bounded for task in self._planned.get(self._last, []))

    def _plan(self, tasks: list[ReadTask]) -> int:
        self._last += 1
        self._planned = {number: kept for number, kept in self._planned.items() if number >= self._last - 1}
        self._planned[self._last] = tasks
        return self._last

    def _read_tasks(self, numbered: Mapping[int, tuple[Subscription, Offer]]) -> list[ReadTask]:
        """Deals the portions to tasks: those of several connectors, or few offsets, are read within bounds."""
        if not self.shared and len(numbered) == 1 and not self._in_driver:
            ((portion, (subscription, offer)),) = numbered.items()
            options = subscription.options
            splits = plan.splits(offer.ranges, options.limits.tasks_max)
            self._early_end.forget()
            self._early_end = EarlyEnd(f"{self.marks}-end-{self._last + 1}") if self.marks else NEVER
            parts = [PortionSplit(portion, offer.options, split, options.clients) for split in splits]
            return [ReadTask((part,), bounded=False, early_end=self._early_end) for part in parts]

        def portion_split(portion: int, ranges: Sequence[SourceRange]) -> PortionSplit:
            subscription, offer = numbered[portion]
            return PortionSplit(portion, offer.options, tuple(ranges), self._subscriptions[subscription])

        ranges = {portion: offer.ranges for portion, (_, offer) in numbered.items()}
        dealt = _deal(ranges, 1 if self._in_driver else self._tasks)
        return [ReadTask(tuple(starmap(portion_split, each.items())), bounded=True) for each in dealt]


def _is_for_driver(offers: Iterable[tuple[Subscription, Offer]]) -> bool:
    """Returns whether the driver reads what these connectors offer, by the offsets of all together."""
    return read_route.is_read_in_driver(sum(plan.size(offer.ranges) for _, offer in offers))


def _deal(ranges: Mapping[int, Sequence[SourceRange]], tasks: int) -> list[dict[int, list[SourceRange]]]:
    """Deals the ranges of portions into at most `tasks` parts of about as many offsets; no range is cut in two."""
    total = sum(map(plan.size, ranges.values()))
    most = max(1, min(tasks, total // SMALLEST))
    parts: list[dict[int, list[SourceRange]]] = [{} for _ in range(most)]
    done = 0
    for portion, of_portion in ranges.items():
        for each in of_portion:
            parts[min(most - 1, done * most // max(1, total))].setdefault(portion, []).append(each)
            done += each.size
    return [part for part in parts if part]
