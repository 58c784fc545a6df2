"""What a worker that runs says of itself at /metrics, and what is asked of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.cli import invoke
from tests.support.dashboards import asked_names
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import consume_all, create_topic, end_offsets, produce, produce_transaction, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)

BY_PROMETHEUS = {"up", "ALERTS"}
RECORDS = 300


def _scraped(worker: RestProcess) -> Mapping[str, float]:
    """Each metric with the sum of its samples."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(worker.ask("GET", "/metrics").text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0) + sample.value
    return found


def test_a_worker_has_what_alerts_and_dashboard_ask_for(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> None:
    """Each metric is there once records were published, folded and snapshotted, and what is counted adds up.

    `keyfold top` reads them.

    All of them stay when the connector fails. That its lag is measured on then, every 15 s, test_source_lag.py tries.
    """
    topic = create_topic(broker.bootstrap, topic_name, 2, cleanup_policy="delete")
    one = Deployment(tmp_path, broker.bootstrap, topic)
    one.settings |= {"snapshot.interval.ms": 1_000, "output.topic.config.min.insync.replicas": 1}
    with RestProcess(tmp_path, broker.bootstrap, (), **{"metrics.partitions": "true"}) as worker:
        worker.create(one)
        worker.until_state(one.name, "RUNNING")
        produce(broker.bootstrap, topic, random_records(1, RECORDS))
        produce_transaction(broker.bootstrap, topic, [(0, b"a", b"aborted")], commit=False)
        wait_until(one.caught_up, "everything is published", PROCESS_TIMEOUT_S)
        wait_until(lambda: "keyfold_snapshot_age_seconds" in _scraped(worker), "a snapshot", PROCESS_TIMEOUT_S)
        cleaned = "keyfold_log_cleaner_compactions_total"  # the first snapshot may be of a log that has nothing yet
        wait_until(lambda: _scraped(worker)[cleaned], "a snapshot of what was published", PROCESS_TIMEOUT_S)
        lag = "keyfold_source_lag_records"
        wait_until(lambda: _scraped(worker).get(lag) == 0, "the worker has looked at the source", PROCESS_TIMEOUT_S)
        found = _scraped(worker)
        assert asked_names() - found.keys() == BY_PROMETHEUS
        sent = len(consume_all(broker.bootstrap, one.output))
        counts = ("records_read_total", "records_published_total", "records_superseded_total", "publish_lag_records")
        assert [found[f"keyfold_{name}"] for name in counts] == [RECORDS, sent, RECORDS - sent, 0]
        assert found["keyfold_offsets_read_total"] == sum(end_offsets(broker.bootstrap, topic).values())
        assert found["keyfold_publish_freshness_seconds_count"] == sent
        happened = ("transactions_total", "catalog_commits_total", "log_cleaner_compactions_total", "snapshot_bytes")
        assert [name for name in happened if not found[f"keyfold_{name}"]] == []
        told = json.loads(invoke("top", "--json", "--interval", "0.2", "--url", worker.url).stdout)["connectors"]
        assert [(each["state"], each["lag_records"]) for each in told] == [("RUNNING", 0)]
        one.settings["topics"] = f"{topic},{topic}-later"
        config = {key: value for key, value in one.settings.items() if key != "name"}
        assert worker.ask("PUT", f"/connectors/{one.name}/config", json=config).status_code == 200
        worker.until_state(one.name, "FAILED")
        assert found.keys() - _scraped(worker).keys() == set()
