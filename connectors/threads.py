"""Runs threads that can be stopped and cancelled.

A `CallQueue` makes calls that must hold up no other thread. Threads that only copy a pipe until it ends
(`jvm/stderr.py`, `progress/live.py`) are plain daemon threads, and short pieces of work side by side are given to a
pool (`runtime/shared_query.py`), which this process waits for when it ends.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import structlog

from connectors.clock import Clock
from connectors.errors import NoThreadError

POLL_SECONDS: Final = 0.2
"""How long `cancel` waits before it interrupts a thread again that has not ended."""

StartThread = Callable[[threading.Thread], None]
"""Starts a thread; raises RuntimeError if the process may have no more of them."""

_log = structlog.get_logger()


def _begin(thread: threading.Thread) -> None:
    thread.start()


def started(thread: threading.Thread, start: StartThread = _begin) -> threading.Thread:
    """Starts a thread and returns it. Raises NoThreadError if the process may have no more of them."""
    try:
        start(thread)
    except RuntimeError as error:
        raise NoThreadError(
            f"The worker could start no thread ({thread.name}): {error}.",
            "Raise the limit of processes and threads (ulimit -u, pids of the container), or have fewer connectors.",
        ) from error
    return thread


def join_within(threads: Iterable[threading.Thread], ms: int, clock: Clock) -> None:
    """Waits until threads have ended, for at most `ms` for all of them together."""
    until_ms = clock.monotonic_ms() + ms
    for thread in threads:
        thread.join(max(0, until_ms - clock.monotonic_ms()) / 1000)


class CancellableThread:
    """Runs `work` on a daemon thread, with the log fields of the thread that makes it.

    `work` gets an event, which is set when the thread is to end by itself. `failure` is what `work` raised; what it
    raises after it was stopped is logged at level debug and is no failure.
    """

    def __init__(self, name: str, work: Callable[[threading.Event], object]) -> None:
        self.failure: BaseException | None = None
        self._work = work
        self._stop = threading.Event()
        # Whether `work` has returned or raised; the thread itself may live on for a moment. Set by the thread.
        self._over = False
        # Called by the thread at its end; set by `when_over` before the start.
        self._when_over: Callable[[], object] = lambda: None
        self._fields = structlog.contextvars.get_contextvars()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread; to be called once. Raises NoThreadError."""
        started(self._thread)

    def when_over(self, call: Callable[[], object]) -> None:
        """Sets what the thread calls once its work is over, however that ended; to be set before `start`."""
        self._when_over = call

    def is_alive(self) -> bool:
        """Returns whether the thread was started and its work is not over."""
        return self._thread.is_alive() and not self._over

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the thread has ended, for at most `seconds`; returns whether it has, or was never started."""
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Asks the thread to end after what it does now."""
        self._stop.set()

    def cancel(self, *, finishes: Callable[[], bool] = lambda: False) -> None:
        """Stops the thread and returns when it has ended; may be called again.

        What it does now may finish as long as `finishes()` is true, and is interrupted otherwise.
        """
        self.stop()
        while self._thread.is_alive():
            if not finishes():
                self.interrupt()  # again and again: the thread may have begun another piece of work just after
            self._thread.join(POLL_SECONDS)

    def interrupt(self) -> None:
        """Ends what the thread does now. Does nothing here: `work` looks at its event."""

    def _run(self) -> None:
        with structlog.contextvars.bound_contextvars(**self._fields):
            try:
                self._work(self._stop)
            except BaseException as error:  # noqa: BLE001  # the thread that waits for this one raises it
                let_go(error)
                if self._stop.is_set():
                    _log.debug("failed after it was stopped", exc_info=error)
                else:
                    self.failure = error
            finally:
                self._over = True
                self._when_over()


class CallQueue:
    """Makes calls one after the other, in the order in which they were asked for, on a daemon thread of its own.

    For what waits for a disk or a store, and that no other thread is to wait for. What a call raises is logged. `start`
    starts the thread.
    """

    def __init__(self, name: str, start: StartThread = _begin) -> None:
        self._name = name
        self._start = start
        # The calls that were asked for and not begun. Changed under `_changed`.
        self._calls: deque[Callable[[], object]] = deque()
        self._runs = False
        """Whether the thread is there, which ends with the last call. Only changed under `_changed`."""
        self._changed = threading.Condition()

    def ask(self, call: Callable[[], object]) -> None:
        """Adds `call` to those that the thread makes, and does not wait for it.

        Raises NoThreadError; then the call is not made, and the next one starts the thread.
        """
        with self._changed:
            if not self._runs:
                started(threading.Thread(target=self._run, name=self._name, daemon=True), self._start)
                self._runs = True
            self._calls.append(call)  # which the new thread sees only once this one has left the lock

    def wait(self, seconds: float) -> bool:
        """Waits for at most `seconds` until every call was made; returns whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._calls:
                    self._runs = False
                    self._changed.notify_all()
                    return
                call = self._calls.popleft()
            try:
                call()
            except BaseException as error:  # noqa: BLE001  # a panic of Rust too: the others are made all the same
                _log.warning("what was to be done beside everything else failed", thread=self._name, error=str(error))


def let_go(error: BaseException) -> None:
    """Clears the local variables of all frames that `error`, and what it came from, has in its tracebacks.

    For an error that is kept, as one that a connector has FAILED with is for hours: its frames hold consumers,
    connections, generators that were not closed, and records. The tracebacks still name files and lines.
    """
    for link in _origins(error):
        traceback.clear_frames(link.__traceback__)  # not those that run at the moment


def _origins(error: BaseException) -> Iterator[BaseException]:
    """Yields `error` and all that it came from, each once."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            waiting += link.exceptions
