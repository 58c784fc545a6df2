"""One connector's thread: runs its pipeline, and starts it again with back-off where that can help."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from compactor.errors import FencedError
from compactor.faults import unwrap
from connectors import spark as sparks
from connectors import state
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.pipeline import Pipeline
from connectors.progress import Observer
from connectors.state import Backoff, Status
from connectors.status import WRITE_EVERY_MS, StatusFile
from connectors.stopping import Stop
from connectors.stores import connector_storage, warn_of_readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


class Supervisor:
    """Keeps one connector running. `error` is what ended it, None while it runs or when it ended well."""

    def __init__(self, worker: WorkerConfig, connector: ConnectorConfig, clock: Clock, observer: Observer) -> None:
        self.error: BaseException | None = None
        self._made_of = (worker, connector, clock, observer, self._report)
        self._name = connector.name
        self._clock = clock
        self._backoff = Backoff(connector.restart_backoff_initial_ms, connector.restart_backoff_max_ms)
        self._file = StatusFile(connector_storage(worker, connector.name))
        warn_of_readers(worker, connector.name)
        self._status = Status()
        self._stop = Stop()
        self._thread = threading.Thread(target=lambda: None)
        self._catalog_id: str | None = None
        self._ran_from: float | None = None

    def start(self, spark: SparkSession, *, once: bool) -> None:
        """Starts the connector's thread; with `once` it ends when all that is there now is done."""
        self._thread = threading.Thread(target=self._run, args=(spark,), kwargs={"once": once}, name=self._name)
        self._thread.daemon = True
        self._thread.start()

    def fail(self, error: BaseException) -> None:
        """The connector, which was not started, ends with `error`."""
        with structlog.contextvars.bound_contextvars(connector=self._name):
            self._fail(error, once=True)

    def ask_to_stop(self, *, patient: bool = False, break_at: float | None = None) -> None:
        """Lets the step that runs now end, and then the connector; where `patient`, a running fold as well.

        At `break_at`, in monotonic seconds, that step is broken off; where there is none it may take its time.
        """
        self._stop.ask(patient=patient, break_at=break_at)

    def join(self, seconds: float | None = None) -> bool:
        """Waits until the thread has ended, `seconds` at most; whether it has."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def is_alive(self) -> bool:
        """Whether the connector still runs, or will be started again."""
        return self._thread.is_alive()

    def _run(self, spark: SparkSession, *, once: bool) -> None:
        with structlog.contextvars.bound_contextvars(connector=self._name):
            while self._attempt(spark, once=once) and not once and self._wait_for_restart():
                pass

    def _attempt(self, spark: SparkSession, *, once: bool) -> bool:
        """One life of the pipeline; True if it failed."""
        self._show(state.starting(self._status))
        self.error = None
        self._ran_from = None
        pipeline = Pipeline(spark, *self._made_of)
        try:
            pipeline.run(self._stop, once=once, known=self._catalog_id)
        except Exception as error:  # noqa: BLE001  # whatever it was, it ends this connector only
            found = unwrap(error) or error
            if not self._stop.is_set() or isinstance(found, FencedError):
                self._fail(sparks.gone(spark) or found, once=once)
                return True
            # Whoever stops us may have stopped Spark's JVM first; what that breaks is no failure.
            _log.debug("broken off by the stop", exc_info=found)
        finally:
            self._catalog_id = pipeline.catalog_id or self._catalog_id
        self._show(state.stopped(self._status))
        return False

    def _fail(self, error: BaseException, *, once: bool) -> None:
        self.error = error
        self._status = state.failed(self._status, error, self._backoff, self._clock.now_ms(), once=once)
        if not isinstance(error, FencedError):  # then the file is the new owner's
            self._show(self._status)
        _log.error(
            "connector FAILED",
            error=self._status.error,
            failures=self._status.failures,
            **self._restart(),
        )
        _log.debug("what failed", exc_info=error)

    def _restart(self) -> dict[str, int]:
        """In how many seconds it is started again, for the log; nothing where it is not."""
        at_ms = self._status.next_restart_ms
        return {} if at_ms is None else {"restart_in_s": round((at_ms - self._clock.now_ms()) / 1000)}

    def _report(self, counters: dict[str, int]) -> None:
        """Called by the pipeline again and again while it runs."""
        now = self._clock.monotonic()
        if self._ran_from is None:
            self._ran_from = now
        self._status = state.running(self._status, round((now - self._ran_from) * 1000), self._backoff)
        self._file.write(self._status, self._clock.now_ms(), counters)

    def _show(self, status: Status) -> None:
        self._status = status
        self._file.write(status, self._clock.now_ms())

    def _wait_for_restart(self) -> bool:
        """True once the connector is to be started again; False where it is not, or was stopped meanwhile."""
        if self._status.next_restart_ms is None:
            return False
        until = self._clock.monotonic() + self._backoff.delay_ms(self._status.failures) / 1000
        while (left := until - self._clock.monotonic()) > 0:
            if self._clock.wait(min(left, WRITE_EVERY_MS / 1000), self._stop):
                self.error = None  # it was to be started again: being stopped meanwhile is a clean end
                self._show(state.stopped(self._status))
                return False
            self._show(self._status)  # whoever asks is to see that somebody still waits
        return True
