"""`keyfold rebuild`: makes the storage of a connector again, from its output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from connectors.cli.options import ConnectorArgument, JsonOption, LossOption, WorkerOption, configs_of
from connectors.cli.output import show
from connectors.progress.terminal import table

if TYPE_CHECKING:
    from connectors.operations.rebuild import RebuiltLog


def rebuild(
    connector: ConnectorArgument,
    accept_loss: LossOption = False,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Makes a connector's storage anew where it is lost, from what its output and its committed positions tell.

    What was not published yet is read again from the source by the next run. No record is sent a second time.

    Examples:
        keyfold rebuild customers.json
    """
    config, settings = configs_of(connector, worker)
    from connectors.operations.rebuild import rebuild as carry_out

    def tell(rebuilt: Sequence[RebuiltLog]) -> None:
        show(rebuilt, lambda: _text(settings.name, rebuilt), as_json=as_json)

    tell(carry_out(config, settings, accepts_loss=accept_loss, report=tell))


_HEADERS = ("TOPIC", "PARTITION", "GENERATION", "PUBLISHED", "RECORDS", "LOST")


def _text(name: str, logs: Sequence[RebuiltLog]) -> str:
    rows = [(log.topic, log.partition, log.generation, log.offset, log.records, log.lost) for log in logs]
    return f"{table(_HEADERS, rows)}\n\nConnector {name} is rebuilt; the next run goes on from there."
