"""`keyfold restart`: asks a live worker to start a connector again."""

from __future__ import annotations

from connectors.cli.options import ConnectorArgument, TimeoutOption, WorkerOption, configs_of, request_timeout
from connectors.cli.output import say
from connectors.operations.request_timeout import TIMEOUT_S


def restart(connector: ConnectorArgument, timeout: TimeoutOption = TIMEOUT_S, worker: WorkerOption = None) -> None:
    """Has the worker that runs a connector start it again, also if it FAILED, and waits until it is RUNNING.

    It goes on with the settings that the worker has read. If the file has changed since, send the worker a SIGHUP.

    Examples:
        keyfold restart customers.json
    """
    config, settings = configs_of(connector, worker)
    from connectors.operations import restart as operation

    operation.restart(config, settings, request_timeout(timeout))
    say(
        f"Connector {settings.name} was started again and is RUNNING, with the settings that its worker has read. "
        "If its file has changed since, send the worker a SIGHUP."
    )
