"""`keyfold validate`: whether files are right, without a broker or Spark; `--broker` asks the broker too."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from connectors.cli.options import (
    BOOTSTRAP_VARIABLE,
    DEFAULT_WORKER_FILES,
    JsonOption,
    WorkerOption,
    warn_of_variables,
    worker_path,
)
from connectors.cli.output import say
from connectors.errors import ConfigError, UnreachableError

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig
    from connectors.config.errors import Fault, FaultyConfigError
    from connectors.config.files import OtherFile
    from connectors.config.worker import WorkerConfig

_PROBE_S: Final = 10.0

ConnectorsArgument = Annotated[list[Path], typer.Argument(help="The connector files.", metavar="CONNECTOR.json…")]
BrokerOption = Annotated[
    bool,
    typer.Option("--broker", help="Ask the broker too: source and output topics, replicas, whether it answers."),
]


class Verdict(msgspec.Struct, frozen=True):
    """What is said of one file: `errors` are sentences that begin with their key; `config` shows no secret."""

    file: str
    name: str | None
    valid: bool
    errors: list[str]
    config: dict[str, str | None] | None = None


def validate(
    connectors: ConnectorsArgument,
    worker: WorkerOption = None,
    broker: BrokerOption = False,
    as_json: JsonOption = False,
) -> None:
    """Checks connector files, alone and together with the worker file; every fault is listed.

    Raises ConfigError when a file is not valid, UnreachableError when `--broker` finds no broker.
    """
    warn_of_variables()
    asked = BrokerQuestions() if broker else None
    verdicts = _verdicts(connectors, _worker_file(worker, needed=broker), asked)
    for verdict in verdicts:
        say(
            msgspec.json.encode(verdict).decode()
            if as_json
            else "\n".join(f"{verdict.file}: {text}" for text in verdict.errors or ["valid"])
        )
    faulty = [verdict for verdict in verdicts if not verdict.valid]
    if asked is not None and asked.unanswered is not None:
        raise asked.unanswered
    if faulty:
        raise ConfigError(_count(len(faulty), len(verdicts)), "Correct what is listed above and validate again.")


def _count(faulty: int, files: int) -> str:
    if files == 1:
        return "The file is not valid."
    return f"{faulty} of {files} files {'is' if faulty == 1 else 'are'} not valid."


def _worker_file(given: Path | None, *, needed: bool) -> Path | None:
    there = any(path.is_file() for path in DEFAULT_WORKER_FILES)
    return worker_path(given) if given or there or needed else None


def _verdicts(paths: Sequence[Path], worker: Path | None, broker: BrokerQuestions | None) -> list[Verdict]:
    """Returns a verdict for each connector file, after one for the worker file if that, or its machine, is wrong."""
    from connectors.config.errors import FaultyConfigError
    from connectors.config.files import load_worker, other_file

    try:
        config = load_worker(worker) if worker or BOOTSTRAP_VARIABLE in os.environ else None
    except FaultyConfigError as error:
        return [_faulty(error), *(_verdict(path, (), None, None) for path in paths)]
    here = _at_this_machine(config, broker=broker is not None) if config else ()
    others = [other_file(path) for path in paths]
    first = [_faulty(FaultyConfigError(str(worker or "environment"), here))] if here else []
    return [*first, *(_verdict(path, others[:at], config, broker) for at, path in enumerate(paths))]


def _verdict(
    path: Path, before: Sequence[OtherFile], worker: WorkerConfig | None, broker: BrokerQuestions | None
) -> Verdict:
    from connectors.config.errors import FaultyConfigError
    from connectors.config.files import clashes, load_connector, load_valid_part

    try:
        if worker is None:
            config, faulty = load_connector(path).config, None
        else:
            config, faulty = load_valid_part(path, worker)
    except FaultyConfigError as error:
        return _faulty(error)
    faults = [*(faulty.faults if faulty else ()), *clashes(config, before)]
    faults += _around(config, worker, broker) if worker else ()
    if faults:
        return _faulty(FaultyConfigError(str(path), faults))
    return Verdict(str(path), config.name, True, [], config.effective())


def _at_this_machine(worker: WorkerConfig, *, broker: bool) -> tuple[Fault, ...]:
    """Lists what a worker would not find here: Java, a place for its storage. `broker`: an object store is asked."""
    from connectors.config.errors import Fault
    from connectors.config.folder_checks import storage_faults
    from connectors.jvm.java import find_java

    try:
        find_java()
    except ConfigError as error:
        return (*storage_faults(worker, asks=broker), Fault("", str(error)))
    return storage_faults(worker, asks=broker)


def _around(config: ConnectorConfig, worker: WorkerConfig, broker: BrokerQuestions | None) -> tuple[Fault, ...]:
    from connectors.config.folder_checks import snapshot_faults

    return (
        *snapshot_faults(worker, config, asks=broker is not None),
        *(broker.faults(config, worker) if broker else ()),
    )


class BrokerQuestions:
    """What `--broker` asks; `unanswered` is the error of the brokers that did not answer, after which none is asked."""

    def __init__(self) -> None:
        self.unanswered: UnreachableError | None = None

    def faults(self, config: ConnectorConfig, worker: WorkerConfig) -> tuple[Fault, ...]:
        """Returns what the brokers have against a connector, whose settings may be a part of its file's."""
        from connectors.config.clients import client_config
        from connectors.kafka.admin import Admin
        from connectors.kafka.client_settings import ClientSettings
        from connectors.kafka.probe import probe_all
        from connectors.operations.preflight import broker_faults

        if self.unanswered is not None:
            return ()
        try:
            probe_all(config.name, ClientSettings.of(worker, config), _PROBE_S)
            return broker_faults(config, Admin(client_config("admin", worker, config, {})))
        except UnreachableError as error:
            self.unanswered = error
            return ()


def _faulty(error: FaultyConfigError) -> Verdict:
    return Verdict(error.file, None, False, [str(fault) for fault in error.faults])
