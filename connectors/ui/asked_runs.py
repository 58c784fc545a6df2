"""Asks the run of a connector for what takes long: a clean, a snapshot, a resync; and keeps what comes of it.

It is asked as commands ask it, by a request in the connector's folder. A request is never carried out here: the Spark
of this process is the connectors'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from compactor.catalog.requests import Request
from compactor.clean.cleaner import CleanedLog
from compactor.errors import KeyfoldError
from compactor.json_types import converted_as
from compactor.model.actions import AddSnapshot
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.config.secrets import logged_text
from connectors.counted import counted
from connectors.errors import DEFECT, BusyError, UsageError
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.snapshot import NOTHING_TO_SNAPSHOT
from connectors.operations.worker_request import ask, request
from connectors.rest.context import RestContext
from connectors.runtime.offset_change import ChangedLog
from connectors.runtime.request_handler import CLEAN, RESYNC, SNAPSHOT
from connectors.threads import join_within, started
from connectors.ui.deeds import Deed, Deeds

MOST_RUNNING: Final = 8
"""How many such deeds are waited for at once, each by a thread: a connector has its own one after the other anyway."""
WAIT_S: Final = 3_600.0
"""How long (s) the answer is waited for: a full fold of a large connector takes minutes."""

END_MS: Final = 1_000
"""How long (ms) the end of a worker waits until all requests are taken back: each is a change of a file."""

Ask = Callable[[Storage, str, Request, RequestTimeout, Clock], Mapping[str, Any]]


def _cleaned(result: Mapping[str, Any]) -> str:
    logs: Sequence[CleanedLog] = converted_as(result.get("logs", ()), tuple[CleanedLog, ...])
    if not logs:
        return "Nothing had to be folded."
    removed = sum(log.records_before - log.records for log in logs)
    return f"Folded {counted(len(logs), 'partition')}; {counted(removed, 'record')} went."


def _snapshots(result: Mapping[str, Any]) -> str:
    taken: Sequence[AddSnapshot] = converted_as(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    if not taken:
        return NOTHING_TO_SNAPSHOT
    records = sum(each.records for each in taken)
    return f"Took {counted(len(taken), 'snapshot')} with {counted(records, 'record')}."


def _resynced(result: Mapping[str, Any]) -> str:
    logs: Sequence[ChangedLog] = converted_as(result.get("logs", ()), tuple[ChangedLog, ...])
    return f"{counted(len(logs), 'partition is', 'partitions are')} read again from the start."


_WORDS: Final = {CLEAN: _cleaned, SNAPSHOT: _snapshots, RESYNC: _resynced}
KINDS: Final = frozenset(_WORDS)


class AskedRuns:
    """Has such deeds done, each by a thread that waits for the answer. `asks` asks, and waits."""

    def __init__(self, context: RestContext, deeds: Deeds, asks: Ask = ask) -> None:
        self._context = context
        self._deeds = deeds
        self._ask = asks
        # Threads that wait for a deed; changed under the lock.
        self._running = set[threading.Thread]()
        self._lock = threading.Lock()
        # Set once the worker ends.
        self._stopped = threading.Event()

    def begin(self, kind: str, deed: Deed) -> None:
        """Begins one of KINDS. Raises UsageError if nothing runs the connector, BusyError, NoThreadError."""
        supervisor = self._context.herder.connector(deed.connector).supervisor
        # A FAILED one takes a resync, with which a new run begins, and refuses the others.
        takes = supervisor is not None and (supervisor.is_alive() or (kind == RESYNC and supervisor.has_failed()))
        if not takes:
            raise UsageError(
                f"Nothing runs connector {deed.connector}.", "Resume it first, or wait until it has begun."
            )
        thread = threading.Thread(target=self._run, args=(kind, deed), name="page-deed", daemon=True)
        with self._lock:
            if len(self._running) >= MOST_RUNNING:
                raise BusyError(f"{MOST_RUNNING} cleans, snapshots and resyncs are under way.", "Try again later.")
            self._running.add(thread)
        try:
            started(thread)
        except BaseException:
            self._over(thread)
            raise

    def stop(self) -> None:
        """Takes back what is asked for and not begun: the next worker would carry it out for no one."""
        self._stopped.set()
        with self._lock:
            waiting = [*self._running]
        join_within(waiting, END_MS, self._context.clock)

    def _run(self, kind: str, deed: Deed) -> None:
        ok, said = True, ""
        clock = _UntilStopped(self._context.clock, self._stopped)
        try:
            storage = self._context.storage_of(deed.connector)
            said = _WORDS[kind](self._ask(storage, deed.connector, request(kind), RequestTimeout(WAIT_S), clock))
        except KeyfoldError as error:
            ok, said = False, logged_text(str(error))
        except Exception:
            ok, said = False, DEFECT
            raise
        finally:
            self._deeds.end(deed, said, self._context.clock.now_ms(), ok=ok)
            self._over(threading.current_thread())

    def _over(self, thread: threading.Thread) -> None:
        with self._lock:
            self._running.discard(thread)


class _UntilStopped:
    """A clock that raises KeyfoldError from a wait once `stopped` is set."""

    def __init__(self, clock: Clock, stopped: threading.Event) -> None:
        self._clock = clock
        self._stopped = stopped
        self.now_ms = clock.now_ms
        self.monotonic_ms = clock.monotonic_ms
        self.wait_ms = clock.wait_ms

    def sleep_ms(self, ms: int) -> None:
        """Waits for `ms`. Raises KeyfoldError if the worker ends."""
        if self._clock.wait_ms(ms, self._stopped):
            raise KeyfoldError("The worker ends.", "Ask again once it has started.")
