"""What `/metrics` says: each value from a made catalog, the names of both families, and how quickly it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from compactor.metrics import Counters, Freshness
from compactor.model.log import Quarantined
from compactor.model.record import TopicPartition
from compactor.model.state import Topic
from compactor.storage.request_counts import REQUESTS, REQUESTS_BY_KIND
from connectors.metrics.collector import OWN, PARTITIONS
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervised_connector import Connector
from tests.support.logs import base, file, log, run
from tests.support.measured import NOW_MS, RUNNING, Scrape, Series, connector, snapshot, state, stopped
from tests.support.rest import RestWorker, rest_worker

SECRET: Final = "geheim-4711"
TASKS: Final = 3
QUICK_S: Final = 0.3
"""CPU time that a scrape of a thousand partitions may take: 6 times what it does."""
COUNTS: Final = {name: 1_000 + 7 * place for place, name in enumerate((*Counters().values(), "catalog_commits"))}
"""A number of its own for each count."""
COUNTED: Final = {
    "keyfold_records_read_total": "records_read",
    "keyfold_read_bytes_total": "bytes_read",
    "keyfold_offsets_read_total": "offsets_read",
    "keyfold_offsets_lost_total": "offsets_lost",
    "keyfold_records_published_total": "records_published",
    "keyfold_published_bytes_total": "bytes_published",
    "keyfold_records_filtered_total": "records_filtered",
    "keyfold_records_rejected_total": "records_rejected",
    "keyfold_records_without_key_total": "records_without_key",
    "keyfold_truncates_total": "truncates",
    "keyfold_records_refused_total": "records_refused",
    "keyfold_dead_letters_total": "dead_letters",
    "keyfold_records_superseded_total": "records_superseded",
    "keyfold_records_late_total": "records_late",
    "keyfold_records_filled_total": "records_filled",
    "keyfold_records_left_unfilled_total": "records_left_unfilled",
    "keyfold_records_unreadable_to_fill_total": "records_unreadable_to_fill",
    "keyfold_records_unchanged_total": "records_unchanged",
    "keyfold_transactions_total": "transactions",
    "keyfold_transactions_aborted_total": "transactions_aborted",
    "keyfold_catalog_commits_total": "catalog_commits",
    "keyfold_micro_batches_total": "batches",
    "keyfold_snapshots_total": "snapshots",
    "keyfold_log_cleaner_compactions_total": "full_folds",
    "keyfold_log_cleaner_merges_total": "merges",
    "keyfold_log_cleaner_cleaned_bytes_total": "fold_bytes_read",
    "keyfold_log_cleaner_written_bytes_total": "fold_bytes_written",
    "keyfold_log_cleaner_removed_records_total": "fold_records_removed",
}
GAUGES: Final = {
    "keyfold_log_cleaner_dirty_ratio": 0.25,
    "keyfold_log_cleaner_max_compaction_delay_seconds": 90.0,
    "keyfold_log_cleaner_uncleanable_partitions": 1,
    "keyfold_log_cleaner_uncleanable_bytes": 60,
    "keyfold_log_cleaner_cleanable_bytes": 485,
    "keyfold_log_clean_bytes": 1_965,
    "keyfold_publish_lag_offsets": 75,
    "keyfold_publish_lag_bytes": 110,
    "keyfold_publish_lag_records": 65,
    "keyfold_publish_held_partitions": 1,
    "keyfold_publish_lag_seconds": 15.0,
    "keyfold_partitions": 3,
    "keyfold_tombstones": 0,
    "keyfold_failures": 2,
    "keyfold_closed_topics": 1,
    "keyfold_open_topics": 0,
    "keyfold_outage_seconds": 0.0,
    "keyfold_snapshot_age_seconds": 60.5,
    "keyfold_snapshot_bytes": 300,
}


def made(name: str = "a", status: Status | None = None) -> Connector:
    """A connector of three partitions: one with all kinds of bytes, one in quarantine, one of a topic set aside."""
    kept = log(
        run(100, 150, 400, arrived=NOW_MS - 50_000, oldest=NOW_MS - 90_000),
        run(150, 180, [file(150, 169, 70)], arrived=NOW_MS - 20_000),
        clean=base(100, 1_200),
        published=150,
    )
    set_aside = replace(
        log(
            run(20, 30, 60, arrived=NOW_MS - 9_000),
            run(30, 75, 40, arrived=NOW_MS - 8_000),
            clean=base(20, 540),
            published=30,
            tp=TopicPartition("t", 1),
        ),
        quarantine=Quarantined(since_ms=1, retry_ms=2, failures=3, error="damaged"),
    )
    younger = log(run(7, 9, 25, arrived=NOW_MS - 30_000), clean=base(7, 225), tp=TopicPartition("u", 0))
    snapshots = [snapshot(NOW_MS - 60_500, 100), snapshot(NOW_MS - 99_000, 200)]
    recreated = Topic(topic="u", topic_id="1", output="o", output_id="2", closed="recreated")
    catalog = replace(state(kept, set_aside, younger, buckets=TASKS, snapshots=snapshots), topics={"u": recreated})
    running = Status(ConnectorState.RUNNING, failures=2)
    return connector(name, catalog, status or running, COUNTS, **{"min.compaction.lag.ms": "5000"})


def test_counts() -> None:
    """Each counter has the count of its name."""
    found = Scrape(made()).values()
    assert {name: found[Series(name, ("a",))] for name in COUNTED} == {
        name: COUNTS[count] for name, count in COUNTED.items()
    }


def test_gauges() -> None:
    """Sums over partitions, the largest dirty ratio, and ages in seconds."""
    found = Scrape(made()).values()
    assert {name: found[Series(name, ("a",))] for name in GAUGES} == GAUGES


def test_every_metric_of_our_own_has_a_row_here() -> None:
    """What is added is tried, too."""
    assert {f"{one.name}_total" if one.kind == "counter" else one.name for one in OWN} == {*COUNTED, *GAUGES}


def test_durations_are_a_summary() -> None:
    """Their sum and how many there were, so that rates give an average."""
    found = Scrape(made()).values()
    name = "keyfold_log_cleaner_duration_seconds"
    counted = [found[Series(f"{name}_{part}", ("a",))] for part in ("sum", "count")]
    assert counted == [COUNTS["fold_ms"] / 1000, COUNTS["fold_jobs"]]


def test_ages_are_never_below_nothing() -> None:
    """The clock may have been set back since."""
    found = Scrape(made(), now_ms=NOW_MS - 1_000_000).values()
    names = ("max_compaction_delay_seconds", "publish_lag_seconds", "snapshot_age_seconds")
    assert [value for series, value in found.items() if series.name.endswith(names)] == [0.0, 0.0, 0.0]


def test_two_connectors_are_told_apart() -> None:
    """Each has series of its own, and the worker's count both."""
    found = Scrape(made("a"), connector("b", state(log(clean=base(5, 17))), RUNNING, {"merges": 1})).values()
    assert [found[Series("keyfold_log_clean_bytes", (name,))] for name in "ab"] == [1_965, 17]
    assert [found[Series("keyfold_log_cleaner_merges_total", (name,))] for name in "ab"] == [COUNTS["merges"], 1]
    assert found[Series("kafka_connect_worker_connector_count")] == 2
    assert found[Series("kafka_connect_worker_task_count")] == TASKS + 1


