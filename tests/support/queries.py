"""A worker's streaming query for runs in this process: one of their own, or one that is kept from run to run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from connectors.clock import SystemClock
from connectors.runtime.shared_query import SharedQuery

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDED_S: Final = 120.0


@contextmanager
def shared_query(spark: SparkSession) -> Iterator[SharedQuery]:
    """Runs a worker's streaming query for one connector during the block."""
    query = SharedQuery(spark, SystemClock(), connectors=1)
    query.start(prepares=False)
    try:
        yield query
    finally:
        assert query.stop(ENDED_S)


class QueryKeeper:
    """Lends a query to runs, and keeps it from one to the next, as a worker does: to start one takes a second or two.

    Without `keeping` each run has a query of its own.
    """

    def __init__(self) -> None:
        # Held by the run that reads through the query that is kept.
        self._lent = threading.Lock()
        # Ends the query that is kept; None if none is to be kept.
        self._kept: ExitStack | None = None
        # The query that is kept; None until a run asks for it.
        self._query: SharedQuery | None = None

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keeps the query that is lent first to the end of the block."""
        with ExitStack() as kept:
            self._kept = kept
            try:
                yield
            finally:
                self._kept = self._query = None

    @contextmanager
    def lend(self, spark: SparkSession) -> Iterator[SharedQuery]:
        """Lends the query that is kept, or one of its own to a run that comes while another one has that."""
        if self._kept is None or not self._lent.acquire(blocking=False):
            with shared_query(spark) as query:
                yield query
            return
        try:
            if self._query is None:
                self._query = self._kept.enter_context(shared_query(spark))
            yield self._query
        finally:
            self._lent.release()


QUERIES: Final = QueryKeeper()
"""Of this process: the tests of a folder have it keep a query by a fixture."""
