"""`keyfold snapshot`: takes Parquet snapshots of a connector's topics, and takes care of those that are there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    TimeoutOption,
    WorkerOption,
    configs_of,
    has_worker,
    request_timeout,
    worker_of,
)
from connectors.cli.output import JsonLines, Steps, note, say, show
from connectors.errors import EXIT_FAILED, UsageError
from connectors.operations.request_timeout import TIMEOUT_S

if TYPE_CHECKING:
    from connectors.snapshot_folder import SnapshotFolder

NamesArgument = Annotated[
    list[str],
    typer.Argument(
        help="The folder of a snapshot, or of a topic for its newest; after a connector file: an id, or a topic.",
        metavar="[CONNECTOR.json] SNAPSHOT",
    ),
]
KeysOption = Annotated[bool, typer.Option("--keys", help="Also list the keys that differ.")]
_STEP: Final = 1 << 30
"""Bytes after which it is said how many were read."""

_NAME_THEM: Final = (
    "Name each by its folder; or a connector file, and then each by its id, or by a topic for its newest. "
    "keyfold snapshot list CONNECTOR.json has the ids."
)

app: Final = typer.Typer(
    name="snapshot",
    no_args_is_help=True,
    help="Takes a snapshot now; with a command (list, verify, diff…) it looks after those that are there.",
)


@app.command()
def take(
    connector: ConnectorArgument,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Folds what is published and takes a snapshot of it; a live worker is asked, otherwise this process takes over.

    Examples:
        keyfold snapshot customers.json
    """
    config, settings = configs_of(connector, worker)
    from connectors.cli.views.snapshots import taken_text
    from connectors.operations import snapshot as operation

    taken = operation.snapshot(config, settings, request_timeout(timeout))
    show(taken, lambda: taken_text(taken), as_json=as_json)


@app.command("list")
def list_snapshots(connector: ConnectorArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Lists the snapshots of a connector: when each was taken, what it holds, which is the newest, which is pinned.

    Examples:
        keyfold snapshot list customers.json
    """
    config, settings = configs_of(connector, worker)
    from connectors.cli.views.snapshots import list_text
    from connectors.operations.snapshots import overview, place

    folder = place.place_of(config, settings)
    listed = list(overview.list_snapshots(folder))
    show(listed, lambda: list_text(listed, folder.location), as_json=as_json)


@app.command("show")
def show_snapshot(names: NamesArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Shows what a snapshot holds, and from which offsets a reader of the output goes on.

    A connector file alone stands for the newest snapshot of its topic, if it has one topic.

    Examples:
        keyfold snapshot show customers.json
    """
    from connectors.cli.views.snapshots import shown_text
    from connectors.operations.snapshots import overview

    (snapshot,) = _named(names, worker, 1, newest=True)
    shown = overview.show_snapshot(snapshot)
    show(shown, lambda: shown_text(shown), as_json=as_json)


@app.command()
def verify(names: NamesArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Reads snapshots, and compares sizes, checksums and records with the manifests; exit code 1 names what differs.

    With a connector file alone it reads all of its snapshots.

    Examples:
        keyfold snapshot verify customers.json
    """
    from connectors.cli.views.snapshots import verified_text
    from connectors.operations.snapshots.verify import verify_snapshot

    read = _Reading()
    verified = [verify_snapshot(each, read) for each in _named(names, worker)]
    show(verified, lambda: verified_text(verified), as_json=as_json)
    if any(each.faults for each in verified):
        note("next: Read an older snapshot, or take a new one; put a damaged file back from a copy.")
        raise typer.Exit(EXIT_FAILED)


@app.command()
def pin(names: NamesArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Pins snapshots: retention leaves them, and does not count them, until they are unpinned.

    Examples:
        keyfold snapshot pin customers.json customers
    """
    from connectors.cli.views.snapshots import pins_text
    from connectors.operations.snapshots import pin as operation

    results = list(operation.pin(_named(names, worker, is_whole=False)))
    show(results, lambda: pins_text(results), as_json=as_json)


@app.command()
def unpin(names: NamesArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Takes the pins of snapshots away: the next snapshot of the topic removes what is beyond retention.

    Examples:
        keyfold snapshot unpin customers.json customers
    """
    from connectors.cli.views.snapshots import pins_text
    from connectors.operations.snapshots import pin as operation

    results = list(operation.unpin(_named(names, worker, is_whole=False)))
    show(results, lambda: pins_text(results), as_json=as_json)


@app.command()
def diff(
    names: NamesArgument, keys: KeysOption = False, as_json: JsonOption = False, worker: WorkerOption = None
) -> None:
    """Compares two snapshots, the older first: how many keys were added, changed and removed; --keys: which.

    A key is changed if its value, headers or time is another. With --keys and --json there is an object a line for each
    key, and the counts are the last line.

    Examples:
        keyfold snapshot diff customers.json 20261121T023000Z-1f0c2a customers --keys
    """
    from connectors.cli.views.snapshots import change_text, change_value, diff_text
    from connectors.operations.snapshots.diff import diff_snapshots

    old, new = _named(names, worker, 2)
    lines = JsonLines()

    def tell(change: str, partition: int | None, key: bytes) -> None:
        if as_json:
            lines.write([change_value(change, partition, key)])
        else:
            say(change_text(change, partition, key))

    if len({(said.connector, said.topic) for said in (old.manifest(), new.manifest())}) > 1:
        note(f"These are snapshots of two topics: {old.location}, then {new.location}.")
    result = diff_snapshots(old, new, tell if keys else None, _Reading())
    if keys and as_json:
        lines.write([result])
        lines.flush()
    else:
        show(result, lambda: diff_text(result), as_json=as_json)


class _Reading:
    """Says on stderr how many bytes were read so far."""

    def __init__(self) -> None:
        self._done = 0
        self._said = Steps(_STEP, lambda done: f"{done >> 30:,} GiB read")

    def __call__(self, size: int) -> None:
        """Takes the bytes of a file that was read."""
        self._done += size
        self._said(self._done)


def _named(
    names: Sequence[str], worker: Path | None, count: int | None = None, *, is_whole: bool = True, newest: bool = False
) -> list[SnapshotFolder]:
    """Finds the snapshots that `names` name; a connector file in front says in which folder.

    With `is_whole` a connector file alone stands for all of its snapshots, with `newest` for that of its only topic.
    Raises UsageError if one is not there, or if they are not `count`.
    """
    from connectors.operations.snapshots import place

    first, *rest = names
    of_connector = first.endswith(".json") and Path(first).is_file()
    wanted = rest if of_connector else list(names)
    if of_connector and newest and not wanted:
        wanted = list(place.list_folders(place.place_of(*configs_of(Path(first), worker))))
    if count is not None and len(wanted) != count:
        needed, named = f"{count} snapshot{'s' * (count > 1)}", f"{len(wanted)} {'is' if len(wanted) == 1 else 'are'}"
        raise UsageError(f"This command takes {needed}, and {named} named.", _NAME_THEM)
    if not wanted and not is_whole:
        raise UsageError("No snapshot is named.", _NAME_THEM)
    if not of_connector:
        config = worker_of(worker) if has_worker(worker) else None
        return [place.by_location(name, config) for name in wanted]
    folder = place.place_of(*configs_of(Path(first), worker))
    if wanted:
        return [place.by_name(folder, name) for name in wanted]
    return [each for folders in place.list_folders(folder).values() for each in folders]