@pytest.mark.parametrize(
    ("names", "worker", "status", "tasks", "sink", "errors"),
    [
        (
            "strimzi",
            "kafka_connect_worker",
            "kafka_connect_connector_status",
            "kafka_connect_connector_task_status",
            "kafka_connect_sink_task",
            "kafka_connect_task_error",
        ),
        (
            "confluent",
            "kafka_connect_connect_worker_metrics",
            "kafka_connect_connector_metrics",
            "kafka_connect_connector_task_metrics",
            "kafka_connect_sink_task_metrics",
            "kafka_connect_task_error_metrics",
        ),
    ],
)
def test_kafka_connects_names(names: str, worker: str, status: str, tasks: str, sink: str, errors: str) -> None:
    """Both families have the same values, and nothing of the other family is there."""
    found = Scrape(made(), names=names).values()
    connects = {series: value for series, value in found.items() if series.name.startswith("kafka_connect")}
    states = ("unassigned", "running", "paused", "failed", "restarting", "destroyed", "total")
    own, first = ("a",), ("a", "0")
    expected = {
        Series(f"{worker}_connector_count"): 1,
        Series(f"{worker}_task_count"): TASKS,
        **{
            Series(f"{worker}_connector_{each}_task_count", own): TASKS * (each in ("running", "total"))
            for each in states
        },
        Series(status, ("a", "running")): 1,
        **{Series(tasks, ("a", "running", str(task))): 1 for task in range(TASKS)},
        Series(f"{sink}_sink_record_read_total", first): COUNTS["records_read"],
        Series(f"{sink}_sink_record_send_total", first): COUNTS["records_published"],
        Series(f"{sink}_partition_count", first): 3,
        Series(f"{errors}_total_record_errors", first): COUNTS["records_rejected"],
        Series(f"{errors}_total_record_failures", first): COUNTS["records_refused"],
        Series(f"{errors}_total_records_skipped", first): COUNTS["records_rejected"],
        Series(f"{errors}_deadletterqueue_produce_requests", first): COUNTS["dead_letters"],
    }
    assert connects == expected


