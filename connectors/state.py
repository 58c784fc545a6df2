"""States of a connector, those of Kafka Connect, and when one that failed is started again; pure.

Connect's clients break on any other word, so detail goes beside the state, never into it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from compactor.briefly import briefly
from compactor.errors import FencedError, KeyfoldError
from connectors.config.secrets import printable_text


class ConnectorState(StrEnum):
    """What `describe` and the status file show."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


WELL_MS: Final = 60_000


class Backoff(Struct, frozen=True):
    """`restart.backoff.initial.ms` and `restart.backoff.max.ms`."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int) -> int:
        """How long to wait after the `failures`th failure in a row (from 1): doubled each time, capped."""
        return min(self.max_ms, self.initial_ms * 2 ** min(failures - 1, 40))

    def well_ms(self, failures: int) -> int:
        """How long a connector runs after its `failures`th failure before that counts as over.

        Twice the last wait, a minute at least: so one that fails again and again waits longer and longer, whether it
        does so at once or after some good micro-batches, and one that fails now and then loses a third of its time
        at most.
        """
        return max(WELL_MS, 2 * self.delay_ms(failures))


class Status(Struct, frozen=True):
    """A connector's state, and what an operator asks next when it is not RUNNING."""

    state: ConnectorState = ConnectorState.UNASSIGNED
    error: str | None = None
    failures: int = 0
    next_restart_ms: int | None = None


def running(status: Status, ran_ms: int, backoff: Backoff) -> Status:
    """The connector has run for `ran_ms` since it was started; failures count until that is long enough."""
    over = status.failures and ran_ms >= backoff.well_ms(status.failures)
    failures = 0 if over else status.failures
    return replace(status, state=ConnectorState.RUNNING, error=None, failures=failures, next_restart_ms=None)


def starting(status: Status) -> Status:
    """The connector is being started, the first time or again."""
    state = ConnectorState.RESTARTING if status.failures else ConnectorState.UNASSIGNED
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
