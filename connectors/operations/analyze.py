"""Analyzes what cleaning a connector's logs would remove and keep, also under other settings: `keyfold analyze`.

It changes nothing. The fields of AnalyzeReport are those of `analyze --json` (docs/formats.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct

from compactor.analyze import analyze as analysis
from compactor.analyze.arrow_counts import ArrowCounts
from compactor.analyze.effect import Amount, Analysis, Effect, Outcome, PartitionAnalysis, SplitKeys, by_topic, total
from compactor.analyze.keyed_counts import KeyedCounts, ReportPartition
from compactor.catalog import owner_lock
from compactor.catalog.catalog import Catalog
from compactor.model.state import CatalogState
from compactor.settings import EngineSettings
from compactor.storage.base import Storage
from connectors.clock import Clock
from connectors.config.connector import ConnectorConfig, with_settings
from connectors.config.definitions import definitions
from connectors.config.engine_settings import engine_settings, kept_catalog
from connectors.config.errors import Fault, FaultyConfigError
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig
from connectors.errors import ConfigError
from connectors.progress.observer import observing

FORMAT: Final = 1
# Characters of a key that is shown as an example: a table's row stays within a terminal's line.
LONGEST_KEY: Final = 40
BEARING: Final = (
    *("cleanup.policy", "min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms"),
    *("delete.retention.ms", "retention.ms", "retention.bytes", "segment.bytes", "fold.full.interval.ms"),
    *("bootstrap.fold.enable", "compaction.scope"),
)
"""The settings of a connector that say what a full fold does, or when there is one."""


class SplitKey(Struct, frozen=True, kw_only=True):
    """A key with live records in several partitions; `text` is for reading."""

    key: bytes
    text: str
    partitions: tuple[int, ...]


class SplitKeyCount(Struct, frozen=True, kw_only=True):
    """How many such keys a topic has, and a few of them; `outdated` and `deleted` as in `SplitKeys`."""

    keys: int
    examples: tuple[SplitKey, ...]
    outdated: Amount
    deleted: int


class TopicReport(Struct, frozen=True, kw_only=True):
    """The sum over a topic's partitions, but for those `left_out`; `closed` says why it is no longer read.

    `changed` is None without changed settings. `split_keys` is None if less than two partitions hold keys, or if
    no partition holds a live one.
    """

    topic: str
    closed: str | None
    partitions: int
    left_out: int
    present: Effect
    changed: Effect | None
    split_keys: SplitKeyCount | None


class PartitionReport(Struct, frozen=True, kw_only=True):
    """One partition; `unread` is the error for which it was left out, and then there are no outcomes."""

    topic: str
    partition: int
    ingested: int
    published: int
    unread: str | None
    present: Outcome | None
    changed: Outcome | None


class AnalyzeReport(Struct, frozen=True, kw_only=True):
    """Everything; `changes` are the settings of --with, empty without any."""

    format_version: int
    connector: str
    catalog_id: str
    catalog_version: int
    now_ms: int
    worker_alive: bool
    changes: Mapping[str, str]
    topics: tuple[TopicReport, ...]
    partitions: tuple[PartitionReport, ...]


def report(
    analysed: Analysis,
    state: CatalogState,
    catalog_version: int,
    now_ms: int,
    changes: Mapping[str, str],
    *,
    worker_alive: bool,
) -> AnalyzeReport:
    """Reports what was found in `state` at `now_ms`, with the present settings and with `changes` to them."""
    topics = by_topic(analysed.partitions)
    return AnalyzeReport(
        format_version=FORMAT,
        connector=state.connector,
        catalog_id=state.catalog_id,
        catalog_version=catalog_version,
        now_ms=now_ms,
        worker_alive=worker_alive,
        changes=dict(changes),
        topics=tuple(_topic(state, topic, own, analysed.split.get(topic)) for topic, own in topics.items()),
        partitions=tuple(_partition(each) for own in topics.values() for each in own),
    )


def _topic(
    state: CatalogState, topic: str, partitions: Sequence[PartitionAnalysis], split: SplitKeys | None
) -> TopicReport:
    outcomes = [partition.outcomes for partition in partitions if partition.outcomes]
    return TopicReport(
        topic=topic,
        closed=state.topics[topic].closed,
        partitions=len(partitions),
        left_out=len(partitions) - len(outcomes),
        present=total(each[0].effect for each in outcomes),
        changed=total(each[1].effect for each in outcomes) if any(len(each) > 1 for each in outcomes) else None,
        split_keys=_split(split) if split else None,
    )


def _split(split: SplitKeys) -> SplitKeyCount:
    return SplitKeyCount(
        keys=split.keys,
        examples=tuple(
            SplitKey(key=example.key, text=key_text(example.key), partitions=example.partitions)
            for example in split.examples
        ),
        outdated=split.outdated,
        deleted=split.deleted,
    )


def _partition(partition: PartitionAnalysis) -> PartitionReport:
    present, changed, *_ = (*partition.outcomes, None, None)
    return PartitionReport(
        topic=partition.topic,
        partition=partition.partition,
        ingested=partition.ingested,
        published=partition.published,
        unread=partition.error,
        present=present,
        changed=changed,
    )


def key_text(key: bytes) -> str:
    """Returns `key` for a terminal, in at most LONGEST_KEY characters: as text if it is printable, else as hex."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    shown = text if text and text.isprintable() else f"0x{key[:LONGEST_KEY].hex()}" if key else '""'
    return shown if len(shown) <= LONGEST_KEY else f"{shown[: LONGEST_KEY - 1]}…"


