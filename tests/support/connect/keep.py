"""`python -m tests.support.connect.keep`: asks Kafka Connect itself, and keeps its answers in tests/data."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.jvm.artifacts import KAFKA_VERSION
from tests.support.connect.asking import Answer, ask_all
from tests.support.connect.real_worker import SINK, real_worker
from tests.support.kafka import create_topic, produce
from tests.support.records import random_records

KEPT: Final = Path(__file__).parents[2] / "data" / f"connect-{KAFKA_VERSION}.json"
TOPICS: Final = tuple(f"t{number}" for number in range(1, 7))
MEMBERS: Final = 6


def kept() -> list[Answer]:
    """Reads the answers that are kept."""
    return msgspec.json.decode(KEPT.read_bytes(), type=list[Answer])


def make_topics(bootstrap: str) -> None:
    """Makes the topics of the requests, with records."""
    for topic in TOPICS:
        create_topic(bootstrap, topic, 1, cleanup_policy="delete")
        produce(bootstrap, topic, random_records(1, 20, partitions=1))


def of_kafka_connect(broker: EmbeddedKafka, folder: Path) -> Sequence[Answer]:
    """Asks a new worker of Kafka Connect everything."""
    make_topics(broker.bootstrap)
    with real_worker(broker, folder) as url:
        return list(ask_all(url, SINK))


def main() -> None:
    """Keeps them."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder, "kafka")) as broker:
        found = of_kafka_connect(broker, Path(folder))
    lines = (json.dumps(_shortened(msgspec.to_builtins(one)), ensure_ascii=False) for one in found)
    KEPT.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    print(f"{len(found)} answers in {KEPT}")


def _shortened(value: Any) -> Any:
    """Returns `value` with its long lists cut: their members have one form, and nobody reads hundreds of settings."""
    if isinstance(value, dict):
        return {name: _shortened(one) for name, one in value.items()}
    return [_shortened(one) for one in value[:MEMBERS]] if isinstance(value, list) else value


if __name__ == "__main__":
    main()
