"""Reads what is kept of the logs of a connector, whether a worker runs it or not: `keyfold dump`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compactor.catalog.catalog import Catalog
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.runs import reader
from compactor.runs.scan import whole
from connectors.config.connector import ConnectorConfig
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import UsageError


class KeptRecords(NamedTuple):
    """Some records of a partition (record.RUN), at least one."""

    partition: int
    records: pa.RecordBatch


def dump(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    topic: str | None = None,
    partition: int | None = None,
    key: str | None = None,
    limit: int | None = None,
) -> Iterator[KeptRecords]:
    """Yields the records that are kept of a source topic, by partition and offset, without those that were rejected.

    Only those of `partition`, only those with `key`, at most `limit`; no file is read that is not needed. Without
    `topic` the one that is kept. Raises UsageError if that is not one, or has no such partition; StorageError.
    """
    storage = connector_storage(worker, connector.name)
    state = Catalog.open(storage, connector.name).state
    source = topic or only_topic(state, connector.name)
    left = limit
    for log in _logs(state, connector.name, source, partition):
        for batch in reader.read(storage, whole(log)):
            records = _wanted(batch, key)
            records = records if left is None else records.slice(0, left)
            if records.num_rows:
                yield KeptRecords(log.partition, records)
            if left is not None and (left := left - records.num_rows) <= 0:
                return


def only_topic(state: CatalogState, connector: str) -> str:
    """Returns the one topic that is kept. Raises UsageError if there are several, or none."""
    known = sorted({log.topic for log in state.logs})
    if not known:
        raise UsageError(f"Connector {connector} keeps nothing yet.", "Run it first.")
    if len(known) > 1:
        raise UsageError(
            f"Connector {connector} keeps {len(known)} topics.", f"Choose one with --topic: {', '.join(known)}."
        )
    return known[0]


def _logs(state: CatalogState, connector: str, topic: str, partition: int | None) -> Sequence[PartitionLog]:
    """Returns the logs of `topic`, or that of its `partition`. Raises UsageError, which names what is kept."""
    if partition is None:
        return state.logs_of(topic)
    logs, tp = state.by_partition(), TopicPartition(topic, partition)
    if tp not in logs:
        known = ", ".join(map(str, sorted(logs))) or "nothing yet; run it first"
        raise UsageError(f"Connector {connector} keeps no partition {tp}.", f"It keeps {known}.")
    return [logs[tp]]


def _wanted(batch: pa.RecordBatch, key: str | None) -> pa.RecordBatch:
    """Returns the records of `batch` (record.RUN) that were not rejected; with `key` only those that have it."""
    wanted = pc.is_null(batch["rejected"])
    if key is not None:
        wanted = pc.and_kleene(wanted, pc.equal(batch["key"], pa.scalar(key.encode(), pa.binary())))
    return batch.filter(wanted)
