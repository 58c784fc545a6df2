"""Follows the brokers for all connectors with equal client settings, with one request for the ends of all of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Final

import structlog

from compactor.model.record import TopicPartition
from connectors.clock import Clock
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings
from connectors.source.bundled_admin import BundledAdmin
from connectors.source.subscription import Subscription
from connectors.threads import CancellableThread

POLL_S: Final = 0.25
"""How often (s) idle partitions are asked for their ends."""
PAUSE_S: Final = 0.05
"""The shortest time (s) between two questions: a connector that has taken its portion asks for the next at once."""
_NAMES: Final = ("client.id", "group.id")
"""Settings that differ by connector and change nothing of what an assigned consumer reads."""

_log = structlog.get_logger()


class SourcePoller:
    """Plans offers for subscriptions with the settings `clients`, on a thread of its own, and tells `wake` of them.

    One request in flight: brokers that do not answer hold up only those with the same settings.
    """

    def __init__(self, clients: ClientSettings, wake: Callable[[], None], clock: Clock, request_s: float) -> None:
        self.clients = clients
        self.admin = BundledAdmin(Admin(clients.admin(), request_s), clock.monotonic)
        self._wake = wake
        self._clock = clock
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._now = threading.Event()
        self._thread = CancellableThread("source-poller", self._run)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread soon; waits for no request of it."""
        self._thread.stop()
        self._now.set()

    def add(self, subscription: Subscription) -> None:
        """Begins to plan for `subscription`."""
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def remove(self, subscription: Subscription) -> None:
        """Plans no more for it."""
        with self._lock:
            self._subscriptions = tuple(one for one in self._subscriptions if one is not subscription)

    def poll_now(self) -> None:
        """Asks again soon: a connector has taken what it had, or begins."""
        self._now.set()

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            self._now.clear()  # before it looks: who asks meanwhile may not have been seen
            self._poll()
            self._clock.wait(PAUSE_S, stopped)
            self._clock.wait(POLL_S - PAUSE_S, self._now)

    def _poll(self) -> None:
        subscriptions = self._subscriptions
        wanted: set[TopicPartition] = set()
        for one in subscriptions:
            wanted.update(one.partitions())
        if wanted:
            try:
                self.admin.refresh(wanted)
            except Exception as error:  # noqa: BLE001  # each connector asks for itself then, and says what is wrong
                _log.debug("ends of several connectors were not answered", error=str(error))
        offered = [one.plan() for one in subscriptions]
        self.admin.forget_ends()
        if any(offered):
            self._wake()


class Pollers:
    """The pollers of a worker, one for each kind of client settings. Threads may share it."""

    def __init__(self, wake: Callable[[], None], clock: Clock, request_s: float) -> None:
        self._wake = wake
        self._clock = clock
        self._request_s = request_s
        self._lock = threading.Lock()
        self._pollers: dict[str, SourcePoller] = {}
        self._users: dict[str, int] = {}

    def borrow(self, clients: ClientSettings) -> SourcePoller:
        """Returns the poller of all connectors whose settings equal `clients`; to be given back."""
        key = _key(clients)
        with self._lock:
            self._users[key] = self._users.get(key, 0) + 1
            if key not in self._pollers:
                self._pollers[key] = SourcePoller(clients, self._wake, self._clock, self._request_s)
                self._pollers[key].start()
            return self._pollers[key]

    def give_back(self, poller: SourcePoller) -> None:
        """Gives a poller back; one that nobody uses any more is stopped and dropped."""
        key = _key(poller.clients)
        with self._lock:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._pollers[key]
                poller.stop()


def _key(clients: ClientSettings) -> str:
    kinds = (clients.consumer(), clients.admin())
    named = [{name: value for name, value in settings.items() if name not in _NAMES} for settings in kinds]
    return json.dumps(named, sort_keys=True)
