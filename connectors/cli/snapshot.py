"""`keyfold snapshot`: a Parquet snapshot of every topic of a connector, now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    TimeoutOption,
    WorkerOption,
    request_timeout,
    worker_of,
)
from connectors.cli.output import say, say_json
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
    config = worker_of(worker)
    from connectors.config.files import load_connector
    from connectors.operations import snapshot as operation

    taken = operation.snapshot(config, load_connector(connector, config).config, request_timeout(timeout))
    if as_json:
        say_json(taken)
    else:
        say(_text(taken))


def _text(taken: Sequence[SnapshotInfo]) -> str:
    if not taken:
        return "There is nothing to snapshot: of no topic that is read is anything published yet."
    from connectors.cli.views.describe import other_snapshots_line

    rows = [(each.topic, each.id, each.records, each.bytes, each.path) for each in taken]
    lines = [other_snapshots_line(each.topic, each.other_snapshots) for each in taken if each.other_snapshots]
    return "\n".join([table(("TOPIC", "SNAPSHOT", "RECORDS", "BYTES", "PATH"), rows), *lines])