@pytest.mark.parametrize("names", ["strimzi", "confluent"])
def test_our_own_names_are_the_same_in_both_families(names: str) -> None:
    """metrics.names is about Kafka Connect's only."""
    found = Scrape(made(), names=names).values()
    histogram = {f"keyfold_publish_freshness_seconds_{part}" for part in ("bucket", "count", "sum")}
    summary = {f"keyfold_log_cleaner_duration_seconds_{part}" for part in ("count", "sum")}
    own = {series.name for series in found if series.name.startswith("keyfold")}
    stores = {"keyfold_storage_requests_total", "keyfold_storage_bytes_total"}
    assert own == {*COUNTED, *GAUGES, *histogram, *summary, *stores}


@pytest.mark.parametrize("is_now", ConnectorState)
def test_tasks_are_counted_by_state(is_now: ConnectorState) -> None:
    """All of a connector's tasks are in its state; one that is STOPPED has none."""
    found = Scrape(made("a", Status(is_now))).values()
    tasks = 0 if is_now is ConnectorState.STOPPED else TASKS
    for each in ("unassigned", "running", "paused", "failed", "restarting", "destroyed"):
        counted = tasks if each == is_now.lower() else 0
        assert found[Series(f"kafka_connect_worker_connector_{each}_task_count", ("a",))] == counted
    assert found[Series("kafka_connect_worker_connector_total_task_count", ("a",))] == tasks
    assert found[Series("kafka_connect_worker_task_count")] == tasks
    status = {
        series.labels: value for series, value in found.items() if series.name == "kafka_connect_connector_status"
    }
    assert status == {("a", is_now.lower()): 1}
    shown = [series.labels for series in found if series.name == "kafka_connect_connector_task_status"]
    assert shown == [("a", is_now.lower(), str(task)) for task in range(tasks)]


def series_of(found: dict[Series, float], name: str) -> set[str]:
    """The names of the series of a connector."""
    return {series.name for series in found if series.labels[:1] == (name,)}


def test_nothing_vanishes_with_a_state() -> None:
    """A connector that is FAILED has the series of one that runs; of one that is STOPPED less is known."""
    found = Scrape(made("a"), made("b", Status(ConnectorState.FAILED)), stopped("c"), connector("d", None)).values()
    everything = series_of(found, "a")
    assert series_of(found, "b") == everything
    assert series_of(found, "c") == everything - {
        "keyfold_snapshot_age_seconds",  # there is none that it knows of
        "kafka_connect_connector_task_status",  # it has no tasks
    }
    assert series_of(found, "d") == everything - {"keyfold_snapshot_age_seconds"}


def test_partitions_are_there_when_they_are_asked_for() -> None:
    """Each has its own values, by topic and number; they are many, so by default there are none."""
    names = {name for name, *_ in PARTITIONS}
    lag = {TopicPartition("t", 1): SourceLag(8, 1)}
    assert not names & {series.name for series in Scrape(made(), lag=lag).values()}
    found = Scrape(made(), partitions=True, lag=lag).values()
    first, second, third = ("a", "0", "t"), ("a", "1", "t"), ("a", "0", "u")
    values = {
        "keyfold_partition_source_lag_records": {second: 8},
        "keyfold_partition_publish_lag_offsets": {first: 30, second: 45, third: 0},
        "keyfold_partition_dirty_ratio": {first: 0.25, second: 0.1, third: 0.1},
        "keyfold_partition_clean_bytes": {first: 1_200, second: 540, third: 225},
        "keyfold_partition_cleanable_bytes": {first: 400, second: 60, third: 25},
    }
    assert names == set(values)
    of_partitions = {name: {one.labels: value for one, value in found.items() if one.name == name} for name in names}
    assert of_partitions == values


def test_requests_to_object_stores_are_counted() -> None:
    """By kind, for the whole worker, and what a task in another process reports with them."""
    before, scraped = REQUESTS.values(), Scrape().values()
    REQUESTS.add("get", 3)
    REQUESTS.add("bytes_read", 500)
    report = REQUESTS.report_since(before)
    REQUESTS.add_report(report)  # of this process, which has counted it
    REQUESTS.add_report(str(report).replace(str(os.getpid()), "0"))
    added = {series: value - scraped[series] for series, value in Scrape().values().items()}
    assert {series: value for series, value in added.items() if "_storage_" in series.name} == {
        **dict.fromkeys((Series("keyfold_storage_requests_total", (kind,)) for kind in REQUESTS_BY_KIND), 0),
        Series("keyfold_storage_requests_total", ("get",)): 6,
        Series("keyfold_storage_bytes_total", ("read",)): 1_000,
        Series("keyfold_storage_bytes_total", ("written",)): 0,
    }


