"""Compares what is looked up by key with a plain dict of the records that a log keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from compactor.lookup.latest import latest_records
from compactor.model.log import PartitionLog
from compactor.model.record import KEY_IDENTITY, TopicPartition
from compactor.model.state import CatalogState
from compactor.storage.base import Storage
from tests.support.engine import Row
from tests.support.oracle.log_contents import LogContents

ABSENT = b"\x00absent"
"""A key that no history has."""


class LookUps:
    """Looks every key of a log up; again only once the log has changed."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        # Of each log what was kept of it when its keys were looked up.
        self._known: dict[TopicPartition, PartitionLog] = {}

    def violations(self, state: CatalogState, dumps: LogContents) -> Iterator[str]:
        """Yields every key of a log of `state` for which another record is looked up than the dict has."""
        for log in state.logs:
            known = self._known.get(log.tp)
            if known is None or (known.base, known.runs, known.start) != (log.base, log.runs, log.start):
                self._known[log.tp] = log
                yield from (f"{log.tp}: {wrong}" for wrong in self._wrong(log, dumps.of(log)))

    def _wrong(self, log: PartitionLog, dump: Sequence[Row]) -> Iterator[str]:
        latest = {_compared(row): row for row in dump if row["rejected"] is None and row["key"] is not None}
        rows = latest_records(self._storage, log, pa.array([*latest, ABSENT], pa.binary())).to_pylist()
        looked_up = {_compared(row): row for row in rows}
        if len(rows) != len(looked_up):
            yield f"{len(rows)} records are looked up for {len(looked_up)} keys"
        for key in latest.keys() | looked_up.keys():
            if latest.get(key) != looked_up.get(key):
                yield f"for the key {key!r} {looked_up.get(key)} is looked up, and {latest.get(key)} is the latest kept"


def _compared(row: Row) -> bytes:
    key: bytes = row["key"] if row[KEY_IDENTITY] is None else row[KEY_IDENTITY]
    return key
