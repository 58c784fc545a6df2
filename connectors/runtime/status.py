"""The state of a connector in Kafka Connect's words, and `status.json`, from which `describe` and other tools read it.

Clients of Connect fail on any other state, so details are fields of their own, never part of the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import ForeignContentError, KeyfoldError, MissingFileError, RejectedRecordError, StorageError
from compactor.json_types import decoded_as
from compactor.spark.errors import briefly
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.secrets import text_of_connector
from connectors.config.worker import WorkerConfig
from connectors.errors import RegistryError

NAME: Final = "status.json"
WRITE_EVERY_MS: Final = 5_000
"""How often status.json is written while something is counted, or the connector does not run."""
WRITE_IDLE_MS: Final = 10_000
"""How often while it runs and nothing is counted: two may come late before `describe` takes the worker for one that
hangs (STALE_MS there). Each write has the disk sync twice, 0.7 ms of processor time."""
_MOST_COUNTERS: Final = 1_000
"""How many counters a status may have; a worker has some thirty."""
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z][A-Za-z0-9_.]{0,63}\Z")]
"""A state, or a counter's name."""
_Error = Annotated[str, Meta(max_length=100_000)]
"""An error's text, in characters: the longest that a worker writes names every topic of a connector."""
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_TimeMs = Annotated[int, Meta(ge=0, lt=253_402_300_800_000)]
"""A time in ms before the year 10000: Python has no later one."""


class ConnectorState(StrEnum):
    """The states that `describe` and status.json show."""

    UNASSIGNED = "UNASSIGNED"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class Status(Struct, frozen=True):
    """A connector's state, and what an operator asks next when it is not RUNNING.

    `waiting_since_ms` is when brokers, a store or a registry ceased to answer it, in ms; None if they do, once it has
    worked again. Until they answer it is RESTARTING: an outage makes no task of Kafka Connect FAILED either.
    """

    state: ConnectorState = ConnectorState.UNASSIGNED
    error: str | None = None
    failures: int = 0
    next_restart_ms: int | None = None
    waiting_since_ms: int | None = None

    @property
    def waits(self) -> bool:
        """Whether it does nothing, as an outage lasts."""
        return self.waiting_since_ms is not None and self.error is not None


def running(status: Status, *, worked: bool, paused: bool = False) -> Status:
    """Returns the status of a connector that runs; once it has `worked`, its failures are counted from 0 again."""
    state = ConnectorState.PAUSED if paused else ConnectorState.RUNNING
    runs = replace(status, state=state, error=None, next_restart_ms=None)
    return replace(runs, failures=0, waiting_since_ms=None) if worked else runs


def starting(status: Status) -> Status:
    """Returns the status of a connector that is being started, the first time or again."""
    first = status.state is ConnectorState.UNASSIGNED
    state = ConnectorState.UNASSIGNED if first else ConnectorState.RESTARTING
    return replace(status, state=state, next_restart_ms=None)


def stopped(status: Status) -> Status:
    """Returns the status of a connector that ended because it was stopped, or because all was done."""
    return replace(status, state=ConnectorState.STOPPED, next_restart_ms=None, waiting_since_ms=None)


def failed(status: Status, error: BaseException, next_restart_ms: int | None, *given: Mapping[str, str]) -> Status:
    """Returns the status of a connector that FAILED once more; without `next_restart_ms` an operator restarts it.

    `given` are the settings of the connector and of its worker: what their placeholders stand for is not shown.
    """
    text = text_of_connector(briefly(error), *given)
    failures = status.failures + 1
    return Status(state=ConnectorState.FAILED, error=text, failures=failures, next_restart_ms=next_restart_ms)


def waiting(
    status: Status, error: BaseException, next_restart_ms: int, now_ms: int, *given: Mapping[str, str]
) -> Status:
    """Returns the status of a connector that failed with `error` at `now_ms`, as an outage has begun or goes on.

    An outage began when what did not answer fell silent, if the error knows it (`silent_ms`).
    `given` are the settings of the connector and of its worker, as for `failed`.
    """
    silent_ms = error.silent_ms if isinstance(error, KeyfoldError) else 0
    since_ms = now_ms - silent_ms if status.waiting_since_ms is None else status.waiting_since_ms
    shown = failed(status, error, next_restart_ms, *given)
    return replace(shown, state=ConnectorState.RESTARTING, waiting_since_ms=since_ms)


