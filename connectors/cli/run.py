"""`keyfold run`: the worker."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from connectors.cli.options import WorkerOption, worker_of
from connectors.clock import SystemClock
from connectors.progress.observer import observing
from connectors.runtime.signals import HeldSignals, handled

if TYPE_CHECKING:
    from connectors.config.worker import WorkerConfig
    from connectors.runtime.worker import Worker

FilesArgument = Annotated[list[Path], typer.Argument(help="Connector files.", metavar="CONNECTOR.json...")]
OnceOption = Annotated[bool, typer.Option("--once", help="Do all that is there now, then end.")]

log = structlog.get_logger(__name__)


def run(connectors: FilesArgument, once: OnceOption = False, worker: WorkerOption = None) -> None:
    """Runs connectors until SIGTERM or Ctrl-C; SIGHUP restarts those whose files changed, and those that FAILED.

    With --once: everything up to the last stable offsets of now is ingested, published, folded and snapshotted.
    """
    held = HeldSignals()
    with handled({signal.SIGTERM: held.take, signal.SIGINT: held.take}):
        worked, code = _run(connectors, worker_of(worker), held, once=once)
    log.info("ended", exit_code=code)
    if worked.abandoned:
        _leave(code)
    raise typer.Exit(code)


def _run(paths: Sequence[Path], config: WorkerConfig, held: HeldSignals, *, once: bool) -> tuple[Worker, int]:
    """Runs a worker over the files `paths`; returns it and its exit code."""
    from connectors.config.files import load_connectors
    from connectors.config.folder_checks import check_storage
    from connectors.spark.session import SparkStart

    files = load_connectors(paths, config)
    check_storage(config)
    log.info("starting", storage=str(config.storage_path.absolute()), connectors=[file.config.name for file in files])
    spark = SparkStart(config.spark_master, config.spark_settings)
    from connectors.runtime.worker import Worker  # half a second of imports, which the JVM does not wait for

    clock = SystemClock()
    with observing(clock) as observer:
        worked = Worker(config, files, clock, observer, spark)
        held.hand_to(worked.on_stop)
        return worked, worked.run(once=once)


def _leave(code: int) -> None:
    """Ends the process without waiting for threads: what they still do counts for nothing after this."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
