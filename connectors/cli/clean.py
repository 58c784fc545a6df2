"""`keyfold clean`: a full fold now, whatever the dirty ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    SomePartitionOption,
    SomeTopicOption,
    TimeoutOption,
    WorkerOption,
    request_timeout,
    worker_of,
)
from connectors.cli.output import say, say_json
from connectors.errors import UsageError
from connectors.operations.request_timeout import TIMEOUT_S
from connectors.progress.terminal import table

if TYPE_CHECKING:
    from compactor.clean.cleaner import CleanedLog


def clean(
    connector: ConnectorArgument,
    topic: SomeTopicOption = None,
    partition: SomePartitionOption = None,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Folds everything published now, due or not; a live worker is asked for it, otherwise this process takes over."""
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic.", "Name the topic that the partition is of.")
    config = worker_of(worker)
    from connectors.config.files import load_connector
    from connectors.operations.worker_request import fold_logs

    folded = fold_logs(config, load_connector(connector, config).config, topic, partition, request_timeout(timeout))
    if as_json:
        say_json(folded)
    else:
        say(_text(folded))


_HEADERS = ("TOPIC", "PARTITION", "CLEAN END", "RECORDS BEFORE", "AFTER", "BYTES BEFORE", "AFTER", "TOMBSTONES")


def _text(folded: Sequence[CleanedLog]) -> str:
    if not folded:
        return "There is nothing to fold: every partition has one record per key, and no tombstone's time is over."
    rows = [
        (
            *(one.topic, one.partition, one.end, one.records_before, one.records),
            *(one.bytes_before, one.bytes, one.tombstones),
        )
        for one in sorted(folded, key=lambda one: (one.topic, one.partition))
    ]
    return table(_HEADERS, rows)