def test_without_connectors() -> None:
    """A worker that has none says that it has none."""
    found = {one: value for one, value in Scrape(partitions=True).values().items() if "_storage_" not in one.name}
    assert found == {Series("kafka_connect_worker_connector_count"): 0, Series("kafka_connect_worker_task_count"): 0}


def test_the_text_is_prometheus_text() -> None:
    """Each metric is there once, with its kind and a sentence; counters end in _total."""
    families = list(text_string_to_metric_families(Scrape(made(), made("b"), partitions=True).text()))
    names = [family.name for family in families]
    assert len(set(names)) == len(names)
    kinds = {f"{one.name}": one.kind for one in OWN}
    assert {family.name: family.type for family in families if family.name in kinds} == kinds
    assert [family.name for family in families if not family.documentation.endswith(".")] == []
    assert {sample.name.endswith("_total") for one in families if one.type == "counter" for sample in one.samples} == {
        True
    }


def test_no_config_is_in_the_text() -> None:
    """Names of connectors, topics and states are all that is said of them: no secret, no error, no other setting."""
    config = {
        "consumer.override.client.rack": "rack-7",
        "consumer.override.sasl.password": SECRET,
        "producer.override.sasl.password": f"${{env:{SECRET}}}",
        "output.topic": "output-of-a",
    }
    failed = Status(ConnectorState.FAILED, f"Login failed: sasl.password={SECRET}", 1)
    text = Scrape(connector("a", made().catalog_state, failed, COUNTS, **config), partitions=True).text()
    assert [word for word in (SECRET, "rack-7", "output-of-a", "Login", "sasl") if word in text] == []


def test_a_scrape_is_quick() -> None:
    """Of a thousand partitions, with values for each."""
    logs = [
        log(
            *(run(10 * place, 10 * place + 10, 30, arrived=NOW_MS - place) for place in range(1, 9)),
            clean=base(10, 100),
            published=60,
            tp=TopicPartition("t", number),
        )
        for number in range(1_000)
    ]
    scrape = Scrape(connector("a", state(*logs), RUNNING, COUNTS), partitions=True)
    assert scrape.values()[Series("keyfold_partitions", ("a",))] == len(logs)

    def taken_s() -> float:
        begin = time.thread_time()
        scrape.text()
        return time.thread_time() - begin

    assert min(taken_s() for _ in range(5)) < QUICK_S


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[RestWorker]:
    settings = {"metrics.names": "confluent", "metrics.partitions": "true"}
    with rest_worker(tmp_path, **settings) as found:
        yield found


def scraped(worker: RestWorker) -> set[tuple[str, ...]]:
    answer = worker.ask("GET", "/metrics")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (200, "text/plain")
    families = text_string_to_metric_families(answer.text)
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items())))
        for family in families
        for sample in family.samples
    }


def test_a_worker_shows_its_connectors(worker: RestWorker) -> None:
    """By the names and with the partitions that its file asks for; FAILED and STOPPED ones too, deleted ones not."""
    for name in ("runs", "failed", "stopped", "deleted"):
        worker.create(name)
    worker.supervisor("runs").catalog_state = made().catalog_state
    worker.supervisor("failed").fail("Away.")
    worker.ask("PUT", "/connectors/stopped/stop")
    worker.ask("DELETE", "/connectors/deleted")
    found = scraped(worker)
    status = {one[1:] for one in found if one[0] == "kafka_connect_connector_metrics"}
    assert status == {("runs", "running"), ("failed", "failed"), ("stopped", "stopped")}
    assert ("keyfold_partition_clean_bytes", "runs", "0", "t") in found
    assert {one[1] for one in found if one[0] == "keyfold_records_read_total"} == {"runs", "failed", "stopped"}


def test_freshness_is_a_histogram() -> None:
    """Each record is in every bucket from that of its age on; a sum and a count let an average be made."""
    fresh = Freshness().with_sent(0.05, 10).with_sent(0.25, 5).with_sent(600.0, 1)
    found = Scrape(connector("a", None, RUNNING, None, fresh)).values()
    name = "keyfold_publish_freshness_seconds"
    buckets = {series.labels: value for series, value in found.items() if series.name == f"{name}_bucket"}
    assert buckets["a", "0.1"] == 10
    assert buckets["a", "0.25"] == buckets["a", "60.0"] == 15
    assert buckets["a", "+Inf"] == found[Series(f"{name}_count", ("a",))] == 16
    assert found[Series(f"{name}_sum", ("a",))] == pytest.approx(0.5 + 1.25 + 600)
