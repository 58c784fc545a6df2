"""A broker that goes away under a running worker, and comes back."""

from __future__ import annotations

import signal
from pathlib import Path

from connectors.errors import EXIT_OK
from connectors.kafka.embedded import EmbeddedKafka
from tests.e2e.test_once import some_records
from tests.support.kafka import create_topic, end_offsets, produce, wait_until
from tests.support.place import PATIENCE_S, Place


def test_a_killed_broker_is_waited_for(tmp_path: Path) -> None:
    """The worker lives through it, whatever it was at, and goes on where it stopped when the broker is back."""
    broker = EmbeddedKafka(tmp_path / "kafka")
    with broker:
        topic = create_topic(broker.bootstrap, "t", 2, cleanup_policy="delete")
        place = Place(tmp_path, broker.bootstrap, topic)
        produce(place.bootstrap, topic, some_records(1, 100))
        with place.process() as worker:
            wait_until(lambda: (place.folder / "storage").exists() and caught_up(place), "it publishes", PATIENCE_S)
            broker.kill()
            broker.start()
            produce(place.bootstrap, topic, some_records(2, 100))
            wait_until(lambda: caught_up(place), "it publishes what came later", 2 * PATIENCE_S)
            assert "below our position" not in worker.printed()
            worker.send(signal.SIGTERM)
            assert worker.wait() == EXIT_OK
        assert place.breaches() == []


def caught_up(place: Place) -> bool:
    """Whether everything in the source is published."""
    return place.published() == end_offsets(place.bootstrap, place.topic)
