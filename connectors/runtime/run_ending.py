"""Ends one run of a connector that is stopped: steps may finish within their time, then they are dropped.

What is dropped never happened: the next run goes on from the catalog. What it may leave is an open
transaction; readers of the output wait for it, so it is aborted here and not only by its time-out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import structlog

from compactor.errors import KeyfoldError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.kafka import producers
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.runtime.components import TaskComponents
from connectors.runtime.maintenance_thread import MaintenanceThread
from connectors.runtime.stop import Stop
from connectors.spark.cancellable_job import CancellableJob
from connectors.threads import CancellableThread

POLL_MS: Final = 100
ABORT_S: Final = 3.0
"""How long (s) the abort of a cancelled publish's transactions may take."""

_log = structlog.get_logger()


class RunEnding:
    """Ends what one run of a connector has under way, in the order that loses least."""

    def __init__(
        self,
        components: TaskComponents,
        maintenance_thread: MaintenanceThread,
        connector: ConnectorConfig,
        clients: ClientSettings,
        clock: Clock,
        stop: Stop,
        fence: Callable[[Mapping[str, Setting], Iterable[str], float], None] = producers.fence_all,
    ) -> None:
        self._components = components
        self._maintenance_thread = maintenance_thread
        self._connector = connector
        self._clients = clients
        self._clock = clock
        self._stop = stop
        self._fence = fence

    def await_step(self) -> None:
        """Lets no step begin any more, and waits for the micro-batch or publish under way.

        Returns when it has ended or is to be dropped, which the caller then does. Maintenance ends meanwhile, within
        the same time; its fold is dropped at once if the stop drops.
        """
        self._components.engine.begin_close()
        CancellableThread("stop-maintenance", lambda _: self.end_maintenance()).start()
        while not self._components.engine.is_idle():
            if self._is_dropped("micro-batch"):
                return
            self._clock.sleep_ms(POLL_MS)

    def end_maintenance(self) -> None:
        """Ends the maintenance thread: after its fold if the stop finishes, else its fold is dropped."""
        self._maintenance_thread.cancel(finishes=lambda: self._stop.finishes)

    def run_step(self, step: CancellableJob, what: str) -> bool:
        """Runs a step of `--once`; returns False if a stop came before it or ended it. Raises the step's error.

        A publish may finish within its time, as any micro-batch does; every other step is cancelled at once.
        """
        if self._stop.is_set():
            return False
        step.start()
        while not step.join(POLL_MS / 1000):
            if self._stop.is_set() and (what != "publish" or self._is_dropped(what)):
                self.interrupt_maintenance()
                step.cancel()
        if step.failure is not None and not self._stop.is_set():
            raise step.failure
        return not self._stop.is_set()

    def interrupt_maintenance(self) -> None:
        """Interrupts maintenance: an error from here on was caused by the stop and puts no log in quarantine.

        Does nothing if the stop finishes: a fold may still end then.
        """
        if not self._stop.finishes:
            self._components.maintenance.interrupt()

    def abort_transactions(self) -> None:
        """Aborts the transactions of a publish that a stop has cancelled, so that no reader waits for them.

        Does so only while this process is the owner: after a take-over the new owner has aborted them (step T2).
        """
        if not (self._stop.is_set() and self._components.engine.transaction_may_be_open):
            return
        try:
            buckets = self._components.catalog.refresh().buckets
            ids = [self._connector.transactional_id(bucket) for bucket in range(buckets)]
            self._fence(self._clients.producer(), ids, ABORT_S)
        except KeyfoldError as error:
            _log.warning("transaction may stay open until transaction.timeout.ms", error=str(error))
        else:
            _log.info("cancelled transactions aborted", buckets=buckets)

    def _is_dropped(self, what: str) -> bool:
        is_dropped = self._stop.drops_at(self._clock.monotonic_ms())
        if is_dropped:
            _log.warning("cancelling what does not end in time", what=what)
        return is_dropped
