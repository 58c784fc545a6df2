"""A broker that goes away under a running connector, and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from connectors.clock import SystemClock
from connectors.config.load import load_worker
from connectors.kafka.embedded import EmbeddedKafka
from connectors.progress import NullObserver
from connectors.supervisor import Supervisor
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.place import PATIENCE_S, Place
from tests.support.records import some_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_killed_broker_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """The connector lives through it, whatever it was at, and goes on where it stopped when the broker is back."""
    broker = EmbeddedKafka(tmp_path / "kafka")
    with broker:
        topic = create_topic(broker.bootstrap, "t", 2, cleanup_policy="delete")
        place = Place(tmp_path, broker.bootstrap, topic).plain()
        produce(place.bootstrap, topic, some_records(1, 100))
        config = place.config()
        worker = load_worker(place.folder / "worker.json")
        connector = Supervisor(worker, config, SystemClock(), NullObserver())
        with structlog.testing.capture_logs() as logged:
            connector.start(spark, once=False)
            try:
                wait_until(place.caught_up, "it publishes", PATIENCE_S)
                broker.kill()
                broker.start()
                produce(place.bootstrap, topic, some_records(2, 100))
                wait_until(place.caught_up, "it publishes what came later", 2 * PATIENCE_S)
            finally:
                connector.ask_to_stop()
                connector.join()
        assert connector.error is None
        assert "below our position" not in str(logged)
        assert place.breaches() == []
