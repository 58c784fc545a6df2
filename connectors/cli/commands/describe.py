"""`keyfold describe`: what a connector has taken in, sent and kept; without Spark, also while a worker runs it."""

from __future__ import annotations

from connectors.cli.options import ConnectorArgument, JsonOption, WorkerOption, worker_of
from connectors.cli.output import show
from connectors.clock import SYSTEM_CLOCK


def describe(connector: ConnectorArgument, as_json: JsonOption = False, worker: WorkerOption = None) -> None:
    """Shows a connector's state, offsets, lag, runs and newest snapshots; needs no broker, but asks one for the lag.

    Examples:
        keyfold describe customers.json
        keyfold describe customers.json --json
    """
    config = worker_of(worker)
    from connectors.cli.views.describe import text
    from connectors.operations import describe as operation

    description, now_ms, folder = operation.describe(config, connector, SYSTEM_CLOCK)
    show(description, lambda: text(description, now_ms, folder), as_json=as_json)
