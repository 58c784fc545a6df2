"""`keyfold snapshot`: a Parquet snapshot of every topic of a connector, now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    TimeoutOption,
    WorkerOption,
    configs_of,
    request_timeout,
)
from connectors.cli.output import show
from connectors.operations.request_timeout import TIMEOUT_S
from connectors.progress.terminal import table

if TYPE_CHECKING:
    from connectors.operations.snapshot import SnapshotInfo


def snapshot(
    connector: ConnectorArgument,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Folds what is published and takes a snapshot of it; a live worker is asked, otherwise this process takes over."""
    config, settings = configs_of(connector, worker)
    from connectors.operations import snapshot as operation

    taken = operation.snapshot(config, settings, request_timeout(timeout))
    show(taken, lambda: _text(taken), as_json=as_json)


def _text(taken: Sequence[SnapshotInfo]) -> str:
    if not taken:
        return "There is nothing to snapshot: of no topic that is read is anything published yet."
    from connectors.cli.views.describe import other_snapshots_line

    rows = [(each.topic, each.id, each.records, each.bytes, each.path) for each in taken]
    lines = [other_snapshots_line(each.topic, each.other_snapshots) for each in taken if each.other_snapshots]
    lines += [
        f"{each.topic}: {misfits.records:,} of {each.records:,} records fit no column and are whole in {misfits.column}"
        + (f"; the first is {misfits.first}" if misfits.first else ".")
        for each in taken
        for misfits in each.misfits
    ]
    return "\n".join([table(("TOPIC", "SNAPSHOT", "RECORDS", "BYTES", "PATH"), rows), *lines])
