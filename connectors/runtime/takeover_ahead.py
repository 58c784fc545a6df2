"""Takes a connector over while Spark starts, for its first run: steps T1 to T3 of docs/protocol.md.

They wait for brokers and for storage, and need nothing of Spark. A worker that lives is fenced only once Spark is up,
as it may never be: the supervisor begins this only if `owner.lock` is this process's.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import structlog

from compactor.catalog.owner_starts import Start
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import NoThreadError
from connectors.kafka.access import KafkaAccess
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.producers import fence_all
from connectors.runtime.takeover import Ownership, stored_state, take_over
from connectors.threads import CancellableThread

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)\])?")


def cores_of(master: str) -> int | None:
    """Returns how many tasks Spark will run at once with this spark.master, None if only Spark knows.

    Spark's JVM may count fewer processors, if a container has a share of them: then it is too many.
    """
    named = _LOCAL.fullmatch(master)
    if named is None:
        return None
    return len(os.sched_getaffinity(0)) if named[1] == "*" else int(named[1] or 1)


class TakeoverAhead:
    """The take-over of one connector before its first run. Nothing is taken over unless `begin` is called.

    A test gives another `take`.
    """

    def __init__(
        self,
        worker: WorkerConfig,
        connector: ConnectorConfig,
        clock: Clock,
        take: Callable[..., Ownership] = take_over,
    ) -> None:
        self._worker, self._connector, self._clock, self._take = worker, connector, clock, take
        # None before `begin`, and once a run has asked for what it has come to.
        self._thread: CancellableThread | None = None
        # What was taken over and neither handed on nor dropped. Changed under `_lock`.
        self._owned: Ownership | None = None
        self._lock = threading.Lock()

    def begin(self, draw: Callable[[], Start], tasks_max: int, others: Callable[[], Iterable[ConnectorConfig]]) -> None:
        """Begins the take-over on a thread; waits for nothing.

        `draw` gives this process's place among all starts. `tasks_max` is how many transactional ids the connector gets
        if neither its file nor its catalog says that.
        """
        with structlog.contextvars.bound_contextvars(connector=self._connector.name):
            work = partial(self._run, draw, tasks_max, others)
            thread = CancellableThread(f"takeover-{self._connector.name}", work)
        with suppress(NoThreadError):  # the first run takes it over
            thread.start()
            self._thread = thread

    def owned(self, tasks_max: int) -> Ownership | None:
        """Returns what was taken over once that has ended; None if nothing was, or not with so many ids.

        It is the caller's then. Raises what the take-over has failed with, to the first caller alone.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return None
        thread.join()
        if thread.failure is not None:
            raise thread.failure
        with self._lock:
            owned, self._owned = self._owned, None
        if owned is None or owned.catalog.state.buckets == tasks_max:
            return owned
        owned.broker.close()
        return None

    def drop(self) -> None:
        """Lets go of what was taken over, or is by the end of the step that runs; waits for nothing."""
        if self._thread is not None:
            self._thread.stop()
        self._close()

    def end(self) -> None:
        """Drops it, and waits until it has ended: a later take-over by this process is not fenced by it."""
        self.drop()
        self.join()

    def join(self, seconds: float | None = None) -> bool:
        """Waits until it has ended, for at most `seconds`; returns whether it has."""
        thread = self._thread
        return thread is None or thread.join(seconds)

    def _run(
        self,
        draw: Callable[[], Start],
        tasks_max: int,
        others: Callable[[], Iterable[ConnectorConfig]],
        stop: threading.Event,
    ) -> None:
        storage = connector_storage(self._worker, self._connector.name)
        stored = stored_state(storage, self._connector.name)
        ids = self._connector.tasks_max or (stored.buckets if stored else 0) or tasks_max
        kafka = KafkaAccess(fence=partial(fence_all, stopped=stop.is_set))
        clients = ClientSettings.of(self._worker, self._connector)
        now_ms, start = self._clock.now_ms(), draw()
        if stop.is_set():
            return
        owned = self._take(storage, self._connector, clients, ids, now_ms, start=start, kafka=kafka, others=others)
        with self._lock:
            self._owned = owned
        if stop.is_set():
            self._close()

    def _close(self) -> None:
        with self._lock:
            owned, self._owned = self._owned, None
        if owned is not None:
            owned.broker.close()
