"""Makes `/metrics` of what was measured. docs/metrics.md has each metric; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from compactor.metrics import FRESHNESS_BOUNDS_S
from compactor.storage.request_counts import BYTES_BY_KIND, REQUESTS, REQUESTS_BY_KIND
from connectors.clock import Clock
from connectors.metrics.measured import MeasuredConnector, MeasuredLog, measure
from connectors.metrics.source_lag import SourceLagOf
from connectors.runtime.herder import Herder
from connectors.runtime.status import ConnectorState

STATES: Final = tuple(state.lower() for state in ConnectorState)
TASK_STATES: Final = (*(state for state in STATES if state != "stopped"), "destroyed")


Value = Callable[[MeasuredConnector, int], float | None]
"""Returns a metric of a connector at a time (ms), None without one."""


class OwnMetric(NamedTuple):
    """A metric of each connector: its value from what was measured, None if there is none."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    value: Value


def _count(name: str) -> Callable[[MeasuredConnector, int], float]:
    return lambda connector, _: connector.counters.get(name, 0)


def _sum(field: str) -> Callable[[MeasuredConnector, int], float]:
    return lambda connector, _: connector.total(field)


def _ratio(connector: MeasuredConnector, _: int) -> float:
    return max((log.dirty_ratio for log in connector.logs), default=0.0)


def _delay(connector: MeasuredConnector, now_ms: int) -> float:
    oldest = min((log.oldest_ms for log in connector.logs if log.oldest_ms is not None), default=now_ms)
    return max(0, now_ms - oldest) / 1000


def _snapshot_age(connector: MeasuredConnector, now_ms: int) -> float | None:
    return None if connector.snapshot_ms is None else max(0, now_ms - connector.snapshot_ms) / 1000


_COUNTERS: Final = (
    ("keyfold_records_read", "Records that were taken in.", "records_read"),
    ("keyfold_read_bytes", "Bytes of records that were taken in.", "bytes_read"),
    ("keyfold_offsets_read", "Offsets that were taken in.", "offsets_read"),
    ("keyfold_offsets_lost", "Offsets that were gone before they were read.", "offsets_lost"),
    ("keyfold_records_published", "Records sent to output topics.", "records_published"),
    ("keyfold_published_bytes", "Bytes sent to output topics.", "bytes_published"),
    ("keyfold_records_filtered", "Records that a transform dropped.", "records_filtered"),
    ("keyfold_truncates", "Truncates of tables, which were dropped.", "truncates"),
    ("keyfold_records_rejected", "Records that cannot be folded.", "records_rejected"),
    ("keyfold_records_without_key", "Records that cannot be folded, as they have no key.", "records_without_key"),
    ("keyfold_records_refused", "Records that brokers refused.", "records_refused"),
    ("keyfold_records_superseded", "Records left out before sending.", "records_superseded"),
    ("keyfold_records_late", "Records that lost by the order of the connector.", "records_late"),
    ("keyfold_records_filled", "Records of which placeholders were filled.", "records_filled"),
    ("keyfold_records_left_unfilled", "Records that hold a placeholder still.", "records_left_unfilled"),
    ("keyfold_records_unreadable_to_fill", "Records that may hold one, unread.", "records_unreadable_to_fill"),
    ("keyfold_records_unchanged", "Records not sent, as they change nothing.", "records_unchanged"),
    ("keyfold_dead_letters", "Records sent to the dead letter topic.", "dead_letters"),
    ("keyfold_transactions", "Transactions committed.", "transactions"),
    ("keyfold_transactions_aborted", "Transactions aborted.", "transactions_aborted"),
    ("keyfold_catalog_commits", "Commits to the catalog.", "catalog_commits"),
    ("keyfold_micro_batches", "Micro-batches taken in.", "batches"),
    ("keyfold_snapshots", "Snapshots taken.", "snapshots"),
    ("keyfold_log_cleaner_compactions", "Full folds of a partition.", "full_folds"),
    ("keyfold_log_cleaner_merges", "Merges of runs.", "merges"),
    ("keyfold_log_cleaner_cleaned_bytes", "Bytes of records that folds read.", "fold_bytes_read"),
    ("keyfold_log_cleaner_written_bytes", "Bytes of records folds kept.", "fold_bytes_written"),
    ("keyfold_log_cleaner_removed_records", "Records that full folds left out.", "fold_records_removed"),
)
"""Counters of each connector: the metric's name, its text, and the name under which the engine counts it."""
_GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    ("keyfold_log_cleaner_dirty_ratio", "The largest dirty ratio of a partition.", _ratio),
    ("keyfold_log_cleaner_max_compaction_delay_seconds", "Age of the oldest record not folded.", _delay),
    ("keyfold_log_cleaner_uncleanable_partitions", "Partitions left alone.", _sum("is_quarantined")),
    ("keyfold_log_cleaner_uncleanable_bytes", "Bytes not folded there.", _sum("uncleanable_bytes")),
    ("keyfold_log_cleaner_cleanable_bytes", "Bytes a full fold would fold.", _sum("cleanable_bytes")),
    ("keyfold_tombstones", "Tombstones kept.", _sum("tombstones")),
    ("keyfold_log_clean_bytes", "Bytes of base runs.", _sum("clean_bytes")),
    ("keyfold_publish_lag_offsets", "Offsets taken in and not published.", _sum("unpublished_offsets")),
    ("keyfold_publish_lag_records", "Records taken in and not published.", _sum("unpublished_records")),
    ("keyfold_publish_lag_bytes", "Bytes taken in and not published.", _sum("unpublished_bytes")),
    ("keyfold_publish_held_partitions", "Partitions that are not published on.", _sum("is_held")),
    (
        "keyfold_publish_lag_seconds",
        "For how long the oldest records wait that were taken in and not published, beyond min.compaction.lag.ms.",
        lambda connector, now_ms: connector.lag_ms(now_ms) / 1000,
    ),
    ("keyfold_partitions", "Partitions read.", lambda connector, _: len(connector.logs)),
    ("keyfold_closed_topics", "Topics that are not read any more.", lambda connector, _: connector.closed_topics),
    ("keyfold_open_topics", "Topics that are read.", lambda connector, _: connector.open_topics),
    ("keyfold_failures", "Failures in a row.", lambda connector, _: connector.failures),
    (
        "keyfold_outage_seconds",
        "For how long brokers, a store or a registry have not answered it.",
        lambda connector, now_ms: connector.outage_ms(now_ms) / 1000,
    ),
    ("keyfold_snapshot_age_seconds", "Age of the newest snapshot.", _snapshot_age),
    ("keyfold_snapshot_bytes", "Bytes of all snapshots.", lambda connector, _: connector.snapshot_bytes),
)
OWN: Final = (
    *(OwnMetric(name, "counter", text, _count(key)) for name, text, key in _COUNTERS),
    *(OwnMetric(name, "gauge", text, value) for name, text, value in _GAUGES),
)
PARTITIONS: Final[tuple[tuple[str, str, Callable[[MeasuredLog], float | None]], ...]] = (
    (
        "keyfold_partition_source_lag_records",
        "Source offsets not taken in.",
        lambda log: None if log.source is None else log.source.offsets,
    ),
    (
        "keyfold_partition_publish_lag_offsets",
        "Offsets taken in and not published.",
        lambda log: log.unpublished_offsets,
    ),
    ("keyfold_partition_dirty_ratio", "Dirty ratio.", lambda log: log.dirty_ratio),
    ("keyfold_partition_clean_bytes", "Bytes of the base run.", lambda log: log.clean_bytes),
    ("keyfold_partition_cleanable_bytes", "Bytes a full fold would fold.", lambda log: log.cleanable_bytes),
)


