"""`keyfold restore`: the records of a snapshot go to a topic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from connectors.cli.commands.analyze import parsed
from connectors.cli.options import ConvertersOption, JsonOption, WorkerOption, converters_of, worker_of
from connectors.cli.output import Steps, show
from connectors.counted import counted
from connectors.errors import UsageError

if TYPE_CHECKING:
    from connectors.operations.restore import NewTopicSettings, RestoreResult

SnapshotArgument = Annotated[
    str, typer.Argument(help="The folder of a snapshot, or of a topic for its newest.", metavar="SNAPSHOT")
]
TargetOption = Annotated[str, typer.Option("--topic", help="The topic that the records go to.", metavar="T")]
BootstrapOption = Annotated[
    str | None,
    typer.Option("--bootstrap-servers", help="Another cluster than the worker file's.", metavar="HOST:PORT"),
]
CreateOption = Annotated[bool, typer.Option("--create", help="Make the topic if it is not there.")]
ReplicationOption = Annotated[
    int, typer.Option("--replication-factor", help="That of a topic that is made; -1: the cluster's.", metavar="N")
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option("--config", help="A setting of a topic that is made; may be repeated.", metavar="KEY=VALUE"),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", help="A setting of a converter that writes typed columns; repeatable.", metavar="KEY=VALUE"),
]
_STEP: Final = 100_000
"""Records after which it is said how many have gone."""


def restore(
    snapshot: SnapshotArgument,
    topic: TargetOption,
    bootstrap: BootstrapOption = None,
    create: CreateOption = False,
    replication_factor: ReplicationOption = -1,
    config: ConfigOption = None,
    connector: ConvertersOption = None,
    with_: WithOption = None,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Writes the records of a snapshot to an empty topic: key, value, headers, time and partition, each exactly once.

    A run that was cut off, or killed, is gone on with by running the command again. Typed columns are written by the
    converters that the snapshot names, or those of --connector and --with.

    Examples:
        keyfold restore snapshots/customers/customers --topic restored --create
    """
    settings = worker_of(worker)
    if bootstrap is not None:
        settings = settings.model_copy(update={"bootstrap_servers": bootstrap})
    if Path(snapshot).is_file():
        raise UsageError(
            f"{snapshot} is a file, and no folder of a snapshot.",
            "Name the snapshot's folder: keyfold snapshot list CONNECTOR.json lists them, each with its folder. "
            "The converters of a connector file are given by --connector.",
        )
    from connectors.operations import restore as operation
    from connectors.operations.snapshots.place import by_location

    said = Steps(_STEP, lambda done: f"{counted(done, 'record')} restored")
    made = _made(create, replication_factor, config or ())
    converters = {**converters_of(connector, settings), **parsed(with_ or ())}
    place = by_location(snapshot, settings)
    result = operation.restore(settings, place, topic, made, lambda done, _: said(done), converters)
    show(result, lambda: _text(result), as_json=as_json)


def _made(create: bool, replication_factor: int, config: Sequence[str]) -> NewTopicSettings | None:  # --create
    """Returns how the topic is made, None if it has to be there. Raises UsageError if only one of both is said."""
    from connectors.operations.restore import NewTopicSettings

    if create:
        return NewTopicSettings(replication_factor, parsed(config))
    if config or replication_factor != -1:
        raise UsageError("--config and --replication-factor are for a topic that is made.", "Give --create as well.")
    return None


def _text(result: RestoreResult) -> str:
    if not result.sent and result.before:
        return f"All {result.records:,} records of {result.snapshot} are in {result.topic} already."
    begun = f" {counted(result.before, 'was', 'were')} there already." if result.before else ""
    made = ", which was made" if result.created else ""
    headers = " They went without headers: the snapshot has no column _headers." if result.without_headers else ""
    return f"{counted(result.sent, 'record')} of {result.snapshot} went to {result.topic}{made}.{begun}{headers}"
