"""Makes the calls of requests that wait for a disk, a store, a broker or a check, on threads that are few and counted.

The threads of the framework are then left for what is answered from memory: `/health`, `/metrics`, states. Each kind
of slow call has threads of its own, so that a store that hangs for reads leaves those of changes. They are daemons:
a call that hangs does not keep the process from ending.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Final, Generic, ParamSpec, TypeVar

from connectors.errors import BusyError
from connectors.threads import StartThread

P = ParamSpec("P")
T = TypeVar("T")

WAIT_S: Final = 5.0
"""How long (s) a request waits for one of the threads: a burst gets through, and a client hears soon of a store that
hangs."""
WAITING: Final = 32
"""How many requests of a kind wait so: all kinds together leave connections for what is answered from memory
(`ClientLimits.connections`)."""
LOOK_UPS: Final = 4
"""How many look-ups are made side by side in an object store: each waits for its requests."""
FOLDER_LOOK_UPS: Final = 2
"""The same in a folder, where a look-up computes and next to never waits. Among a worker's threads four side by side
made no more a second, and took a quarter longer for one of a hundred."""
LOOK_UPS_WAITING: Final = 12
"""The same for look-ups, which take milliseconds: fewer, as the connections that are left are few."""
WIDE_WAITING: Final = 4
"""The same for wide look-ups, and for metrics, for which a few servers ask, every few seconds."""
OFFSETS_WAITING: Final = 16
"""The same for changes of offsets, which take seconds each: more would not have their turn within WAIT_S."""
LETTERS_WAITING: Final = 4
"""The same for looks at dead letters, for which people ask, by pages."""
RETRY_AFTER_S: Final = 5
"""After how long (s) a client that was refused is to ask again, by the header Retry-After."""


IDLE_S: Final = 10.0
"""How long (s) a thread without a call stays: to start one takes 0.2 ms, a fifth of a look-up with its request."""


class _Threads:
    """Up to `most` daemon threads, each of which makes one call after the other, in the order in which they come.

    A thread that ends a call takes the next one that waits by itself: it need not wait until the event loop has the
    interpreter's lock and has woken a thread.
    """

    def __init__(self, name: str, most: int, start: StartThread) -> None:
        self._name = name
        self._most = most
        self._start = start
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        # Threads, and calls that were given to them and are neither over nor taken back; changed under the lock.
        self._threads = 0
        self._asked = 0
        self._lock = threading.Lock()

    @property
    def asked(self) -> int:
        """How many calls are under way or wait."""
        return self._asked

    def make(self, call: Callable[[], None]) -> bool:
        """Has `call` made; returns whether it may have to wait for a thread. Each is followed by `over`.

        Raises what starting a thread raises: `call` is then never made.
        """
        with self._lock:
            self._asked += 1
            waits = self._asked > self._most
            is_new = self._threads < min(self._asked, self._most)
            self._threads += is_new
        if is_new:
            try:
                self._start(threading.Thread(target=self._run, name=self._name, daemon=True))
            except BaseException:
                with self._lock:
                    self._asked -= 1
                    self._threads -= 1
                raise
        # Only now: a call that is in the queue is made by whichever thread comes to it, and cannot be taken back.
        self._calls.put(call)
        return waits

    def over(self) -> None:
        """Says that a call is over, or that it is not to be made."""
        with self._lock:
            self._asked -= 1

    def _run(self) -> None:
        while True:
            try:
                call = self._calls.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._asked < self._threads:  # every call that comes has a thread without this one
                        self._threads -= 1
                        return
                continue
            call()


class _Asked(Generic[T]):
    """A call that a request has asked for: a thread makes it, or it is given up before one comes to it."""

    def __init__(self, call: Callable[[], T], over: Callable[[], None]) -> None:
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._call = call
        self._over = over
        # Who has it makes the call, or says that it is not to be made.
        self._turn = threading.Lock()

    def make(self) -> None:
        """Makes the call on this thread, unless it was given up."""
        if not self._turn.acquire(blocking=False):
            return
        outcome = _outcome(self._call)
        self._over()
        with suppress(RuntimeError):  # the loop has ended, and nothing is answered any more
            self.answer.get_loop().call_soon_threadsafe(self._tell, *outcome)

    def give_up(self, error: BaseException) -> None:
        """Has the request raise `error`, unless the call is being made; on the event loop."""
        if self._turn.acquire(blocking=False):
            self._over()
            self._tell(error, None)

    def _tell(self, error: BaseException | None, value: T | None) -> None:
        if self.answer.done():  # the client has gone
            return
        if error is not None:
            self.answer.set_exception(error)
        else:
            self.answer.set_result(value)  # type: ignore[arg-type]  # without an error it is the call's value


class SlowCalls:
    """Calls of one kind, of which at most `most` are under way, and `waiting` wait, each for `wait_s`.

    To be used on one event loop. `start` starts their threads.
    """

    def __init__(
        self,
        kind: str,
        most: int,
        waiting: int = WAITING,
        wait_s: float = WAIT_S,
        start: StartThread = threading.Thread.start,
    ) -> None:
        self.most = most
        self.most_waiting = waiting
        self._kind = kind
        self._wait_s = wait_s
        self._threads = _Threads(f"rest-{kind}", most, start)

    async def run(self, call: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
        """Makes a call on a thread, and returns what it does.

        Raises BusyError if none becomes free in time, too many others wait for one, or none can be started: the call
        is not made then. A client that goes ends neither the call nor its place among the `most`: the call may still
        wait.
        """
        if self._threads.asked >= self.most + self.most_waiting:
            raise self._busy()
        asked = _Asked(partial(copy_context().run, partial(call, *args, **more)), self._threads.over)
        if not self._make(asked.make):  # a timer would cost more than a look-up in memory
            return await asked.answer
        timer = asyncio.get_running_loop().call_later(self._wait_s, lambda: asked.give_up(self._busy()))
        try:
            return await asked.answer
        except asyncio.CancelledError as error:
            asked.give_up(error)
            raise
        finally:
            timer.cancel()

    def _make(self, call: Callable[[], None]) -> bool:
        """Has `call` made; returns whether it may have to wait. Raises BusyError if no thread can be started for it."""
        try:
            return self._threads.make(call)
        except RuntimeError as error:
            raise BusyError(
                f"The worker could start no thread for {self._kind}: {error}.",
                "Nothing was done. Raise the limit of processes and threads (ulimit -u, pids of the container).",
            ) from error

    def _busy(self) -> BusyError:
        return BusyError(
            f"{self.most} {self._kind} are under way, as many as the worker makes at once.",
            "They wait for the storage, for brokers, or for a check; see the worker's log, or ask again later.",
        )


def _outcome(call: Callable[[], T]) -> tuple[BaseException | None, T | None]:
    """Makes a call; returns the error that it has raised, or what it has returned."""
    try:
        return None, call()
    except StopIteration as error:  # which no future takes
        return RuntimeError(f"{type(error).__name__} was raised"), None
    except BaseException as error:  # noqa: BLE001  # the request raises it
        return error, None


class Slow:
    """The kinds of slow calls, with how many of each are made at once; a request waits `wait_s` for its turn.

    `in_folder`: what the worker keeps lies in a folder, not in an object store.
    """

    def __init__(self, wait_s: float = WAIT_S, *, in_folder: bool = False) -> None:
        # Makes, changes, pauses and deletes connectors: each waits for the store, and some for one another.
        self.changes = SlowCalls("changes", 16, wait_s=wait_s)
        # Reads catalogs of connectors that do not run.
        self.reads = SlowCalls("reads", 8, wait_s=wait_s)
        # Look keys up, each by some reads of the store.
        look_ups = FOLDER_LOOK_UPS if in_folder else LOOK_UPS
        self.look_ups = SlowCalls("look-ups", look_ups, LOOK_UPS_WAITING, wait_s)
        # The same in hundreds of runs, which takes seconds of a core: one, so that others and connectors go on.
        self.wide_look_ups = SlowCalls("wide look-ups", 1, WIDE_WAITING, wait_s)
        # Look up values of keys in the forms in which they may be kept: each may wait for a schema registry.
        self.typed_look_ups = SlowCalls("look-ups of values of keys", 1, WIDE_WAITING, wait_s)
        # Write the metrics of all connectors, which computes only: one, as several make each other and all others wait.
        self.metrics = SlowCalls("writings of metrics", 1, WIDE_WAITING, wait_s)
        # Checks configs, which takes a core each.
        self.checks = SlowCalls("checks", 4, wait_s=wait_s)
        # Changes offsets, each for as long as reading an output topic takes.
        self.offsets = SlowCalls("changes of offsets", 4, OFFSETS_WAITING, wait_s)
        # Looks at dead letters: each waits for brokers most of the time, and holds some MiB.
        self.letters = SlowCalls("looks at dead letters", 8, LETTERS_WAITING, wait_s)
