"""Pollers of a worker over brokers in memory, and connectors that they plan for."""

from __future__ import annotations

import threading
from typing import Any, cast

from compactor.model.record import TopicPartition
from connectors.clock import Clock, SystemClock
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.source.options import SourceOptions
from connectors.source.planner import Planner
from connectors.source.poller import Pace, Pollers, SourcePoller
from connectors.source.subscription import Subscription
from connectors.source.topics import SharedAnswers
from tests.support.memory.admin import MemoryAdmin
from tests.support.source_options import NOBODY, source_options

A0, B0 = TopicPartition("a", 0), TopicPartition("b", 0)
TIMEOUT_S = 30.0


class NotingClock(SystemClock):
    """The machine's clock, with how long (ms) the last wait may take."""

    waits = 0

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        self.waits = ms
        return super().wait_ms(ms, event)


class PollingWorker:
    """Pollers of a worker over brokers in memory, and the connectors that borrow them."""

    def __init__(self, pace: Pace) -> None:
        self.brokers = MemoryAdmin({A0: 5, B0: 7})
        self.woken = threading.Semaphore(0)
        self.clock = NotingClock()
        self.refuses = False
        self.kind: type[SharedAnswers] = SharedAnswers
        self.pollers = Pollers(self.woken.release, self.clock, self.answers, pace)
        self.borrowed: list[SourcePoller] = []

    def answers(self, _: ClientSettings, clock: Clock) -> SharedAnswers:
        if self.refuses:
            raise ValueError("no such file")
        brokers = cast("Any", self.brokers)
        return self.kind(brokers, brokers, clock)

    def poller(self, clock: Clock | None = None) -> SourcePoller:
        """One without a thread, so that the test says when it asks."""
        clients, by = options("c", "a").clients, clock or self.clock
        return SourcePoller(clients, self.answers(clients, by), self.woken.release, by, Pace(cores=1))

    def borrow(self, connector: str = "c", **more: Setting) -> SourcePoller:
        found = self.pollers.borrow(options(connector, "a", **more).clients)
        self.borrowed.append(found)
        return found

    def give_back(self, poller: SourcePoller) -> None:
        self.borrowed.remove(poller)
        self.pollers.give_back(poller)

    def subscribed(self, poller: SourcePoller, *topics: str) -> Subscription:
        """A connector that reads `topics`, as the poller is to follow it."""
        named = options(f"c-{topics[0]}", *topics)
        planner = Planner(named, poller.topics(named.connector))
        found = Subscription(named, planner, SystemClock(), poller.poll_now, shared=lambda: True)
        found.begin()
        poller.add(found)
        return found


def options(connector: str, *topics: str, **more: Setting) -> SourceOptions:
    return source_options({**NOBODY, **more}, topics, connector=connector)


class Begun:
    """A connector that waits for its first offer."""

    is_idle = True
    planned_ms: int | None = None


class Planned(Begun):
    """A connector that reads partition a-0 and never finds anything; counts its plans."""

    plannable = True

    def __init__(self) -> None:
        self.listed = [A0]
        self.plans = 0

    def partitions(self) -> list[TopicPartition]:
        return self.listed

    def plan(self) -> bool:
        self.plans += 1
        return False
