"""States of a connector, those of Kafka Connect, and when one that failed is started again; pure.

Connect's clients break on any other word, so detail goes beside the state, never into it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import FencedError, KeyfoldError
from compactor.spark.errors import briefly
from connectors.config.secrets import printable_text


class ConnectorState(StrEnum):
    """What `describe` and the status file show."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class Backoff(Struct, frozen=True):
    """`restart.backoff.initial.ms` and `restart.backoff.max.ms`."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int) -> int:
        """How long to wait after the `failures`th failure in a row (from 1): doubled each time, capped."""
        return min(self.max_ms, self.initial_ms * 2 ** min(failures - 1, 40))


class Status(Struct, frozen=True):
    """A connector's state, and what an operator asks next when it is not RUNNING."""

    state: ConnectorState = ConnectorState.UNASSIGNED
    error: str | None = None
    failures: int = 0
    next_restart_ms: int | None = None


def running(status: Status, *, worked: bool) -> Status:
    """The connector runs; once it has `worked` since it was started, its next failure is the first in a row again."""
    failures = 0 if worked else status.failures
    return replace(status, state=ConnectorState.RUNNING, error=None, failures=failures, next_restart_ms=None)


def starting(status: Status) -> Status:
    """The connector is being started, the first time or again."""
    first = status.state is ConnectorState.UNASSIGNED
    state = ConnectorState.UNASSIGNED if first else ConnectorState.RESTARTING
    return replace(status, state=state, next_restart_ms=None)


def stopped(status: Status) -> Status:
    """The connector ended because it was asked to, or because all was done."""
    return replace(status, state=ConnectorState.STOPPED, next_restart_ms=None)


def failed(status: Status, error: BaseException, backoff: Backoff, now_ms: int, *, once: bool = False) -> Status:
    """The connector FAILED with `error`; it is started again by itself only where waiting can help, and not `once`."""
    failures = status.failures + 1
    restart = now_ms + backoff.delay_ms(failures) if restarts(error) and not once else None
    text = printable_text(briefly(error))
    return Status(state=ConnectorState.FAILED, error=text, failures=failures, next_restart_ms=restart)


def restarts(error: BaseException) -> bool:
    """Whether a connector that failed with `error` may work later without anybody changing anything.

    An error that keyfold does not know is retried: a failed Spark task says nothing about its cause.
    """
    if isinstance(error, FencedError):
        return False
    return error.retriable if isinstance(error, KeyfoldError) else isinstance(error, Exception)
