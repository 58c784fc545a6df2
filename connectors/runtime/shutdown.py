"""How one life of a connector ends when it is told to stop: steps may end within their time, then they are broken off.

Whatever is broken off never happened: the catalog says where the next life goes on. What is left behind is a
transaction that may be open; readers of the output wait for it, so it is ended here and not only by its time-out.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final

import structlog

from compactor.errors import KeyfoldError
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig
from connectors.kafka import producers
from connectors.kafka.client_settings import ClientSettings
from connectors.runtime.breakable import CancellableJob
from connectors.runtime.cancellation import StopToken
from connectors.runtime.components import TaskComponents
from connectors.runtime.maintenance_thread import MaintenanceThread

POLL_SECONDS: Final = 0.1
ABORT_S: Final = 3.0
"""So long the brokers are asked at most to end what a broken-off publish has left open."""

_log = structlog.get_logger()


class Shutdown:
    """Ends what runs of one life, in the order that loses least."""

    def __init__(
        self,
        life: TaskComponents,
        background: MaintenanceThread,
        connector: ConnectorConfig,
        clients: ClientSettings,
        clock: Clock,
        stop: StopToken,
    ) -> None:
        self._life = life
        self._background = background
        self._connector = connector
        self._clients = clients
        self._clock = clock
        self._stop = stop

    def let_finish(self) -> None:
        """Lets no step begin any more, folds end at once, and waits for the micro-batch or publish under way.

        Until it has ended or is to be broken off, which the caller then does.
        """
        self._life.engine.begin_close()
        threading.Thread(target=self._stop_background, daemon=True).start()  # beside: it has the same time
        never = threading.Event()
        while not self._life.engine.is_idle():
            if self._is_over("micro-batch"):
                return
            self._clock.wait(POLL_SECONDS, never)

    def carry_out(self, step: CancellableJob, what: str) -> bool:
        """Carries a step of `--once` out; False where a stop has ended it, or came before it. Raises its error.

        A publish may end within its time, as any micro-batch; everything else is broken off at once.
        """
        if self._stop.is_set():
            return False
        step.start()
        while step.is_alive():
            step.join(POLL_SECONDS)
            if self._stop.is_set() and (what != "publish" or self._is_over(what)):
                self.hurry()
                step.break_off()
        if step.failure is not None and not self._stop.is_set():
            raise step.failure
        return not self._stop.is_set()

    def hurry(self) -> None:
        """From here on what fails was broken off, and says nothing about any log; unless a fold may still end."""
        if not (self._stop.is_set() and self._stop.patient):
            self._life.upkeep.interrupt()

    def abort_transactions(self) -> None:
        """After a stop that has broken a publish off: its transactions are ended, so that no reader waits for them.

        Only while this process is the owner; after a take-over they were ended by the new one (step T2).
        """
        if not (self._stop.is_set() and self._life.engine.transaction_may_be_open):
            return
        try:
            buckets = self._life.owned.catalog.refresh().buckets
            ids = [self._connector.transactional_id(bucket) for bucket in range(buckets)]
            producers.fence_all(self._clients.producer(), ids, ABORT_S)
        except KeyfoldError as error:
            _log.warning("a transaction may be open until its time is over", error=str(error))
        else:
            _log.info("transactions that were broken off are aborted", buckets=buckets)

    def _is_over(self, what: str) -> bool:
        over = self._stop.is_over(self._clock.monotonic())
        if over:
            _log.warning("breaking off what does not end in time", what=what)
        return over

    def _stop_background(self) -> None:
        with suppress(Exception):  # the life's own end asks it again, and raises
            self._background.stop(lambda: self._stop.patient)