class WorkerCollector(Collector):
    """Collects the metrics of a worker's connectors when they are asked for; asks nothing that could wait.

    `lag` says of a connector, and of a time in ms, the lag of its partitions to their sources.
    """

    def __init__(
        self,
        herder: Herder,
        clock: Clock,
        lag: SourceLagOf = lambda *_: {},
        *,
        names: str,
        partitions: bool,
    ) -> None:
        self._herder = herder
        self._lag = lag
        self._clock = clock
        self._confluent = names == "confluent"
        self._partitions = partitions

    def collect(self) -> Iterator[Metric]:
        """Yields every metric, in a fixed order."""
        now_ms = self._clock.now_ms()
        measured = list(measure(self._herder, lambda connector: self._lag(connector, now_ms)))
        yield from self._connects(measured)
        for metric in OWN:
            yield _own(metric, measured, now_ms)
        yield _durations(measured)
        yield _freshness(measured)
        yield from _of_sources(measured, now_ms)
        yield from _of_stores()
        if self._partitions:
            yield from _of_partitions(measured)

    def _connects(self, measured: Sequence[MeasuredConnector]) -> Iterator[Metric]:
        """Yields the metrics that dashboards and alerts for Kafka Connect ask for."""
        worker = "kafka_connect_connect_worker_metrics" if self._confluent else "kafka_connect_worker"
        yield _family(f"{worker}_connector_count", "Connectors of this worker.", (), [((), len(measured))])
        yield _family(
            f"{worker}_task_count", "Tasks of this worker.", (), [((), sum(connector.tasks for connector in measured))]
        )
        for state in (*TASK_STATES, "total"):
            counts = [
                ((connector.name,), connector.tasks if state in (connector.state, "total") else 0)
                for connector in measured
            ]
            yield _family(f"{worker}_connector_{state}_task_count", f"Tasks: {state}.", ("connector",), counts)
        status = "kafka_connect_connector_metrics" if self._confluent else "kafka_connect_connector_status"
        states = [((connector.name, connector.state), 1.0) for connector in measured]
        yield _family(status, "1 for the state of a connector.", ("connector", "status"), states)
        yield self._task_states(measured)
        sink = "kafka_connect_sink_task_metrics" if self._confluent else "kafka_connect_sink_task"
        for name, counter, text in (
            ("sink_record_read", "records_read", "Records that were taken in."),
            ("sink_record_send", "records_published", "Records that were published."),
        ):
            values = [((connector.name, "0"), connector.counters.get(counter, 0)) for connector in measured]
            yield _family(f"{sink}_{name}", text, ("connector", "task"), values, CounterMetricFamily)
        partitions = [((connector.name, "0"), len(connector.logs)) for connector in measured]
        yield _family(f"{sink}_partition_count", "Partitions read.", ("connector", "task"), partitions)
        errors = "kafka_connect_task_error_metrics" if self._confluent else "kafka_connect_task_error"
        for name, counter in (
            ("total_record_errors", "records_rejected"),
            ("total_record_failures", "records_refused"),
            ("total_records_skipped", "records_rejected"),
            ("deadletterqueue_produce_requests", "dead_letters"),
        ):
            values = [((connector.name, "0"), connector.counters.get(counter, 0)) for connector in measured]
            yield _family(f"{errors}_{name}", name.replace("_", " ").capitalize() + ".", ("connector", "task"), values)

    def _task_states(self, measured: Sequence[MeasuredConnector]) -> Metric:
        name = "kafka_connect_connector_task_metrics" if self._confluent else "kafka_connect_connector_task_status"
        tasks = [
            ((connector.name, str(task), connector.state), 1.0)
            for connector in measured
            for task in range(connector.tasks)
        ]
        return _family(name, "1 for the state of a task.", ("connector", "task", "status"), tasks)