def hidden_in(worker: WorkerConfig, connector: ConnectorConfig, error: BaseException) -> tuple[Mapping[str, str], ...]:
    """Returns the settings of which what placeholders stand for is hidden in the text of `error`, for `failed`.

    A client that sees its guess hidden knows that it is right. So nothing is hidden if the error quotes a record, from
    which the chain keeps secrets (`connectors/chain/quoted_settings.py`), and nothing of the worker's if the connector
    was sent over REST, as errors quote its settings.
    """
    if isinstance(error, RejectedRecordError | RegistryError):
        return ()
    return (connector.given,) if connector.limits.over_rest else (connector.given, worker.given)


class StatusFile:
    """Holds one connector's status and counters, and writes them to status.json in its folder.

    `current` is the newest status, `counters` the newest counts. It is written when it changes, else every few seconds.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self.current = Status()
        self._storage = storage
        self._clock = clock
        self.counters: Mapping[str, int] = {}
        # The start of the run that has counted `counters`, and that of the newest run.
        self._counted_since_ms: int | None = None
        self._started_ms: int | None = None
        # What was written last, with which counters, and when (ms).
        self._written: tuple[Status, Mapping[str, int], int] | None = None

    def start(self) -> bool:
        """Writes that the connector is being started; counters that are reported from here on count from now."""
        self._started_ms = self._clock.now_ms()
        return self.show(starting(self.current))

    def report(self, counters: Mapping[str, int], *, worked: bool, paused: bool = False) -> bool:
        """Writes that the connector runs or is paused, and what it has counted since it was started."""
        self.count(counters)
        return self.show(running(self.current, worked=worked, paused=paused))

    def count(self, counters: Mapping[str, int]) -> None:
        """Keeps what has been counted since the connector was started, for the next time that it is written."""
        self.counters, self._counted_since_ms = counters, self._started_ms

    def show(self, status: Status | None = None) -> bool:
        """Writes `status`, or the current one again; returns False if the storage does not take it.

        That does not fail the connector: it is only its status.
        """
        now_ms = self._clock.now_ms()
        self.current = status or self.current
        if self._written and self._written[0] == self.current and now_ms - self._written[2] < self._pause_ms():
            return True
        self._written = self.current, self.counters, now_ms
        try:
            self._storage.write(NAME, msgspec.json.format(msgspec.json.encode(self._body(now_ms)), indent=2))
        except StorageError:
            self._written = None
            return False
        return True

    def _pause_ms(self) -> int:
        """Returns how long the status stays as it was written last, if it has not changed."""
        runs = self.current.state in (ConnectorState.RUNNING, ConnectorState.PAUSED)
        return WRITE_IDLE_MS if runs and self._written and self._written[1] == self.counters else WRITE_EVERY_MS

    def _body(self, now_ms: int) -> dict[str, object]:
        return {
            "state": self.current.state,
            "error": self.current.error,
            "failures": self.current.failures,
            "next_restart_ms": self.current.next_restart_ms,
            "waiting_since_ms": self.current.waiting_since_ms,
            "counters": dict(self.counters),
            "counted_since_ms": self._counted_since_ms,
            "updated_ms": now_ms,
        }


class StatusContent(Struct, frozen=True):
    """The content of status.json; a field that is missing reads as nothing.

    The file lies on a store, so others may have written it: every field is bounded. A `state` that this version does
    not know is taken, as a later one may have written the file; it is a word, so that no state looks like more lines.
    """

    state: _Word = ConnectorState.UNASSIGNED.value
    error: _Error | None = None
    failures: _Count = 0
    next_restart_ms: _TimeMs | None = None
    waiting_since_ms: _TimeMs | None = None
    counters: Annotated[dict[_Word, _Count], Meta(max_length=_MOST_COUNTERS)] = {}
    counted_since_ms: _TimeMs | None = None
    updated_ms: _TimeMs = 0


def read(storage: Storage) -> StatusContent | None:
    """Reads the last status that was written to a connector's folder; None if there is none.

    Of one that cannot be read, the error says why. Raises StorageError.
    """
    try:
        return decoded_as(storage.read(NAME), StatusContent)
    except MissingFileError:
        return None
    except ForeignContentError as error:
        return StatusContent(error=str(error))
    except UNDECODABLE as error:
        unread = f"{storage.location}/{NAME} cannot be read: {why(error)}."
        return StatusContent(
            error=f"{unread} It is damaged, or of another version; a worker that runs writes it again."
        )
