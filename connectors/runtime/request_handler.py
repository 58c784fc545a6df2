"""Carries out the requests of commands: in a live worker, or in the command itself once it has taken over."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, Final

import msgspec
import structlog

from compactor.catalog import requests
from compactor.catalog.catalog import Catalog
from compactor.catalog.requests import Answer, Request
from compactor.errors import KeyfoldError, QuarantinedError, SnapshotError
from compactor.maintenance import Maintenance
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.spark.job_errors import is_cancelled
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.config.secrets import logged_text
from connectors.errors import EXIT_UNREACHABLE, exit_code, is_outage

SNAPSHOT: Final = "snapshot"
CLEAN: Final = "clean"
RELEASE: Final = "release"
ERASE: Final = "erase"
RESTART: Final = "restart"
RESYNC: Final = "resync"
RESYNC_SINCE: Final = "resync-since"
"""A resync from a time or an offset on. It has a name of its own, which an older worker refuses: by
RESYNC that worker would read everything again."""
RESYNCS: Final = (RESYNC, RESYNC_SINCE)
OF_A_RUN: Final = (RESTART, *RESYNCS)
"""The requests that a connector's supervisor answers, as a new run begins with them (`request_answers.py`)."""

_AGAIN: Final = "Run the command again once the connector runs; what was done of it counts."

_log = structlog.get_logger()


class RequestHandler:
    """Carries out the requests in one connector's folder.

    `check_visible` raises NotVisibleError if readers of the outputs do not see all that the catalog calls published.
    `running` gives the jobs that still run. A commit may name their files yet, so that a vacuum leaves them.
    """

    def __init__(
        self,
        storage: Storage,
        catalog: Catalog,
        maintenance: Maintenance,
        clock: Clock,
        check_visible: Callable[[CatalogState], None],
        running: Callable[[], Container[str]] = tuple,
    ) -> None:
        self._storage = storage
        self._catalog = catalog
        self._maintenance = maintenance
        self._clock = clock
        self._check_visible = check_visible
        self._running = running

    def is_any_pending(self) -> bool:
        """Returns whether any request waits, one for a restart as well. Raises StorageError."""
        return requests.is_any_pending(self._storage)

    def answer_all(self) -> None:
        """Carries out every request that waits. Raises what ends a connector anyway (StorageError, FencedError)."""
        for request in requests.pending(self._storage, self._clock.now_ms()):
            if request.kind in OF_A_RUN or not requests.begin(self._storage, request.id):
                continue
            _log.info("request", kind=request.kind, id=request.id)
            try:
                answer = self._try(request)
            except Exception as error:
                # Answered first: a command that asks again and again must not end every run of this connector.
                requests.answer(self._storage, request.id, self._unfinished(request, error))
                raise
            requests.answer(self._storage, request.id, answer)

    def _unfinished(self, request: Request, error: Exception) -> Answer:
        """Returns the answer to a request with an error that ends the run, or comes of its end."""
        if not is_cancelled(error):
            return Answer(ok=False, message=logged_text(str(error)))
        connector = self._catalog.state.connector
        said = f"Connector {connector} was stopped, or started again, before its {request.kind} was done."
        return Answer(ok=False, message=said, action=_AGAIN)

    def carry_out(self, request: Request) -> dict[str, Any]:
        """Does what `request` asks for; returns the result as `operations/` reads it. Raises KeyfoldError."""
        now_ms = self._clock.now_ms()
        wanted = requested_logs(request, self._catalog.state)
        match request.kind:
            case "snapshot":
                taken = self._maintenance.snapshot(now_ms)
                self._maintenance.check_complete()
                self._check_visible(self._catalog.state)
                return {"snapshots": msgspec.to_builtins(taken)}
            case "clean":
                cleaned = self._maintenance.cleaner.clean(now_ms, wanted)
                self._maintenance.check_complete(wanted)
                self._check_visible(self._catalog.state)
                return {"logs": msgspec.to_builtins(cleaned)}
            case "erase":
                done = self._maintenance.erase(now_ms, request.topics, request.snapshots, request.files, self._running)
                self._check_visible(self._catalog.state)
                return {"erased": msgspec.to_builtins(done)}
            case "release":
                return {"released": self._maintenance.release(now_ms, wanted)}
        raise BadRequestError(
            f"The worker that runs this connector does not know {request.kind!r}.",
            "Run worker and command from the same version of keyfold.",
        )

    def _try(self, request: Request) -> Answer:
        try:
            return Answer(ok=True, result=self.carry_out(request))
        except KeyfoldError as error:
            if error.retriable or isinstance(error, BadRequestError | QuarantinedError | SnapshotError):
                unreachable = exit_code(error) == EXIT_UNREACHABLE or is_outage(error)
                said = logged_text(error.message)  # here: the command's process knows no value of a placeholder
                return Answer(ok=False, message=said, action=error.action, unreachable=unreachable)
            raise


class BadRequestError(KeyfoldError):
    """A request names a topic, partition or operation that there is not."""


def requested_logs(request: Request, state: CatalogState) -> tuple[TopicPartition, ...] | None:
    """Returns the logs that `request` names, None if it names all. Raises BadRequestError if there are none."""
    if request.topic is None:
        return None
    named = tuple(log.tp for log in state.logs_of(request.topic) if request.partition in (None, log.partition))
    if named:
        return named
    where = f"topic {request.topic}" + ("" if request.partition is None else f", partition {request.partition}")
    known = ", ".join(sorted(state.topics)) or "none yet"
    raise BadRequestError(
        f"Connector {state.connector} has no {where}.", f"Its topics are: {known}; `keyfold describe` shows all."
    )
