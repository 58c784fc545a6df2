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
    check_has_topic,
    configs_of,
    request_timeout,
)
from connectors.cli.output import show
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
    """Folds everything published now, due or not; a live worker is asked for it, otherwise this process takes over.

    Examples:
        keyfold clean customers.json
        keyfold clean customers.json --topic customers --partition 0
    """
    check_has_topic(topic, partition)
    config, settings = configs_of(connector, worker)
    from connectors.operations import clean as operation

    cleaned = operation.clean(config, settings, topic, partition, request_timeout(timeout))
    show(cleaned, lambda: _text(cleaned), as_json=as_json)


_HEADERS = ("TOPIC", "PARTITION", "CLEAN END", "RECORDS BEFORE", "AFTER", "BYTES BEFORE", "AFTER", "TOMBSTONES")


def _text(cleaned: Sequence[CleanedLog]) -> str:
    if not cleaned:
        return "There is nothing to fold: every partition has one record per key, and no tombstone's time is over."
    rows = [
        (
            *(log.topic, log.partition, log.end, log.records_before, log.records),
            *(log.bytes_before, log.bytes, log.tombstones),
        )
        for log in sorted(cleaned, key=lambda log: (log.topic, log.partition))
    ]
    return table(_HEADERS, rows)
