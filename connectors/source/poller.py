"""Follows the brokers for all connectors with equal client settings, with one request for the ends of all of them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final
from weakref import WeakKeyDictionary

import structlog
from msgspec import Struct

from compactor.model.record import TopicPartition
from compactor.spark.errors import briefly
from connectors.clock import Clock
from connectors.errors import NoThreadError
from connectors.kafka.client_settings import ClientSettings
from connectors.source import offer_turns
from connectors.source.subscription import Subscription
from connectors.source.topics import SharedAnswers, SourceTopics, shared_answers
from connectors.threads import CancellableThread

SLOW_MS: Final = 1_000
"""A question that takes longer is slow: a leader does not answer, and those that were asked with it wait for it."""
REPLAN_MS: Final = 2_500
"""How often a connector is planned for if its ends have not moved: its topics may have changed."""
_SLOW_AT_ONCE: Final = 4
"""Slow connectors that are asked for at a time, each on a thread of its own."""
_OWN_SETTINGS: Final = ("client.id", "group.id")
"""Settings that differ by connector and change nothing of what an assigned consumer reads."""

_log = structlog.get_logger()


class Pace(Struct, frozen=True):
    """How often brokers are asked."""

    # How often idle partitions are asked for their ends.
    poll_ms: int = 250
    # The shortest time between two questions: a connector that has taken its portion asks for the next at once.
    pause_ms: int = 50
    # By them and by the connectors it is decided how many may have an offer at a time (`offer_turns.most`).
    cores: int = os.cpu_count() or 1


PACE: Final = Pace()


class _EmptyPlan(Struct, frozen=True):
    """What a plan that found nothing was made from, the `ends` of `partitions`; the next is made at `again_at_ms`.

    `answers` holds those ends among others.
    """

    partitions: list[TopicPartition]
    answers: Mapping[TopicPartition, object]
    ends: list[int]
    again_at_ms: int


class SourcePoller:
    """Plans offers for subscriptions with the client settings `clients`, and tells `wake` of them.

    A thread does so from `start` until `stop`.

    All are asked for together. After a slow answer each is asked for alone, on other threads, until its own answer is
    quick: a leader that does not answer holds up only the connectors that read from it.
    """

    def __init__(
        self,
        clients: ClientSettings,
        answers: SharedAnswers,
        wake: Callable[[], None],
        clock: Clock,
        pace: Pace = PACE,
    ) -> None:
        self.clients = clients
        self._answers = answers
        self._pace = pace
        self._wake = wake
        self._clock = clock
        # Guards the next three.
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        # Subscriptions that are asked for alone, in the order of their turns; and those for which that is under way.
        self._slow: dict[Subscription, None] = {}
        self._asking: set[Subscription] = set()
        self._empty_plans: WeakKeyDictionary[Subscription, _EmptyPlan] = WeakKeyDictionary()
        # The partitions that were asked for last, by connector, and all of them.
        self._lists: list[list[TopicPartition]] = []
        self._wanted: frozenset[TopicPartition] = frozenset()
        # Set when there is something to ask before `poll_ms` are over.
        self._now = threading.Event()
        self._thread = CancellableThread("source-poller", self._run)

    def start(self) -> None:
        """Begins to ask."""
        self._thread.start()

    def is_alive(self) -> bool:
        """Returns whether its thread runs."""
        return self._thread.is_alive()

    def topics(self, connector: str) -> SourceTopics:
        """Returns what answers the questions of `connector`'s planner."""
        return SourceTopics(connector, self._answers.admin, self._answers)

    def add(self, subscription: Subscription) -> None:
        """Begins to plan for `subscription`."""
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        self._now.set()

    def remove(self, subscription: Subscription) -> None:
        """Plans no more for it."""
        with self._lock:
            self._subscriptions = tuple(each for each in self._subscriptions if each is not subscription)
            self._slow.pop(subscription, None)

    def poll_now(self) -> None:
        """Asks again soon: a connector has taken what it had."""
        self._now.set()

    def stop(self) -> None:
        """Ends the thread after the question that is under way; waits for none."""
        self._thread.stop()
        self._now.set()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self._now.clear()  # before it looks: what is asked for meanwhile may be missed
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001  # each connector's thread says it
                for subscription in self._subscriptions:
                    subscription.fail(error)
            self._clock.wait_ms(self._pace.pause_ms, stop)
            self._clock.wait_ms(self._pace.poll_ms - self._pace.pause_ms, self._now)
        self._answers.close()

    def poll(self) -> None:
        """Asks once: for all that are quick together, for some of the others each on a thread of its own."""
        with self._lock:
            together = [each for each in self._subscriptions if each not in self._slow]
            waiting = (each for each in self._slow if each not in self._asking)
            alone = list(islice(waiting, _SLOW_AT_ONCE - len(self._asking)))
            self._asking.update(alone)
        for subscription in alone:
            self._begin_alone(subscription)
        began_ms = self._clock.monotonic_ms()
        limit = offer_turns.most(len(self._subscriptions), self._pace.cores)
        under_way = (each.planned_ms for each in self._subscriptions if not each.is_idle)
        free = offer_turns.free(under_way, began_ms, limit)
        if free <= 0:  # it is asked again as soon as one of them has taken what it had
            return
        offered = self._ask(together, free)
        if self._clock.monotonic_ms() - began_ms > SLOW_MS:
            self._ask_alone_next(together)
        if offered:
            self._wake()

    def _begin_alone(self, subscription: Subscription) -> None:
        """Asks for one on a thread of its own; if none can be started, in a later turn."""
        try:
            CancellableThread("source-poller-slow", partial(self._ask_alone, subscription)).start()
        except NoThreadError as error:
            _log.debug("a connector is asked for later", connector=subscription.options.connector, reason=str(error))
            with self._lock:
                self._asking.discard(subscription)

    def _ask_alone_next(self, subscriptions: Iterable[Subscription]) -> None:
        with self._lock:
            self._slow.update((each, None) for each in subscriptions if each in self._subscriptions)

    def _ask(self, subscriptions: Sequence[Subscription], free: int) -> bool:
        """Asks for the ends of all at once, and lets those plan that have moved, until `free` of them have an offer.

        Returns whether any has.
        """
        lists = [subscription.partitions() for subscription in subscriptions]
        if lists != self._lists:  # of idle connectors they are the same objects each time
            self._lists, self._wanted = lists, frozenset(chain.from_iterable(lists))
        try:
            ends = self._answers.refresh(self._wanted) if self._wanted else {}
        except Exception as error:  # noqa: BLE001  # each is asked for alone then, and says what is wrong with it
            _log.warning("connectors are asked for one by one", connectors=len(subscriptions), reason=briefly(error))
            self._ask_alone_next(subscriptions)
            return False
        now_ms = self._clock.monotonic_ms()
        pairs = zip(subscriptions, lists, strict=True)
        in_turn = sorted(pairs, key=lambda pair: offer_turns.by_turn(pair[0].planned_ms))
        offers = (pair for pair in in_turn if self._plan(*pair, ends, now_ms))
        offered = len(list(islice(offers, free)))
        self._answers.forget_ends()
        return offered > 0

    def _plan(
        self,
        subscription: Subscription,
        partitions: list[TopicPartition],
        ends: Mapping[TopicPartition, object],
        now_ms: int,
    ) -> bool:
        """Lets `subscription` plan, unless that would find nothing again; returns whether it has an offer."""
        before = self._empty_plans.get(subscription)
        if before and (before.partitions is not partitions or now_ms >= before.again_at_ms):
            before = None
        if before and before.answers is ends:  # of idle connectors these are the same objects each time as well
            return False
        known = [end for tp in partitions if isinstance(end := ends.get(tp), int) and end >= 0]
        if before and before.ends == known:
            return False
        if subscription.plan():
            return True
        if partitions and len(known) == len(partitions):  # what was not answered is to be noted each time
            self._empty_plans[subscription] = _EmptyPlan(partitions, ends, known, now_ms + REPLAN_MS)
        else:
            self._empty_plans.pop(subscription, None)
        return False

    def _ask_alone(self, subscription: Subscription, _stop: threading.Event) -> None:
        asks, began_ms = False, self._clock.monotonic_ms()
        try:
            asks = subscription.plannable
            if subscription.plan():
                self._wake()
        except Exception as error:  # noqa: BLE001  # the connector's thread says it
            subscription.fail(error)
        finally:
            # A plan that asked no broker is quick too, but does not show that the leader answers again.
            is_quick = asks and self._clock.monotonic_ms() - began_ms <= SLOW_MS
            with self._lock:
                self._asking.discard(subscription)
                was_slow = subscription in self._slow
                self._slow.pop(subscription, None)
                if was_slow and not is_quick:
                    self._slow[subscription] = None  # its next turn comes after those of the others


