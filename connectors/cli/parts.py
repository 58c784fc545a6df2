"""What commands use that is not of this process: brokers, Spark, the worker, the time. A caller may give others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import typer
from msgspec import Struct

from connectors.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig
    from connectors.config.worker import WorkerConfig
    from connectors.kafka.access import KafkaAccess
    from connectors.operations.redrive.run import DeadLetters
    from connectors.runtime.worker import Worker
    from connectors.spark.session import SparkStart


class CommandParts(Struct, frozen=True):
    """None stands for the real one, which a command imports when it needs it: the imports are slow.

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
