"""`keyfold dump`: the kept log of one partition, one JSON object a line, by offset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from connectors.cli.options import (
    ConnectorArgument,
    KeyOption,
    MaxOption,
    WorkerOption,
    worker_of,
)
from connectors.cli.output import JsonLines, Readable, readable
from connectors.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from compactor.model.log import PartitionLog
    from compactor.model.record import TopicPartition
    from compactor.model.state import CatalogState
    from compactor.storage.base import Storage


TheTopicOption = Annotated[
    str | None, typer.Option("--topic", help="The source topic; may be left out where only one is kept.", metavar="T")
]
APartitionOption = Annotated[
    int | None,
    typer.Option("--partition", help="Its partition; may be left out with --key.", metavar="P", min=0),
]
TextOption = Annotated[
    bool | None,
    typer.Option(
        "--text/--base64",
        help="Bytes that are UTF-8 as text, as tail prints them: the default on a terminal. Elsewhere all are base64.",
    ),
]


class KeptRecord(Struct, frozen=True):
    """A kept record; bytes appear as base64 or as `readable` gives them, times in ms."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | Readable
    value: bytes | Readable
    headers: tuple[tuple[str, bytes | Readable], ...]
    delete_horizon: int | None


def dump(
    connector: ConnectorArgument,
    partition: APartitionOption = None,
    topic: TheTopicOption = None,
    key: KeyOption = None,
    limit: MaxOption = None,
    text: TextOption = None,
    worker: WorkerOption = None,
) -> None:
    """Prints what keyfold keeps of one source partition; also beside a live worker, without a broker.

    With --key, --partition may be left out: every partition is looked through for the key.
    """
    if partition is None and key is None:
        raise UsageError("Neither --partition nor --key is given.", "Give one: describe lists the partitions.")
    config = worker_of(worker)
    from compactor.catalog.catalog import Catalog
    from compactor.model.record import TopicPartition
    from connectors.config.files import load_connector
    from connectors.config.stores import connector_storage

    name = load_connector(connector, config).config.name
    storage = connector_storage(config, name)
    state = Catalog.open(storage, name).state
    source = topic or only_topic(state, name)
    wanted = numbers(state, source) if partition is None else [partition]
    logs = [found(state, name, TopicPartition(source, number)) for number in wanted]
    out = JsonLines()
    for batch in first(_with_notes(storage, logs, key, notes=partition is None), limit):
        out.write(lines(batch, text=writes_to_terminal() if text is None else text))
    out.flush()


def writes_to_terminal() -> bool:
    """Returns whether a person looks at the output: also on a terminal that cannot move its cursor."""
    return sys.stdout.isatty()


def numbers(state: CatalogState, topic: str) -> list[int]:
    """Lists the partitions of `topic` that are kept."""
    return sorted(log.partition for log in state.logs if log.topic == topic)


def _with_notes(
    storage: Storage, logs: Iterable[PartitionLog], key: str | None, *, notes: bool
) -> Iterator[pa.RecordBatch]:
    """Yields what is kept of `logs`; with `notes` says on stderr in which partition something of the key is."""
    from compactor.runs import reader
    from compactor.runs.scan import whole

    for log in logs:
        is_told = not notes
        for batch in shown(reader.read(storage, whole(log)), key):
            if batch.num_rows and not is_told:
                is_told = True
                typer.echo(f"partition {log.partition}:", err=True)
            yield batch


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
    """Yields the first `limit` records of `batches`, all if it is None; reads no batch that is not needed."""
    left = limit
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


def lines(batch: pa.RecordBatch, *, text: bool = False) -> Iterator[KeptRecord]:
    """Yields the records of `batch` (record.RUN) as they are printed, with `text` as a person reads them."""
    from compactor.model.record import TIMESTAMP_TYPES

    form: Callable[[bytes | None], bytes | Readable] = readable if text else _as_it_is
    for row in batch.to_pylist():
        yield KeptRecord(
            offset=row["offset"],
            timestamp=row["timestamp"],
            timestamp_type=TIMESTAMP_TYPES[row["timestamp_type"]],
            key=form(row["key"]),
            value=form(row["value"]),
            headers=tuple((header["key"], form(header["value"])) for header in row["headers"] or ()),
            delete_horizon=row["delete_horizon"],
        )


def _as_it_is(data: bytes | None) -> bytes | None:
    return data
