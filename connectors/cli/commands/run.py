"""`keyfold run`: the worker."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import structlog
import typer

from connectors.cli.options import CommandParts, JsonOption, WorkerOption, parts_of, text_of, worker_of
from connectors.cli.output import note, say, say_json
from connectors.clock import SYSTEM_CLOCK
from connectors.errors import UsageError
from connectors.jvm.java import begin_to_find
from connectors.progress.observer import observing
from connectors.signals import HeldSignals, handled

if TYPE_CHECKING:
    from connectors.config.worker import WorkerConfig
    from connectors.metrics.source_lag import SourceLagOf
    from connectors.rest.context import RestContext
    from connectors.rest.listeners import BoundListener
    from connectors.rest.service import MountedPage
    from connectors.runtime.supervised_connector import Connector
    from connectors.runtime.worker import Worker
    from connectors.spark.session import SparkStart

FilesArgument = Annotated[list[Path] | None, typer.Argument(help="Connector files.", metavar="[CONNECTOR.json...]")]
OnceOption = Annotated[bool, typer.Option("--once", help="Do all that is there now, then end.")]

log = structlog.get_logger(__name__)


def run(
    context: typer.Context,
    connectors: FilesArgument = None,
    once: OnceOption = False,
    as_json: JsonOption = False,
    worker: WorkerOption = None,
) -> None:
    """Runs connectors until SIGTERM or Ctrl-C; SIGHUP restarts those whose files changed, and those that FAILED.

    Beside those of the files it runs those of connectors.dir, and those that were made over REST. With --once:
    everything up to the last stable offsets of now is ingested, published, folded and snapshotted, and a table says of
    each topic what was done; --json has it for programs.

    Examples:
        keyfold run customers.json
        keyfold run customers.json --once
    """
    if as_json and not once:
        raise UsageError("--json needs --once.", "A worker that goes on has no result; ask it over REST.")
    from connectors.runtime.specs.connector_limit import open_files_limit, raise_open_files_limit, refuse_few_files
    from connectors.spark.start_ahead import StartAhead

    begin_to_find()
    raise_open_files_limit()  # Spark's JVM takes it over
    refuse_few_files(open_files_limit())
    parts, held = parts_of(context), HeldSignals()
    text = text_of(worker) if parts.spark_start is None else None
    with handled({signal.SIGTERM: held.take, signal.SIGINT: held.take}), StartAhead(text) as ahead:
        config = worker_of(worker)
        start = parts.spark_start or ahead.take
        worked, code, ended = _run(connectors or [], config, held, parts, start, once=once)
    if once:
        _say_done(config, ended, as_json=as_json)
    log.info("ended", exit_code=code)
    if worked.abandoned:
        _leave(code)
    raise typer.Exit(code)


def _run(
    paths: Sequence[Path],
    config: WorkerConfig,
    held: HeldSignals,
    parts: CommandParts,
    start: Callable[..., SparkStart],
    *,
    once: bool,
) -> tuple[Worker, int, Sequence[Connector]]:
    """Runs a worker over the files `paths` and those that it finds; returns it, its exit code and its connectors.

    Spark is started by `start`.
    """
    from connectors.config.folder_checks import check_storage
    from connectors.config.stores import worker_storage
    from connectors.rest.listeners import bind
    from connectors.runtime.specs.connector_files import ConnectorFiles

    files = ConnectorFiles(config, paths)
    loaded = files.load()
    listens = _listens(config, has_connectors=bool(loaded), once=once)
    check_storage(config)
    bound = bind(config) if listens else ()
    log.info("starting", storage=worker_storage(config).location, connectors=[file.config.name for file in loaded])
    spark = start(config.spark_master, config.spark_settings, config.executors_package)
    from connectors.rest.service import listening  # half a second of imports, which the JVM does not wait for
    from connectors.runtime.herder import Herder
    from connectors.runtime.specs.connector_store import ConnectorStore
    from connectors.runtime.worker import Worker

    clock = SYSTEM_CLOCK
    with observing(clock) as observer:
        herder = Herder(config, clock, observer, loaded, ConnectorStore.of(config) if listens else None)
        # With a folder of files a connector may come at any time, too.
        lives_on = listens or (config.connectors_dir is not None and not once)
        worked = (parts.worker or Worker)(config, herder, clock, observer, spark, files)
        held.hand_to(worked.on_stop)
        with (
            listening(config, herder, lambda: worked.health, bound, partial(say_listens, config, bound), page=_page),
            files.watching(worked.reload),
        ):
            code = worked.run(once=once, lives_on=lives_on)
    return worked, code, herder.connectors()


def _listens(config: WorkerConfig, *, has_connectors: bool, once: bool) -> bool:
    """Returns whether the worker listens, and says so if it could but does not.

    Raises UsageError if it has no connectors, and none can come.
    """
    listens = bool(config.listeners) and not once
    if not (has_connectors or listens or (config.connectors_dir and not once)):
        raise UsageError(
            "There is no connector to run: no file is named.",
            "Name connector files; a worker without them waits for connectors over REST, where it has listeners.",
        )
    if not (listens or once):
        note("Nothing listens: the worker file has no listeners. There is no page, no REST and no /metrics.")
    return listens


def say_listens(config: WorkerConfig, bound: Sequence[BoundListener], url: str) -> None:
    """Says that the listener at `url` answers, and at which addresses below it what is found."""
    from connectors.rest.service import ADMIN

    say(f"listening on {url}")
    if any(each.url == url and each.key == ADMIN for each in bound):
        say(f"  loggers  {url}/admin/loggers")
        return
    if config.ui_enable:
        say(f"  page     {url}/ui")
    say(f"  REST     {url}/connectors")
    say(f"  metrics  {url}/metrics")


def _page(context: RestContext, lag: SourceLagOf) -> MountedPage:
    """Makes the worker's page; it is imported only if it is there."""
    from connectors.ui.app import WorkerPage

    return WorkerPage(context, lag)


def _say_done(config: WorkerConfig, connectors: Sequence[Connector], *, as_json: bool) -> None:
    """Says what `--once` has done of each topic."""
    from connectors.cli.views import once as once_view
    from connectors.config.stores import snapshot_storage

    def place(connector: Connector) -> str | None:
        storage = snapshot_storage(config, connector.spec.config)
        return None if storage is None else storage.location

    done = once_view.result(connectors, place)
    if as_json:
        say_json(done)
    elif printed := once_view.text(done, has_duckdb=shutil.which("duckdb") is not None):
        say(printed)


def _leave(code: int) -> None:
    """Ends the process without waiting for threads: what they still do counts for nothing after this."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
