"""`keyfold validate`: whether files are right, without a broker or Spark; `--broker` asks the broker too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from connectors.cli.options import JsonOption, WorkerOption, has_worker, warn_of_variables, worker_path
from connectors.cli.output import say
from connectors.errors import ConfigError

if TYPE_CHECKING:  # what it needs takes time to import
    from connectors.operations.validate import Verdict

ConnectorsArgument = Annotated[list[Path], typer.Argument(help="The connector files.", metavar="CONNECTOR.json")]
BrokerOption = Annotated[
    bool,
    typer.Option("--broker", help="Ask the broker too: source and output topics, replicas, whether it answers."),
]


def validate(
    connectors: ConnectorsArgument,
    worker: WorkerOption = None,
    broker: BrokerOption = False,
    as_json: JsonOption = False,
) -> None:
    """Checks connector files, alone and together with the worker file; every fault is listed.

    Warnings tell of what is right and probably not meant; they change no exit code. With `--broker` the newest records
    of the source topics are looked at, too: change events of Debezium, outputs, dead letters.

    Raises ConfigError when a file is not valid, UnreachableError when `--broker` finds no broker.

    Examples:
        keyfold validate customers.json
        keyfold validate customers.json --broker
    """
    warn_of_variables()
    from connectors.operations import validate as operation

    asked = operation.BrokerQuestions() if broker else None
    alone = not (has_worker(worker) or broker)
    file = None if alone else worker_path(worker)
    verdicts = operation.validate(connectors, file, asked, alone=alone)
    for verdict in verdicts:
        say(
            msgspec.json.encode(verdict).decode()
            if as_json
            else "\n".join(f"{verdict.file}: {text}" for text in _lines(verdict))
        )
    faulty = [verdict for verdict in verdicts if not verdict.valid]
    if asked is not None and asked.unanswered is not None:
        raise asked.unanswered
    if faulty:
        raise ConfigError(_count(len(faulty), len(verdicts)), "Correct what is listed above and validate again.")


def _lines(verdict: Verdict) -> list[str]:
    return [*(verdict.errors or ["valid"]), *(f"warning: {text}" for text in verdict.warnings)]


def _count(faulty: int, files: int) -> str:
    if files == 1:
        return "The file is not valid."
    return f"{faulty} of {files} files {'is' if faulty == 1 else 'are'} not valid."
