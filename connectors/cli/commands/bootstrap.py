"""`keyfold bootstrap`: the records of a topic's newest snapshot, and the changes after it, one JSON object a line."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct

from connectors.cli.commands.dump import TextOption, shows_text
from connectors.cli.options import ConvertersOption, WorkerOption, converters_of, worker_of
from connectors.cli.output import JsonLines
from connectors.signals import interrupt
from connectors.terminal_text import Readable, readable

if TYPE_CHECKING:
    from connectors.bootstrap import Change, Changes, Clients, TableRecord
    from connectors.config.worker import WorkerConfig

LocationArgument = Annotated[
    str,
    typer.Argument(
        help="The topic's folder: <snapshot.location>/<connector>/<topic>, a path or a URL.", metavar="LOCATION"
    ),
]
FollowOption = Annotated[bool, typer.Option("--follow", help="Then each change, as it comes, until Ctrl-C.")]

Shown = Callable[[bytes | None], bytes | Readable]


class StateLine(Struct, frozen=True, kw_only=True, tag="snapshot", tag_field="from"):
    """A record of the snapshot; `partition` and `offset` are the source's, `timestamp` is in ms."""

    partition: int | None
    offset: int | None
    timestamp: int | None
    key: Any
    value: bytes | Readable
    headers: tuple[tuple[str, bytes | Readable], ...]


class FieldsLine(Struct, frozen=True, kw_only=True, tag="snapshot", tag_field="from"):
    """A record of a typed snapshot, with its columns in place of the value."""

    partition: int | None
    offset: int | None
    timestamp: int | None
    key: Any
    fields: dict[str, Any]
    headers: tuple[tuple[str, bytes | Readable], ...]


class ChangeLine(Struct, frozen=True, kw_only=True, tag="output", tag_field="from"):
    """A record of the output topic, with its partition and offset there; `value` null deletes the key."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    value: bytes | Readable
    headers: tuple[tuple[str, bytes | Readable], ...]


class FieldsChangeLine(Struct, frozen=True, kw_only=True, tag="output", tag_field="from"):
    """A record of the output topic with the columns of its value, as a typed snapshot has; null deletes the key."""

    partition: int
    offset: int
    timestamp: int
    key: Any
    fields: dict[str, Any] | None
    headers: tuple[tuple[str, bytes | Readable], ...]


def bootstrap(
    location: LocationArgument,
    follow: FollowOption = False,
    text: TextOption = None,
    connector: ConvertersOption = None,
    worker: WorkerOption = None,
) -> None:
    """Prints the records of the newest snapshot in LOCATION, one JSON object a line, without Spark.

    With --follow each change of the output topic from there on follows, until Ctrl-C. Changes have the fields that the
    snapshot has: they are read by the converters that it names, or those of --connector.

    Examples:
        keyfold bootstrap snapshots/customers/customers --text
        keyfold bootstrap snapshots/customers/customers --text --follow
    """
    config = worker_of(worker)
    from connectors.bootstrap import open_table
    from connectors.config.stores import store_options

    signal.signal(signal.SIGTERM, interrupt)
    shown: Shown = readable if shows_text(text) else lambda data: data
    clients, converters = clients_of(config) if follow else None, converters_of(connector, config)
    opened = open_table(location, clients, converters=converters, store=store_options(config))
    has_fields = opened.has_fields
    if follow:
        opened.check_changes()  # before the state is printed
    out = JsonLines()
    with suppress(KeyboardInterrupt):
        out.write(state_lines(opened.records(), shown))
        out.flush()
        if follow:
            with opened.changes() as changes:
                write(changes, out, shown, has_fields=has_fields)


def clients_of(config: WorkerConfig) -> Clients:
    """Returns the settings of the clients that read the output, as the worker file has them."""
    from connectors.bootstrap import Clients
    from connectors.config.clients.merged import client_config

    return Clients(client_config("consumer", config, None, {}), client_config("admin", config, None, {}))


def write(changes: Changes, out: JsonLines, shown: Shown, *, has_fields: bool) -> None:
    """Writes the changes as they come; ends once stdout has no reader."""
    while out.read_on:
        out.write(change_line(change, shown, has_fields=has_fields) for change in changes.poll())
        out.flush()


def state_lines(records: Iterable[TableRecord], shown: Shown) -> Iterator[StateLine | FieldsLine]:
    """Yields the records of a snapshot as they are printed."""
    for record in records:
        key = _shown_key(record.key, shown)
        headers = tuple((name, shown(value)) for name, value in record.headers)
        place = {"partition": record.partition, "offset": record.offset, "timestamp": record.timestamp}
        if record.fields is None:
            yield StateLine(**place, key=key, value=shown(record.value), headers=headers)
        else:
            yield FieldsLine(**place, key=key, fields=record.fields, headers=headers)


def change_line(change: Change, shown: Shown, *, has_fields: bool = False) -> ChangeLine | FieldsChangeLine:
    """Returns a change as it is printed."""
    place = {"partition": change.partition, "offset": change.offset, "timestamp": change.timestamp}
    key = _shown_key(change.key, shown)
    headers = tuple((name, shown(value)) for name, value in change.headers)
    if has_fields:
        return FieldsChangeLine(**place, key=key, fields=change.fields, headers=headers)
    return ChangeLine(**place, key=key, value=shown(change.value), headers=headers)


def _shown_key(key: Any, shown: Shown) -> Any:
    return shown(key) if isinstance(key, bytes) else key
