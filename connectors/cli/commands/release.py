"""`keyfold release`: ends the quarantine of a partition that has its files back."""

from __future__ import annotations

from connectors.cli.options import (
    ConnectorArgument,
    PartitionOption,
    TimeoutOption,
    TopicOption,
    WorkerOption,
    configs_of,
    request_timeout,
)
from connectors.cli.output import say
from connectors.operations.request_timeout import TIMEOUT_S


def release(
    connector: ConnectorArgument,
    topic: TopicOption,
    partition: PartitionOption,
    timeout: TimeoutOption = TIMEOUT_S,
    worker: WorkerOption = None,
) -> None:
    """Takes up a partition that was quarantined; a live worker is asked for it, otherwise this process takes over.

    Examples:
        keyfold release customers.json --topic customers --partition 0
    """
    config, settings = configs_of(connector, worker)
    from connectors.operations import release as operation

    done = operation.release(config, settings, topic, partition, request_timeout(timeout))
    where = f"{topic}-{partition}"
    say(f"{where} is taken up again." if done else f"{where} was not quarantined; nothing was changed.")