def outcomes(partitions: Iterable[PartitionReport]) -> tuple[tuple[PartitionReport, Outcome, Outcome | None], ...]:
    """Returns the partitions that were read, with what was found under the present and the changed settings."""
    return tuple((partition, partition.present, partition.changed) for partition in partitions if partition.present)


def analyze(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    changes: Mapping[str, str],
    path: Path,
    clock: Clock,
) -> AnalyzeReport:
    """Reports what cleaning now would do to `connector`, which was read from `path`, also with `changes` to it.

    Raises ConfigError for changes that are not valid; UsageError if the connector keeps nothing yet; StorageError.
    """
    return _reported(worker, connector, changes, path, partial(_analysis, worker, clock=clock))


def analyze_without_spark(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    changes: Mapping[str, str],
    clock: Clock,
    report_step: Callable[[str], None],
    report_partition: ReportPartition,
) -> AnalyzeReport:
    """Reports the same of any amount in this process, in bounded memory; it takes longer than Spark with many keys.

    Raises ConfigError, UsageError and StorageError as `analyze` does.
    """

    def analysed(storage: Storage, catalog: Catalog, settings: Sequence[EngineSettings]) -> tuple[Analysis, int]:
        now_ms = clock.now_ms()
        counting = partial(KeyedCounts, storage, report=report_partition)
        return analysis.analyze(storage, catalog.state, settings, now_ms, counting, report_step), now_ms

    return _reported(worker, connector, changes, f"connector {connector.name}", analysed)


Analysing = Callable[[Storage, Catalog, Sequence[EngineSettings]], tuple[Analysis, int]]
"""Analyzes what a connector keeps under some settings; returns the analysis and its time (ms)."""


def _reported(
    worker: WorkerConfig,
    connector: ConnectorConfig,
    changes: Mapping[str, str],
    origin: Path | str,
    analysing: Analysing,
) -> AnalyzeReport:
    settings = [engine_settings(connector)]
    if changes:
        settings.append(engine_settings(changed_settings(connector, changes, origin)))
    storage = connector_storage(worker, connector.name)
    catalog = kept_catalog(storage, connector.name)
    analysed, now_ms = analysing(storage, catalog, settings)
    alive = owner_lock.is_alive(storage)
    return report(analysed, catalog.state, catalog.version, now_ms, changes, worker_alive=alive)


def changed_settings(present: ConnectorConfig, changes: Mapping[str, str], origin: Path | str) -> ConnectorConfig:
    """Returns `present`, which is from `origin`, with `changes`, checked as a file is. Raises ConfigError."""
    listed = ", ".join(f"{key}={value}" for key, value in changes.items())
    file = f"{origin} with {listed}"
    no_bearing = f"has no bearing on what a fold does; those that have: {', '.join(BEARING)}."
    known = definitions(ConnectorConfig)
    faults = [Fault(key, no_bearing) for key in changes if key in known and key not in BEARING]
    if faults:
        raise FaultyConfigError(file, faults)
    try:
        return with_settings(present, changes)
    except FaultyConfigError as error:
        raise error.of(file) from None
    except ConfigError as error:
        raise ConfigError(f"{file}: {error.message}", error.action) from None


def _analysis(
    worker: WorkerConfig, storage: Storage, catalog: Catalog, settings: Sequence[EngineSettings], clock: Clock
) -> tuple[Analysis, int]:
    """Returns the analysis and its time (ms). A little is read in this process, more on a Spark of its own."""
    if analysis.is_little(catalog.state.logs):
        now_ms = clock.now_ms()
        return analysis.analyze(storage, catalog.state, settings, now_ms, partial(ArrowCounts, storage)), now_ms
    from compactor.analyze.spark_counts import SparkCounts
    from connectors.spark import session
    from connectors.spark.job_progress import task_progress

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
                return analysis.analyze(storage, state, settings, now_ms, counting, begin_stage), now_ms
        finally:
            spark.stop()
