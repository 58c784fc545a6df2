"""Sets a source topic aside when reading it has ended a life of its connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from compactor.catalog.catalog import Catalog
from compactor.errors import KeyfoldError
from compactor.model.actions import AnyAction
from compactor.model.state import State
from compactor.spark.errors import unwrap
from connectors.errors import DataLossError, SourceAsideError, SourceChangedError
from connectors.source import aside

NEXT: Final = "It is set aside, and the connector is started again to go on with its other topics."


@contextmanager
def setting_aside(
    catalog: Catalog, look_into: Callable[[State], Sequence[AnyAction]], now_ms: Callable[[], int]
) -> Iterator[None]:
    """Where the block fails because of a source topic, sets that topic aside if the connector has others.

    Then raises SourceAsideError: the next life goes on without the topic. Where a look at the topics finds nothing
    wrong any more (a log that was cut has grown again), the error stays what it is, and an operator decides; that
    other topics are set aside says nothing of that one.
    """
    try:
        yield
    except Exception as failed:
        found = unwrap(failed)
        if not isinstance(found, SourceChangedError | DataLossError):
            raise
        with suppress(KeyfoldError):  # then the first error is the one to tell
            found_out = look_into(catalog.refresh())
            catalog.commit(lambda _: found_out, now_ms())
        if found.topic not in aside.names(catalog.state):
            raise
        raise SourceAsideError(found.message, NEXT) from failed
