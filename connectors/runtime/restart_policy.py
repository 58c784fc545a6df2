"""Decides whether and when a connector that FAILED is started again: back-off, end of an outage, a command.

A connector is started again by itself after a back-off, if waiting can help. What it lost (brokers or storage) is
asked meanwhile, and ends the wait as soon as it answers; a `restart` request does so at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

import structlog
from msgspec import Struct

from compactor.errors import FencedError, KeyfoldError, TruncatedError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.errors import NoConnectionError, SparkGoneError, TopicSetAsideError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.probe import probe_all
from connectors.progress.observer import Interval
from connectors.runtime.lifecycle import RunEvent

POLL_MS: Final = 1_000
"""How often a connector that waits for its restart looks at requests and at the storage."""
ASK_EVERY_MS: Final = 2_000
"""How often brokers that do not answer are asked again; this and a take-over fit into 5 s (docs/reliability.md)."""
ASK_S: Final = 2.0
"""How long (s) one probe of the brokers may take; those that need longer count as silent."""

_log = structlog.get_logger()


class RestartBackoff(Struct, frozen=True):
    """`restart.backoff.initial.ms` and `restart.backoff.max.ms`."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int) -> int:
        """Returns the wait after the `failures`th failure in a row (from 1): doubled each time, capped."""
        return min(self.max_ms, self.initial_ms * 2 ** min(failures - 1, 40))


def is_retriable(error: BaseException) -> bool:
    """Returns whether a connector that failed with `error` may work later without an operator.

    An error that keyfold does not know is retried: a failed Spark task says nothing about its cause.
    """
    if isinstance(error, FencedError):
        return False
    return error.retriable if isinstance(error, KeyfoldError) else isinstance(error, Exception)


def event_of(error: BaseException, set_aside: Collection[str], *, is_last: bool) -> RunEvent:
    """Returns what a run is that failed with `error`, if earlier ones have set the topics `set_aside` aside.

    `is_last`: this process begins no other run.
    """
    if isinstance(error, FencedError):
        return RunEvent.FENCED
    is_new = isinstance(error, TopicSetAsideError) and str(error.topic) not in set_aside
    if is_new or isinstance(error, TruncatedError):
        return RunEvent.GO_ON
    if is_last or isinstance(error, SparkGoneError):
        return RunEvent.LAST
    return RunEvent.RETRIABLE if is_retriable(error) else RunEvent.FATAL


class Outage:
    """Notices that brokers or storage answer again; `ask` asks them once and returns whether they do.

    `silent`: they did not answer before. They are asked until they have answered. If they answer the first time and
    were not `silent`, there was no outage: the connector failed for another reason.
    """

    def __init__(self, ask: Callable[[], bool], *, silent: bool) -> None:
        self._ask = ask
        self._silent = silent
        self._answered = False

    def is_over(self) -> bool:
        """Asks; returns True once, when they did not answer before and do now."""
        if self._answered:
            return False
        self._answered = self._ask()
        self._silent |= not self._answered
        return self._answered and self._silent


class Outages:
    """The outages that may end a wait, asked every ASK_EVERY_MS."""

    def __init__(self, clock: Clock, *outages: Outage) -> None:
        self._outages = outages
        self._due = Interval(clock, ASK_EVERY_MS)

    def any_over(self) -> bool:
        """Returns True when it is time to ask, and one of the outages is over."""
        over = self._due.ready("outages") and any(outage.is_over() for outage in self._outages)
        if over:
            _log.info("outage is over, starting the connector")
        return over


def brokers_answer(
    worker: WorkerConfig, connector: ConnectorConfig, probe: Callable[[str, ClientSettings, float], None] = probe_all
) -> bool:
    """Returns whether the brokers let every client of `connector` in; otherwise its next run would fail at once."""
    try:
        probe(connector.name, ClientSettings.of(worker, connector), ASK_S)
    except NoConnectionError:
        return False
    except Exception as error:  # noqa: BLE001  # the next run fails with it, and says so
        _log.debug("brokers could not be asked", exc_info=error)
        return False
    return True


def wait_until(clock: Clock, stop: threading.Event, ms: int | None, is_over: Callable[[], bool]) -> bool:
    """Waits for `ms` (None: for ever) or until `is_over()`, which is asked every POLL_MS.

    Returns False if `stop` was set first.
    """
    until_ms = None if ms is None else clock.monotonic_ms() + ms
    while until_ms is None or (left_ms := until_ms - clock.monotonic_ms()) > 0:
        if clock.wait_ms(POLL_MS if until_ms is None else min(left_ms, POLL_MS), stop):
            return False
        if is_over():
            return True
    return True
