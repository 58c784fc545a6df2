"""The kept answers of Kafka Connect are still those that it gives: `make conformance` asks it again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.connect.comparing import differences
from tests.support.connect.keep import kept, of_kafka_connect
from tests.support.connect.real_worker import SINK

pytestmark = pytest.mark.timeout(600)


@pytest.mark.skipif("CONFORMANCE_SEEDS" not in os.environ, reason="make conformance fetches Kafka Connect")
def test_kafka_connect_answers_as_it_is_kept(tmp_path: Path) -> None:
    """Status, media type, Location and form of each answer are those of tests/data."""
    with EmbeddedKafka(tmp_path / "kafka") as broker:
        now = of_kafka_connect(broker, tmp_path)
    wrong = [
        f"{then.request}: {what}"
        for then, found in zip(kept(), now, strict=True)
        for what in differences(then, found, (SINK, SINK))
    ]
    assert not wrong, "\n".join(wrong)
