"""A table that stays current: a snapshot, and a thread that applies the changes of its output topic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import structlog

from compactor.errors import KeyfoldError, StorageError
from connectors.bootstrap.changes import Changes
from connectors.bootstrap.freshness import ReadTime
from connectors.bootstrap.position import BEGIN_AGAIN
from connectors.bootstrap.records import TableRecord
from connectors.bootstrap.table_state import TableState
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import BootstrapError, ResumeError, UnreachableError
from connectors.threads import CancellableThread

_log = structlog.get_logger(__name__)

READY_S: Final = 600.0
"""How long a table may take, by default, to read what its output topic has more than the snapshot."""
_POLL_S: Final = 0.2
# Between two tries (ms) to begin again, or to read on.
_AGAIN_MS: Final = 1_000


class Beginning(NamedTuple):
    """What a table begins with: the id of a snapshot, its records, and the changes that follow."""

    snapshot: str
    state: TableState
    changes: Changes


class Table:
    """The last record of each key, kept current by a thread; a context manager. Any threads may read it.

    `table[key]` and `get` take the key's bytes, or a typed key as its records have it. If a key is in several
    partitions, they give the record of the latest time, while `len` and an iteration count each. What a reader gets was
    so at some moment of its call. If reading on fails for good, every read raises the error. A table that cannot go on
    in the output begins again with the newest snapshot.

    `begin` loads the newest snapshot and opens its changes, and `ready_s` is how long (s) what is there may take.
    """

    def __init__(self, begin: Callable[[], Beginning], ready_s: float = READY_S, clock: Clock = SYSTEM_CLOCK) -> None:
        self._begin = begin
        self._ready_s = ready_s
        self._clock = clock
        # Replaced by the thread if it begins again.
        self._now = begin()
        # The latest moment of which the table has all; None before the first. Set by the thread, which then notifies.
        self._current: ReadTime | None = None
        self._polled = threading.Condition()
        self._thread = CancellableThread("keyfold-table", self._keep_current)
        self._thread.when_over(self._notify)

    def __enter__(self) -> Self:
        try:
            self._thread.start()
            self.catch_up(self._ready_s)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, key: Any) -> TableRecord:
        record = self.get(key)
        if record is None:
            raise KeyError(key)
        return record

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return len(self._state())

    def __iter__(self) -> Iterator[TableRecord]:
        return iter(self._state())

    def get(self, key: Any) -> TableRecord | None:
        """Returns the record of `key`, None if there is none. Raises what ended the reading."""
        return self._state().get(key)

    @property
    def snapshot(self) -> str:
        """The id of the snapshot that the table began with, last."""
        return self._now.snapshot

    def freshness(self) -> float | None:
        """Returns how old (s) the table may be: it has at least what readers of the output saw so long ago.

        None before that is known: while what came after the snapshot is read. Raises what ended the reading.
        """
        self._state()
        current = self._current
        return None if current is None else (self._clock.monotonic_ms() - current.monotonic_ms) / 1000

    def catch_up(self, timeout_s: float) -> None:
        """Waits until the table has all that readers of the output see now.

        Raises UnreachableError if that takes longer than `timeout_s`, and what ended the reading.
        """
        began_ms = self._clock.monotonic_ms()
        self._now.changes.ask_soon()
        with self._polled:
            while self._current is None or self._current.monotonic_ms < began_ms:
                self._state()
                left_ms = began_ms + timeout_s * 1000 - self._clock.monotonic_ms()
                if left_ms <= 0:
                    raise UnreachableError(
                        f"The table did not reach the end of its output topic within {timeout_s:.0f} s.",
                        "Give it more time, and check that the brokers can be reached.",
                    )
                self._polled.wait(left_ms / 1000)

    def close(self) -> None:
        """Ends the thread, and closes the connections; the last records can still be read."""
        self._thread.cancel()
        self._now.changes.close()

    def _state(self) -> TableState:
        failure = self._thread.failure
        if failure is None:
            return self._now.state
        if isinstance(failure, KeyfoldError):  # a new one for each caller: an error collects its tracebacks
            raise type(failure)(failure.message, failure.action) from failure
        raise BootstrapError(f"A table was read on no more: {failure}.", BEGIN_AGAIN) from failure

    def _keep_current(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                polled = self._now.changes.poll(_POLL_S)
            except ResumeError as error:
                self._begin_again(error, stop)
                continue
            except UnreachableError as outage:
                _log.warning("the output topic cannot be read, it is tried again", reason=str(outage))
                self._clock.wait_ms(_AGAIN_MS, stop)
                continue
            self._now.state.apply(polled)
            self._current = self._now.changes.current
            self._notify()

    def _begin_again(self, error: ResumeError, stop: threading.Event) -> None:
        """Begins with a newer snapshot; raises `error` if there is none. Outages are waited for."""
        before = self._now
        before.changes.close()
        _log.warning("a table begins again with the newest snapshot", snapshot=before.snapshot, reason=str(error))
        while not stop.is_set():
            try:
                self._now = self._begin()
            except (StorageError, UnreachableError) as outage:
                _log.warning("the newest snapshot cannot be read, it is tried again", reason=str(outage))
                self._clock.wait_ms(_AGAIN_MS, stop)
                continue
            if self._now.snapshot == before.snapshot:
                raise error
            return

    def _notify(self) -> None:
        with self._polled:
            self._polled.notify_all()
