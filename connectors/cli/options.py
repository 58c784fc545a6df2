"""Defines the options of commands and what a caller may give them, and finds the worker file if none is named."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import structlog
import typer
from msgspec import Struct

from connectors import logging_setup
from connectors.cli.output import note
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import ConfigError, UsageError
from connectors.operations.request_timeout import RequestTimeout

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig
    from connectors.config.worker import WorkerConfig
    from connectors.kafka.access import KafkaAccess
    from connectors.operations.redrive.run import DeadLetters
    from connectors.runtime.worker import Worker
    from connectors.spark.session import SparkStart

DEFAULT_WORKER_FILES: Final = (Path("worker.json"), Path("configs/worker.json"))
BOOTSTRAP_VARIABLE: Final = "KEYFOLD_BOOTSTRAP_SERVERS"

_log = structlog.get_logger(__name__)

WorkerOption = Annotated[
    Path | None,
    typer.Option("--worker", help="The worker file; left out: worker.json, else configs/worker.json.", metavar="FILE"),
]
UnusedWorkerOption = Annotated[
    Path | None,
    typer.Option("--worker", help="Taken by every command; this one needs nothing from it.", metavar="FILE"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as JSON (its fields: docs/formats.md).")]
LossOption = Annotated[
    bool,
    typer.Option("--accept-loss", help="Also if the source has lost records since, read or not."),
]
ConnectorArgument = Annotated[Path, typer.Argument(help="The connector file.", metavar="CONNECTOR.json")]
TopicOption = Annotated[str, typer.Option("--topic", help="The source topic.", metavar="T")]
SomeTopicOption = Annotated[str | None, typer.Option("--topic", help="Only this source topic.", metavar="T")]
KeyOption = Annotated[str | None, typer.Option("--key", help="Only records with this key, as text.", metavar="K")]
MaxOption = Annotated[int | None, typer.Option("--max", help="End after this many records.", metavar="N", min=1)]
SomePartitionOption = Annotated[
    int | None, typer.Option("--partition", help="Only this partition of it.", metavar="P", min=0)
]
PartitionOption = Annotated[int, typer.Option("--partition", help="Its partition.", metavar="P", min=0)]

ConvertersOption = Annotated[
    Path | None,
    typer.Option(
        "--connector",
        help="The connector file, if keys or values are read by settings that snapshots do not hold, such as a login.",
        metavar="FILE",
    ),
]

TimeoutOption = Annotated[
    int, typer.Option("--timeout", help="How long a live worker is waited for.", metavar="SECONDS", min=1)
]


def request_timeout(seconds: int) -> RequestTimeout:
    """Returns a wait for a worker of at most `seconds`, which says on stderr what it waits for."""
    return RequestTimeout(seconds, note)


def check_has_topic(topic: str | None, partition: int | None) -> None:
    """Raises UsageError if there is a `partition` without the topic that it is of."""
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic.", "Name the topic that the partition is of.")


def worker_path(given: Path | None) -> Path | None:
    """Returns `given`, or the first of DEFAULT_WORKER_FILES that exists; None if the environment names the brokers.

    Raises ConfigError if there is none of these.
    """
    if given is not None:
        return given
    default = next((path for path in DEFAULT_WORKER_FILES if path.is_file()), None)
    if default is None and BOOTSTRAP_VARIABLE not in os.environ:
        names = " nor ".join(str(path) for path in DEFAULT_WORKER_FILES)
        raise ConfigError(
            f"There is no worker file: --worker names none, and there is neither {names}.",
            f"Give --worker FILE, or set {BOOTSTRAP_VARIABLE}.",
        )
    return default


def text_of(given: Path | None) -> str | None:
    """Returns what is in the worker file, before it is checked; None if it cannot be read."""
    try:
        path = worker_path(given)
        return "" if path is None else path.read_text(encoding="utf-8")
    except (ConfigError, OSError, UnicodeDecodeError):  # `worker_of` says so
        return None


def has_worker(given: Path | None) -> bool:
    """Returns whether there is a worker file, or the variable that stands for it: `worker_path` does not raise."""
    return given is not None or BOOTSTRAP_VARIABLE in os.environ or any(map(Path.is_file, DEFAULT_WORKER_FILES))


def worker_of(given: Path | None) -> WorkerConfig:
    """Reads the worker file of `worker_path`, and configures logging as it says. Raises ConfigError."""
    from connectors.config.files import load_worker

    config = load_worker(worker_path(given))
    logging_setup.configure(config.log_level, config.log_format)
    logging_setup.hand_on(config.log_level, config.log_format)
    warn_of_variables()
    return config


def configs_of(connector: Path, worker: Path | None) -> tuple[WorkerConfig, ConnectorConfig]:
    """Reads the worker file and a connector file, and configures logging. Raises ConfigError."""
    from connectors.config.files import load_connector

    config = worker_of(worker)
    return config, load_connector(connector, config).config


def converters_of(connector: Path | None, worker: WorkerConfig) -> dict[str, str]:
    """Returns the settings of what writes a connector's records; none without a file. Raises ConfigError."""
    if connector is None:
        return {}
    from connectors.config.files import load_connector
    from connectors.typed.converter_settings import settings_of

    return settings_of(load_connector(connector, worker).config.chain_spec(worker.given))


def warn_of_variables() -> None:
    """Logs a warning for each variable `KEYFOLD_…` that keyfold does not know and that sets nothing."""
    from connectors.config.worker import strange

    for sentence in strange(os.environ):
        _log.warning("unknown variable in the environment", reason=sentence)


class CommandParts(Struct, frozen=True):
    """What commands use that is not of this process: brokers, Spark, the worker, the time.

    None stands for the real one, which a command imports when it needs it: the imports are slow.

    They are given as Typer's `obj`: `app(obj=CommandParts(...))`, or `CliRunner().invoke(app, ..., obj=...)`.
    """

    kafka: KafkaAccess | None = None
    dead_letters: Callable[[WorkerConfig, ConnectorConfig], DeadLetters] | None = None
    spark_start: Callable[..., SparkStart] | None = None
    worker: Callable[..., Worker] | None = None
    clock: Clock = SYSTEM_CLOCK


def parts_of(context: typer.Context) -> CommandParts:
    """Returns what the command that runs in `context` was given."""
    return context.find_object(CommandParts) or CommandParts()
