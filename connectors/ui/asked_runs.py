"""Asks the run of a connector for what takes long: a clean, a snapshot, a resync; and keeps what comes of it.

It is asked as commands ask it, by a request in the connector's folder. A request is never carried out here: the Spark
of this process is the connectors'.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from compactor.catalog.requests import Request
from compactor.clean.cleaner import CleanedLog
from compactor.errors import KeyfoldError
from compactor.json_types import converted_as
from compactor.model.actions import AddSnapshot
from compactor.storage.base import Storage
from connectors.config.secrets import logged_text
from connectors.errors import BusyError, UsageError
from connectors.operations.request_timeout import RequestTimeout
from connectors.operations.worker_request import ask, request
from connectors.rest.context import RestContext
from connectors.runtime.offset_change import ChangedLog
from connectors.runtime.request_handler import CLEAN, RESYNC, SNAPSHOT
from connectors.threads import started
from connectors.ui.deeds import Deed, Deeds

MOST_RUNNING: Final = 8
"""How many such deeds are waited for at once, each by a thread: a connector has its own one after the other anyway."""
WAIT_S: Final = 3_600.0
"""How long (s) the answer is waited for: a full fold of a large connector takes minutes."""

Ask = Callable[[Storage, str, Request, RequestTimeout], Mapping[str, Any]]


def _cleaned(result: Mapping[str, Any]) -> str:
    logs: Sequence[CleanedLog] = converted_as(result.get("logs", ()), tuple[CleanedLog, ...])
    if not logs:
        return "Nothing had to be folded."
    removed = sum(log.records_before - log.records for log in logs)
    return f"Folded {len(logs):,} partitions; {removed:,} records went."


def _snapshots(result: Mapping[str, Any]) -> str:
    taken: Sequence[AddSnapshot] = converted_as(result.get("snapshots", ()), tuple[AddSnapshot, ...])
    if not taken:
        return "Nothing was published since the last snapshot."
    return f"Took {len(taken):,} snapshots with {sum(each.records for each in taken):,} records."


def _resynced(result: Mapping[str, Any]) -> str:
    logs: Sequence[ChangedLog] = converted_as(result.get("logs", ()), tuple[ChangedLog, ...])
    return f"{len(logs):,} partitions are read again from their start."


_WORDS: Final = {CLEAN: _cleaned, SNAPSHOT: _snapshots, RESYNC: _resynced}
KINDS: Final = frozenset(_WORDS)


class AskedRuns:
    """Has such deeds done, each by a thread that waits for the answer. `ask` asks, and waits."""

    def __init__(self, context: RestContext, deeds: Deeds, ask: Ask | None = None) -> None:
        self._context = context
        self._deeds = deeds
        self._ask = ask or partial(_ask, clock=context.clock)
        # Deeds that are waited for; changed under the lock.
        self._running = 0
        self._lock = threading.Lock()

    def begin(self, kind: str, deed: Deed) -> None:
        """Begins one of KINDS. Raises UsageError if nothing runs the connector, BusyError, NoThreadError."""
        connector = self._context.herder.connector(deed.connector)
        if connector.supervisor is None or not connector.supervisor.is_alive():
            raise UsageError(
                f"Nothing runs connector {deed.connector}.", "Resume it first, or wait until it has begun."
            )
        with self._lock:
            if self._running >= MOST_RUNNING:
                raise BusyError(f"{MOST_RUNNING} cleans, snapshots and resyncs are under way.", "Try again later.")
            self._running += 1
        try:
            started(threading.Thread(target=self._run, args=(kind, deed), name="page-deed", daemon=True))
        except BaseException:
            self._over()
            raise

    def _run(self, kind: str, deed: Deed) -> None:
        ok, said = True, ""
        try:
            storage = self._context.storage_of(deed.connector)
            said = _WORDS[kind](self._ask(storage, deed.connector, request(kind), RequestTimeout(WAIT_S)))
        except KeyfoldError as error:
            ok, said = False, logged_text(str(error))
        except Exception:
            ok, said = False, "keyfold has a defect here; the worker's log says more."
            raise
        finally:
            self._deeds.end(deed, said, self._context.clock.now_ms(), ok=ok)
            self._over()

    def _over(self) -> None:
        with self._lock:
            self._running -= 1


def _ask(storage: Storage, name: str, wanted: Request, timeout: RequestTimeout, clock: Any) -> Mapping[str, Any]:
    return ask(storage, name, wanted, timeout, clock)
