"""Makes `/metrics` of what was measured. docs/metrics.md has each metric; a test holds the two together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from compactor.model.record import TopicPartition
from compactor.storage.request_counts import BYTES_BY_KIND, REQUESTS, REQUESTS_BY_KIND
from connectors.clock import Clock
from connectors.metrics.measured import MeasuredConnector, MeasuredLog, measure
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.herder import Herder
from connectors.runtime.status import ConnectorState
from connectors.runtime.supervised_connector import Connector

STATES: Final = tuple(state.lower() for state in ConnectorState)
TASK_STATES: Final = (*(state for state in STATES if state != "stopped"), "destroyed")


class OwnMetric(NamedTuple):
    """A metric of each connector: its value from what was measured, None if there is none."""

    name: str
    kind: Literal["counter", "gauge"]
    text: str
    value: Callable[[MeasuredConnector, int], float | None]


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


OWN: Final = (
    OwnMetric("keyfold_records_read", "counter", "Records that were taken in.", _count("records_read")),
    OwnMetric("keyfold_read_bytes", "counter", "Bytes of records that were taken in.", _count("bytes_read")),
    OwnMetric("keyfold_offsets_read", "counter", "Offsets that were taken in.", _count("offsets_read")),
    OwnMetric(
        "keyfold_offsets_lost", "counter", "Offsets that were gone before they were read.", _count("offsets_lost")
    ),
    OwnMetric("keyfold_records_published", "counter", "Records sent to output topics.", _count("records_published")),
    OwnMetric("keyfold_published_bytes", "counter", "Bytes sent to output topics.", _count("bytes_published")),
    OwnMetric("keyfold_records_filtered", "counter", "Records that a transform dropped.", _count("records_filtered")),
    OwnMetric("keyfold_records_rejected", "counter", "Records that cannot be folded.", _count("records_rejected")),
    OwnMetric("keyfold_records_refused", "counter", "Records that brokers refused.", _count("records_refused")),
    OwnMetric(
        "keyfold_records_superseded", "counter", "Records left out before sending.", _count("records_superseded")
    ),
    OwnMetric("keyfold_dead_letters", "counter", "Records sent to the dead letter topic.", _count("dead_letters")),
    OwnMetric("keyfold_transactions", "counter", "Transactions committed.", _count("transactions")),
    OwnMetric("keyfold_transactions_aborted", "counter", "Transactions aborted.", _count("transactions_aborted")),
    OwnMetric("keyfold_catalog_commits", "counter", "Commits to the catalog.", _count("catalog_commits")),
    OwnMetric("keyfold_micro_batches", "counter", "Micro-batches taken in.", _count("batches")),
    OwnMetric("keyfold_snapshots", "counter", "Snapshots taken.", _count("snapshots")),
    OwnMetric("keyfold_log_cleaner_compactions", "counter", "Full folds of a partition.", _count("full_folds")),
    OwnMetric("keyfold_log_cleaner_merges", "counter", "Merges of runs.", _count("merges")),
    OwnMetric(
        "keyfold_log_cleaner_cleaned_bytes", "counter", "Bytes of records that folds read.", _count("fold_bytes_read")
    ),
    OwnMetric(
        "keyfold_log_cleaner_written_bytes", "counter", "Bytes of records folds kept.", _count("fold_bytes_written")
    ),
    OwnMetric(
        "keyfold_log_cleaner_removed_records",
        "counter",
        "Records that full folds left out.",
        _count("fold_records_removed"),
    ),
    OwnMetric("keyfold_log_cleaner_dirty_ratio", "gauge", "The largest dirty ratio of a partition.", _ratio),
    OwnMetric(
        "keyfold_log_cleaner_max_compaction_delay_seconds", "gauge", "Age of the oldest record not folded.", _delay
    ),
    OwnMetric("keyfold_log_cleaner_uncleanable_partitions", "gauge", "Partitions left alone.", _sum("is_quarantined")),
    OwnMetric("keyfold_log_cleaner_uncleanable_bytes", "gauge", "Bytes not folded there.", _sum("uncleanable_bytes")),
    OwnMetric("keyfold_log_cleaner_cleanable_bytes", "gauge", "Bytes a full fold would fold.", _sum("cleanable_bytes")),
    OwnMetric("keyfold_tombstones", "gauge", "Tombstones kept.", _sum("tombstones")),
    OwnMetric("keyfold_log_clean_bytes", "gauge", "Bytes of base runs.", _sum("clean_bytes")),
    OwnMetric(
        "keyfold_publish_lag_offsets", "gauge", "Offsets taken in and not published.", _sum("unpublished_offsets")
    ),
    OwnMetric(
        "keyfold_publish_lag_records", "gauge", "Records taken in and not published.", _sum("unpublished_records")
    ),
    OwnMetric("keyfold_publish_lag_bytes", "gauge", "Bytes taken in and not published.", _sum("unpublished_bytes")),
    OwnMetric("keyfold_publish_held_partitions", "gauge", "Partitions that are not published on.", _sum("is_held")),
    OwnMetric(
        "keyfold_publish_lag_seconds",
        "gauge",
        "For how long the oldest records wait that were taken in and not published, beyond min.compaction.lag.ms.",
        lambda connector, now_ms: connector.lag_ms(now_ms) / 1000,
    ),
    OwnMetric("keyfold_partitions", "gauge", "Partitions read.", lambda connector, _: len(connector.logs)),
    OwnMetric(
        "keyfold_closed_topics",
        "gauge",
        "Topics that are not read any more.",
        lambda connector, _: connector.closed_topics,
    ),
    OwnMetric("keyfold_open_topics", "gauge", "Topics that are read.", lambda connector, _: connector.open_topics),
    OwnMetric("keyfold_failures", "gauge", "Failures in a row.", lambda connector, _: connector.failures),
    OwnMetric(
        "keyfold_outage_seconds",
        "gauge",
        "For how long brokers, a store or a registry have not answered it.",
        lambda connector, now_ms: connector.outage_ms(now_ms) / 1000,
    ),
    OwnMetric("keyfold_snapshot_age_seconds", "gauge", "Age of the newest snapshot.", _snapshot_age),
    OwnMetric(
        "keyfold_snapshot_bytes", "gauge", "Bytes of all snapshots.", lambda connector, _: connector.snapshot_bytes
    ),
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
        lag: Callable[[Connector, int], Mapping[TopicPartition, SourceLag]] = lambda *_: {},
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
        yield _gauge(f"{worker}_connector_count", "Connectors of this worker.", (), [((), len(measured))])
        yield _gauge(
            f"{worker}_task_count", "Tasks of this worker.", (), [((), sum(connector.tasks for connector in measured))]
        )
        for state in (*TASK_STATES, "total"):
            counts = [
                ((connector.name,), connector.tasks if state in (connector.state, "total") else 0)
                for connector in measured
            ]
            yield _gauge(f"{worker}_connector_{state}_task_count", f"Tasks: {state}.", ("connector",), counts)
        status = "kafka_connect_connector_metrics" if self._confluent else "kafka_connect_connector_status"
        yield _states(status, "1 for the state of a connector.", measured)
        yield self._task_states(measured)
        sink = "kafka_connect_sink_task_metrics" if self._confluent else "kafka_connect_sink_task"
        for name, counter, text in (
            ("sink_record_read", "records_read", "Records that were taken in."),
            ("sink_record_send", "records_published", "Records that were published."),
        ):
            yield _counter(
                f"{sink}_{name}",
                text,
                [((connector.name, "0"), connector.counters.get(counter, 0)) for connector in measured],
            )
        partitions = [((connector.name, "0"), len(connector.logs)) for connector in measured]
        yield _gauge(f"{sink}_partition_count", "Partitions read.", ("connector", "task"), partitions)
        errors = "kafka_connect_task_error_metrics" if self._confluent else "kafka_connect_task_error"
        for name, counter in (
            ("total_record_errors", "records_rejected"),
            ("total_record_failures", "records_refused"),
            ("total_records_skipped", "records_rejected"),
            ("deadletterqueue_produce_requests", "dead_letters"),
        ):
            values = [((connector.name, "0"), connector.counters.get(counter, 0)) for connector in measured]
            yield _gauge(f"{errors}_{name}", name.replace("_", " ").capitalize() + ".", ("connector", "task"), values)

    def _task_states(self, measured: Sequence[MeasuredConnector]) -> Metric:
        name = "kafka_connect_connector_task_metrics" if self._confluent else "kafka_connect_connector_task_status"
        tasks = [
            ((connector.name, str(task), connector.state), 1.0)
            for connector in measured
            for task in range(connector.tasks)
        ]
        return _gauge(name, "1 for the state of a task.", ("connector", "task", "status"), tasks)


def _states(name: str, text: str, measured: Sequence[MeasuredConnector]) -> Metric:
    return _gauge(
        name, text, ("connector", "status"), [((connector.name, connector.state), 1.0) for connector in measured]
    )


def _own(metric: OwnMetric, measured: Sequence[MeasuredConnector], now_ms: int) -> Metric:
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.text, labels=("connector",))
    for connector in measured:
        if (value := metric.value(connector, now_ms)) is not None:
            family.add_metric((connector.name,), value)
    return family


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
    yield _gauge("keyfold_source_lag_records", "Source offsets not taken in.", labels, list(offsets.items()))
    seconds = [(key, ms / 1000) for key, ms in behind_ms.items()]
    yield _gauge("keyfold_source_lag_seconds", "For how long there are such offsets.", labels, seconds)


def _of_stores() -> Iterator[Metric]:
    """Yields what was asked of object stores, by the worker and by its tasks."""
    counts = REQUESTS.values()
    for name, text, kinds in (
        ("keyfold_storage_requests", "Requests to object stores.", REQUESTS_BY_KIND),
        ("keyfold_storage_bytes", "Bytes of objects that were read and written.", BYTES_BY_KIND),
    ):
        family = CounterMetricFamily(name, text, labels=("kind",))
        for kind in kinds:
            family.add_metric((kind.removeprefix("bytes_"),), counts[kind])
        yield family


def _of_partitions(measured: Sequence[MeasuredConnector]) -> Iterator[Metric]:
    for name, text, value in PARTITIONS:
        logs = ((connector.name, log) for connector in measured for log in connector.logs)
        values = [
            ((connector, log.topic, str(log.partition)), number)
            for connector, log in logs
            if (number := value(log)) is not None
        ]
        yield _gauge(name, text, ("connector", "topic", "partition"), values)


def _gauge(name: str, text: str, labels: Sequence[str], values: Sequence[tuple[Sequence[str], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for of, value in values:
        family.add_metric(of, value)
    return family


def _counter(name: str, text: str, values: Sequence[tuple[Sequence[str], float]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=("connector", "task"))
    for of, value in values:
        family.add_metric(of, value)
    return family