def _own(metric: OwnMetric, measured: Sequence[MeasuredConnector], now_ms: int) -> Metric:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    values = [((each.name,), value) for each in measured if (value := metric.value(each, now_ms)) is not None]
    return _family(metric.name, metric.text, ("connector",), values, kind)


def _durations(measured: Sequence[MeasuredConnector]) -> Metric:
    family = SummaryMetricFamily(
        "keyfold_log_cleaner_duration_seconds", "How long full folds took, by job.", labels=("connector",)
    )
    for connector in measured:
        family.add_metric(
            (connector.name,), connector.counters.get("fold_jobs", 0), connector.counters.get("fold_ms", 0) / 1000
        )
    return family


def _freshness(measured: Sequence[MeasuredConnector]) -> Metric:
    text = "How old records were when they were published, by the oldest of each publish."
    family = HistogramMetricFamily("keyfold_publish_freshness_seconds", text, labels=("connector",))
    for connector in measured:
        counts = accumulate(connector.freshness.records)
        bounds = [*(str(bound) for bound in FRESHNESS_BOUNDS_S), "+Inf"]
        family.add_metric(
            (connector.name,), list(zip(bounds, counts, strict=True)), sum_value=connector.freshness.seconds
        )
    return family


def _of_sources(measured: Sequence[MeasuredConnector], now_ms: int) -> Iterator[Metric]:
    """Yields the lag of connectors to each source topic; nothing for a topic with an unknown lag."""
    offsets: dict[tuple[str, str], int] = {}
    behind_ms: dict[tuple[str, str], int] = {}
    lags = (((connector.name, log.topic), log.source) for connector in measured for log in connector.logs)
    for topic, lag in lags:
        if lag is None:
            continue
        offsets[topic] = offsets.get(topic, 0) + lag.offsets
        since_ms = now_ms if lag.since_ms is None else lag.since_ms
        behind_ms[topic] = max(behind_ms.get(topic, 0), now_ms - since_ms)
    labels = ("connector", "topic")
    yield _family("keyfold_source_lag_records", "Source offsets not taken in.", labels, list(offsets.items()))
    seconds = [(key, ms / 1000) for key, ms in behind_ms.items()]
    yield _family("keyfold_source_lag_seconds", "For how long there are such offsets.", labels, seconds)


def _of_stores() -> Iterator[Metric]:
    """Yields what was asked of object stores, by the worker and by its tasks."""
    counts = REQUESTS.values()
    for name, text, kinds in (
        ("keyfold_storage_requests", "Requests to object stores.", REQUESTS_BY_KIND),
        ("keyfold_storage_bytes", "Bytes of objects that were read and written.", BYTES_BY_KIND),
    ):
        values = [((kind.removeprefix("bytes_"),), counts[kind]) for kind in kinds]
        yield _family(name, text, ("kind",), values, CounterMetricFamily)


def _of_partitions(measured: Sequence[MeasuredConnector]) -> Iterator[Metric]:
    for name, text, value in PARTITIONS:
        logs = ((connector.name, log) for connector in measured for log in connector.logs)
        values = [
            ((connector, log.topic, str(log.partition)), number)
            for connector, log in logs
            if (number := value(log)) is not None
        ]
        yield _family(name, text, ("connector", "topic", "partition"), values)


def _family(
    name: str,
    text: str,
    labels: Sequence[str],
    values: Iterable[tuple[Sequence[str], float]],
    kind: Callable[..., CounterMetricFamily | GaugeMetricFamily] = GaugeMetricFamily,
) -> Metric:
    """Makes a metric of its values, each with those of its labels; a gauge unless `kind` says otherwise."""
    family = kind(name, text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family