class Pollers:
    """The pollers of a worker, one for each kind of client settings. Threads may share it."""

    def __init__(
        self,
        wake: Callable[[], None],
        clock: Clock,
        answers_of: Callable[[ClientSettings, Clock], SharedAnswers] | None = None,
        pace: Pace = PACE,
    ) -> None:
        self._wake = wake
        self._clock = clock
        self._answers_of = answers_of or shared_answers
        self._pace = pace
        self._lock = threading.Lock()
        self._pollers: dict[str, SourcePoller] = {}
        self._users: dict[str, int] = {}

    def borrow(self, clients: ClientSettings) -> SourcePoller:
        """Returns the poller of all connectors with settings equal to `clients`; to be given back."""
        key = _key(clients)
        with self._lock:
            if key not in self._pollers:
                answers = self._answers_of(clients, self._clock)
                poller = SourcePoller(clients, answers, self._wake, self._clock, self._pace)
                poller.start()
                self._pollers[key] = poller  # only now: one without a thread plans for no connector
            self._users[key] = self._users.get(key, 0) + 1  # once it is made: its clients may refuse their settings
            return self._pollers[key]

    def give_back(self, poller: SourcePoller) -> None:
        """Gives a poller back; one without a user is stopped."""
        key = _key(poller.clients)
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._pollers[key]
                poller.stop()


def _key(clients: ClientSettings) -> str:
    kinds = (clients.consumer(), clients.admin())
    named = [{name: value for name, value in settings.items() if name not in _OWN_SETTINGS} for settings in kinds]
    return json.dumps(named, sort_keys=True)
