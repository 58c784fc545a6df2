"""`keyfold dump`: the kept log of one partition, one JSON object a line, by offset."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from connectors.cli.options import ConnectorArgument, KeyOption, MaxOption, WorkerOption, configs_of
from connectors.cli.output import JsonLines, note
from connectors.errors import UsageError
from connectors.terminal_text import Readable, readable

if TYPE_CHECKING:
    import pyarrow as pa


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

    Examples:
        keyfold dump customers.json --key ann --text
        keyfold dump customers.json --partition 0 --max 3 --text
    """
    if partition is None and key is None:
        raise UsageError("Neither --partition nor --key is given.", "Give one: describe lists the partitions.")
    config, settings = configs_of(connector, worker)
    from connectors.operations import dump as operation

    out, as_text, told, is_absent = JsonLines(), shows_text(text), partition, True
    for number, records in operation.dump(config, settings, topic, partition, key, limit):
        if number != told:
            note(f"partition {number}:")
            told = number
        is_absent = False
        out.write(lines(records, text=as_text))
    out.flush()
    if key is not None and is_absent:
        note(f'Nothing is kept of "{key[:100]}".')


def shows_text(given: bool | None) -> bool:
    """Returns what is `given`, else whether a person looks at the output: also on a terminal that moves no cursor."""
    return sys.stdout.isatty() if given is None else given


def lines(batch: pa.RecordBatch, *, text: bool = False) -> Iterator[KeptRecord]:
    """Yields the records of `batch` (record.RUN) as they are printed, with `text` as a person reads them."""
    from compactor.model.record import TIMESTAMP_TYPES

    form: Callable[[bytes | None], bytes | Readable] = readable if text else lambda data: data
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
