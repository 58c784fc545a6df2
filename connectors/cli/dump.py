"""`keyfold dump`: the kept log of one partition, one JSON object a line, by offset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from connectors.cli.options import (
    ConnectorArgument,
    KeyOption,
    MaxOption,
    PartitionOption,
    TopicOption,
    WorkerOption,
    worker_of,
)
from connectors.cli.output import JsonLines
from connectors.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.model.log import PartitionLog
    from compactor.model.record import TopicPartition
    from compactor.model.state import CatalogState


class KeptRecord(Struct, frozen=True):
    """A kept record; bytes appear as base64, times in ms."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delete_horizon: int | None


def dump(
    connector: ConnectorArgument,
    topic: TopicOption,
    partition: PartitionOption,
    key: KeyOption = None,
    limit: MaxOption = None,
    worker: WorkerOption = None,
) -> None:
    """Prints what keyfold keeps of one source partition; also beside a live worker, without a broker."""
    config = worker_of(worker)
    from compactor.catalog.catalog import Catalog
    from compactor.model.record import TopicPartition
    from compactor.runs import reader
    from compactor.runs.scan import whole
    from connectors.config.engine_settings import connector_storage
    from connectors.config.files import load_connector

    name = load_connector(connector, config).config.name
    storage = connector_storage(config, name)
    log = found(Catalog.open(storage, name).state, name, TopicPartition(topic, partition))
    out = JsonLines()
    for batch in first(shown(reader.read(storage, whole(log)), key), limit):
        out.write(lines(batch))
    out.flush()


def found(state: CatalogState, connector: str, tp: TopicPartition) -> PartitionLog:
    """Returns the log of `tp`. Raises UsageError, which names the partitions that there are."""
    logs = state.by_partition()
    if tp not in logs:
        known = ", ".join(map(str, sorted(logs))) or "nothing yet; run it first"
        raise UsageError(f"Connector {connector} keeps no partition {tp}.", f"It keeps {known}.")
    return logs[tp]


def shown(batches: Iterable[pa.RecordBatch], key: str | None = None) -> Iterator[pa.RecordBatch]:
    """Yields the records of `batches` (record.RUN) that were not rejected; with `key` only those that have it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        wanted = pc.is_null(batch["rejected"])
        if key is not None:
            wanted = pc.and_kleene(wanted, pc.equal(batch["key"], pa.scalar(key.encode(), pa.binary())))
        yield batch.filter(wanted)


def first(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yields the first `limit` records of `batches`, all where it is None; reads no batch that is not needed."""
    left = limit
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


def lines(batch: pa.RecordBatch) -> Iterator[KeptRecord]:
    """Yields the records of `batch` (record.RUN) as they are printed."""
    from compactor.model.record import TIMESTAMP_TYPES

    for row in batch.to_pylist():
        yield KeptRecord(
            offset=row["offset"],
            timestamp=row["timestamp"],
            timestamp_type=TIMESTAMP_TYPES[row["timestamp_type"]],
            key=row["key"],
            value=row["value"],
            headers=_headers(row["headers"]),
            delete_horizon=row["delete_horizon"],
        )


def _headers(headers: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in headers or ())
