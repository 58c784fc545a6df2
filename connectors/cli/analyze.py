"""`keyfold analyze`: what a full fold now would do, also under other settings; it changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from connectors.cli.options import ConnectorArgument, JsonOption, WorkerOption, worker_of
from connectors.cli.output import say, say_json
from connectors.clock import SystemClock
from connectors.errors import ConfigError, UsageError
from connectors.progress.observer import observing

if TYPE_CHECKING:
    from compactor.analyze.effect import Analysis
    from compactor.catalog.catalog import Catalog
    from compactor.settings import EngineSettings
    from compactor.storage.base import Storage
    from connectors.cli.views.analyze import AnalyzeReport
    from connectors.config.connector import ConnectorConfig
    from connectors.config.worker import WorkerConfig

BEARING: Final = (
    *("cleanup.policy", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms"),
    *("delete.retention.ms", "retention.ms", "retention.bytes", "segment.bytes", "fold.full.interval.ms"),
    "bootstrap.fold.enable",
)
"""The settings of a connector that say what a full fold does, or when there is one."""

WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", help="Look at this setting of the connector too; may be repeated.", metavar="KEY=VALUE"),
]


def analyze(
    connector: ConnectorArgument, changes: WithOption = None, as_json: JsonOption = False, worker: WorkerOption = None
) -> None:
    """Shows what a full fold now would remove and keep, per partition; --with: under other settings as well.

    Reads beside a live worker, or without one; writes nothing and takes nothing over.
    """
    config = worker_of(worker)
    from connectors.cli.views.analyze import text
    from connectors.config.files import load_connector

    present = load_connector(connector, config).config
    wanted = parsed(changes or ())
    changed = changed_settings(present, wanted, connector) if wanted else None
    report = _report(config, present, changed, wanted)
    if as_json:
        say_json(report)
    else:
        say(text(report))


def parsed(changes: Sequence[str]) -> dict[str, str]:
    """Parses `--with KEY=VALUE`, without blanks around them. Raises UsageError for what is none, or stands twice."""
    found: dict[str, str] = {}
    for change in changes:
        key, equals, value = (part.strip() for part in change.partition("="))
        if not key or not equals:
            raise UsageError(f'--with "{change}" is not KEY=VALUE.', "For example --with min.compaction.lag.ms=0.")
        if key in found:
            raise UsageError(f"--with {key} stands twice.", "Give each setting once; run the command again for others.")
        found[key] = value
    return found


def changed_settings(present: ConnectorConfig, changes: Mapping[str, str], path: Path) -> ConnectorConfig:
    """Returns `present`, which was read from `path`, with `changes`, checked as a file is. Raises ConfigError."""
    from connectors.config.connector import ConnectorConfig, with_settings
    from connectors.config.definitions import definitions
    from connectors.config.errors import Fault, FaultyConfigError

    file = f"{path} with {_listed(changes)}"
    idle = f"has no bearing on what a fold does; those that have: {', '.join(BEARING)}."
    known = definitions(ConnectorConfig)
    faults = [Fault(key, idle) for key in changes if key in known and key not in BEARING]
    if faults:
        raise FaultyConfigError(file, faults)
    try:
        return with_settings(present, changes)
    except FaultyConfigError as error:
        raise error.of(file) from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.action) from None


def _listed(changes: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in changes.items())


def _report(
    worker: WorkerConfig, present: ConnectorConfig, changed: ConnectorConfig | None, changes: Mapping[str, str]
) -> AnalyzeReport:
    from compactor.catalog import owner_lock
    from connectors.cli.views.analyze import report
    from connectors.config.engine_settings import engine_settings, kept_catalog
    from connectors.config.stores import connector_storage

    storage = connector_storage(worker, present.name)
    catalog = kept_catalog(storage, present.name)
    settings = [engine_settings(config) for config in (present, changed) if config]
    found, now_ms = _analysis(worker, storage, catalog, settings)
    return report(found, catalog.state, catalog.version, now_ms, changes, worker_alive=owner_lock.is_alive(storage))


def _analysis(
    worker: WorkerConfig, storage: Storage, catalog: Catalog, settings: Sequence[EngineSettings]
) -> tuple[Analysis, int]:
    """Returns what is found, and when. Reads little in this process, more on a Spark of its own."""
    from compactor.analyze.analyze import analyze as analyzed
    from compactor.analyze.analyze import is_little
    from compactor.analyze.arrow_counts import ArrowCounts
    from compactor.analyze.spark_counts import SparkCounts
    from connectors.spark import session
    from connectors.spark.job_progress import task_progress

    clock = SystemClock()
    if is_little(catalog.state.logs):
        now_ms = clock.now_ms()
        return analyzed(storage, catalog.state, settings, now_ms, partial(ArrowCounts, storage)), now_ms
    name = settings[0].connector
    with observing(clock) as observer:
        observer.stage(name, "starting Spark")
        spark = session.get_session(
            worker.spark_master, {**session.FOR_RECORDS, **worker.spark_settings}, worker.executors_package
        )
        try:
            state, now_ms = catalog.refresh(), clock.now_ms()
            with task_progress(spark, observer, name, clock) as begin_stage:
                counting = partial(SparkCounts, spark, storage)
                return analyzed(storage, state, settings, now_ms, counting, begin_stage), now_ms
        finally:
            spark.stop()
