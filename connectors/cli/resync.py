"""`keyfold resync`: reads a connector's source anew, and makes the output equal to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.cli.options import (
    ConnectorArgument,
    JsonOption,
    LossOption,
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
    from connectors.runtime.offset_change import ChangedLog


def resync(
    connector: ConnectorArgument,
    topic: SomeTopicOption = None,
    partition: SomePartitionOption = None,
    accept_loss: LossOption = False,
    as_json: JsonOption = False,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Reads the source anew from its start, as a new generation, and then makes the output equal to it.

    For an output or a source that was recreated, and for files that are lost while the source still has the records.
    A key that does not come again gets a tombstone. The output stays as it is until all is read. Refused if records
    are gone that the connector has read, or has not read yet, unless --accept-loss is given.
    """
    check_has_topic(topic, partition)
    config, settings = configs_of(connector, worker)
    from connectors.operations import offsets

    def tell(changed: Sequence[ChangedLog]) -> None:
        show(changed, lambda: _text(settings.name, changed), as_json=as_json)

    wait = request_timeout(timeout)
    tell(offsets.resync(config, settings, topic, partition, wait, accepts_loss=accept_loss, report=tell))


_HEADERS = ("TOPIC", "PARTITION", "GENERATION", "FROM OFFSET", "KEYS IN THE OUTPUT", "LOST")


def _text(name: str, changed: Sequence[ChangedLog]) -> str:
    if not changed:
        return "Nothing was changed: the connector has no partitions yet."
    rows = [
        (log.topic, log.partition, log.generation, log.offset, log.tombstones, log.skipped)
        for log in sorted(changed, key=lambda log: (log.topic, log.partition))
    ]
    return (
        f"{table(_HEADERS, rows)}\n\nThe output stays as it is until connector {name} has read up to where the source "
        "ends now; `keyfold describe` shows how far it is."
    )
