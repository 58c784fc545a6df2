"""`keyfold run`: the worker."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import structlog
import typer

from connectors.cli.options import WorkerOption, worker_of
from connectors.clock import SystemClock
from connectors.progress.observer import observing

FilesArgument = Annotated[list[Path], typer.Argument(help="Connector files.", metavar="CONNECTOR.json...")]
OnceOption = Annotated[bool, typer.Option("--once", help="Do all that is there now, then end.")]

log = structlog.get_logger(__name__)


def run(connectors: FilesArgument, once: OnceOption = False, worker: WorkerOption = None) -> None:
    """Runs connectors until SIGTERM or Ctrl-C; SIGHUP restarts those whose files changed, and those that FAILED.

    With --once: everything up to the last stable offsets of now is ingested, published, folded and snapshotted.
    """
    config = worker_of(worker)
    from connectors.config.files import load_connectors
    from connectors.config.folder_checks import check_storage
    from connectors.spark.session import SparkStart

    files = load_connectors(connectors, config)
    check_storage(config)
    log.info("starting", storage=str(config.storage_path.absolute()), connectors=[file.config.name for file in files])
    spark = SparkStart(config.spark_master, config.spark_settings)
    from connectors.runtime.worker import Worker  # half a second of imports, which the JVM does not wait for

    clock = SystemClock()
    with observing(clock) as observer:
        worked = Worker(config, files, clock, observer, spark)
        code = worked.run(once=once)
    log.info("ended", exit_code=code)
    if worked.abandoned:
        _leave(code)
    raise typer.Exit(code)


def _leave(code: int) -> None:
    """Ends the process without waiting for threads: what they still do counts for nothing after this."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
