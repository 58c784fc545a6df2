"""`keyfold delete`: removes what keyfold keeps of a connector, after it has said what that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from connectors.cli.options import ConnectorArgument, WorkerOption, configs_of, parts_of
from connectors.cli.output import say
from connectors.counted import counted
from connectors.errors import UsageError

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig
    from connectors.operations.deletion_preview import DeletionPreview

OutputsOption = Annotated[
    bool, typer.Option("--outputs", help="Also remove the output topics that it published, its snapshots and tables.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def delete(
    context: typer.Context,
    connector: ConnectorArgument,
    outputs: OutputsOption = False,
    yes: YesOption = False,
    worker: WorkerOption = None,
) -> None:
    """Removes a connector's storage folder, its consumer group, and its config if it was made over REST.

    It says what, and asks. Source topics are never touched.

    Examples:
        keyfold delete customers.json --yes
    """
    config, settings = configs_of(connector, worker)
    from connectors.operations.delete import ConnectorDeletion

    deletion = ConnectorDeletion(config, settings, parts_of(context).kafka)
    preview = deletion.find(with_outputs=outputs)
    if preview.nothing:
        say(f"There is nothing to delete of connector {settings.name} in {preview.folder} and on the brokers.")
        return
    say("\n".join(lines_of(preview, settings)))
    if not yes:
        ask(sys.stdin)
    deletion.remove(preview)
    say(f"Connector {settings.name} is deleted.")


def ask(answers: TextIO) -> None:
    """Asks whether to go on, if somebody can answer. Raises UsageError unless the answer is yes."""
    if not answers.isatty():
        raise UsageError("There is no terminal to ask on; nothing was removed.", "Give --yes to go on without asking.")
    typer.echo("Remove this? It cannot be undone. [y/N] ", nl=False)
    if answers.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("Nothing was removed: the answer was not yes.")


def lines_of(preview: DeletionPreview, settings: ConnectorConfig) -> Iterator[str]:
    """Yields the lines that say what is removed, what stays, and what a person should know before the answer."""
    import humanize

    from connectors.operations.deleted_tables import table_name

    plan, size = preview.plan, humanize.naturalsize(preview.bytes, binary=True)
    if preview.begun:
        yield f"An earlier delete of connector {settings.name} was not finished; this one finishes it."
    yield f"Of connector {settings.name} this removes:"
    yield f"  {preview.folder}: catalog, runs, requests ({counted(preview.files, 'file')}, {size})"
    yield f"  consumer group {settings.group_id}, with the positions of {counted(len(preview.held), 'partition')}"
    if settings.dead_letter_topic is not None:
        yield f"  consumer group {settings.redrive_group_id}, which says what keyfold dlq has sent back, if it is there"
    yield from (
        f"  {path}: what a worker has kept of it, as it was made or changed over REST" for path in preview.stored
    )
    if plan.with_outputs:
        yield from (f"  output topic {output.topic}, with all its records" for output in plan.outputs)
        yield from (f"  snapshot {settings.snapshot_location}/{path}" for path in plan.snapshots)
        yield from (f"  {table_name(settings, topic)}, with all its versions" for topic in plan.tables)
    left = list(_left_lines(preview, settings))
    if left:
        yield "It leaves, beside the source topics:"
        yield from left
    yield from _warning_lines(preview, settings)


def _left_lines(preview: DeletionPreview, settings: ConnectorConfig) -> Iterator[str]:
    from connectors.operations.deleted_tables import table_name

    plan = preview.plan
    if not plan.with_outputs:
        yield from (
            f"  output topic {output.topic}: a connector that begins anew refuses to publish into it; delete it "
            "(--outputs), or set another output.topic"
            for output in plan.outputs
        )
        yield from (f"  snapshot {settings.snapshot_location}/{path}" for path in plan.snapshots)
        yield from (
            f"  {table_name(settings, topic)}: a connector that begins anew refuses to commit to it; delete it "
            "(--outputs), or set another snapshot.table.name"
            for topic in plan.tables
        )
    for name in preview.others:
        yield f"  topic {name}: nothing shows that this connector published it"
    if (preview.strangers or not preview.has_catalog) and settings.snapshot_location is not None:
        yield f"  snapshots in {settings.snapshot_location}/{settings.name} without a word of whose they are, if any"
    if preview.tables_fault is not None:
        yield f"  tables of {settings.snapshot_table}, if any: {preview.tables_fault}"
    if settings.dead_letter_topic is not None:
        yield f"  dead letter topic {settings.dead_letter_topic}, which others may use too"


def _warning_lines(preview: DeletionPreview, settings: ConnectorConfig) -> Iterator[str]:
    if preview.damage is not None:
        yield f"The catalog cannot be read: {preview.damage}"
    elif not preview.has_catalog and not preview.begun:
        yield f"There is no catalog in {preview.folder}: if a disk has to be mounted there, mount it first."
    for stranger in preview.strangers:
        yield (
            f"Positions of group {settings.group_id} were committed for catalog {stranger}, which is not in "
            f"{preview.folder}. If a worker elsewhere runs a connector {settings.name} on these brokers, they are its: "
            "do not go on then."
        )
