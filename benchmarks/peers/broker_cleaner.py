"""Kafka's own log cleaner on one topic: made to clean all that it holds, timed by its own word."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from benchmarks.peers.cleaner_log import over, passes
from benchmarks.peers.committed import client, ends
from connectors.dev.embedded_config import Layout
from connectors.dev.embedded_kafka import EmbeddedKafka

_PROPERTIES: Final = {"log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "1000"}
"""It rests for a shorter time between its passes; how it works, its one thread and its buffer are as they are."""
_JAVA_OPTIONS: Final = (
    # As Kafka's own start script has it: the embedded broker is started to be there soon, not to be fast.
    "-XX:TieredStopAtLevel=4",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    # Its log has decimal points, and commas between thousands.
    "-Duser.language=en",
    "-Duser.country=US",
)
_SMALLEST_SEGMENT: Final = 1 << 20
_TIMEOUT_S: Final = 60.0
_LONGEST_S: Final = 3_600.0
_POLL_S: Final = 0.2


@contextmanager
def cleaning_broker(folder: Path) -> Iterator[EmbeddedKafka]:
    """A broker whose cleaner is Kafka's by default, for as long as the block runs."""
    with EmbeddedKafka(folder, properties=_PROPERTIES, heap="1g", java_options=_JAVA_OPTIONS) as broker:
        yield broker


def clean(broker: EmbeddedKafka, topic: str) -> tuple[int, float]:
    """Lets the cleaner go over all of `topic`, which has cleanup.policy=delete until now: records read, seconds.

    Raises TimeoutError where it has not done so after an hour.
    """
    logs = {f"{topic}-{partition}": end for partition, end in ends(broker.bootstrap, topic).items()}
    _roll(broker, topic, len(logs))
    _configure(
        broker,
        topic,
        # Only now: else it would begin while the topic is being filled, and go over parts of it more often.
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": None},
    )
    until = time.monotonic() + _LONGEST_S
    while (found := over(passes(broker.log_file.read_text(encoding="utf-8", errors="replace")), logs)) is None:
        broker.require_running()
        if time.monotonic() > until:
            raise TimeoutError(f"The cleaner has not gone over {topic}: see {broker.log_file}.")
        time.sleep(_POLL_S)
    return sum(one.read for one in found), sum(one.seconds for one in found)


def _roll(broker: EmbeddedKafka, topic: str, partitions: int) -> None:
    """Ends the active segment of each partition, which is never cleaned, by a record more in a new one."""
    folders = [Layout(broker.log_file.parent).data / f"{topic}-{partition}" for partition in range(partitions)]
    before = [_segments(folder) for folder in folders]
    _configure(broker, topic, {"segment.bytes": str(_SMALLEST_SEGMENT)})
    until = time.monotonic() + _TIMEOUT_S
    with Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0}) as producer:
        while behind := [one for one, folder in enumerate(folders) if _segments(folder) == before[one]]:
            if time.monotonic() > until:
                raise TimeoutError(f"{topic} has no new segment in partition {behind[0]}.")
            for partition in behind:
                producer.produce(topic, bytes(_SMALLEST_SEGMENT // 2), b"roll", partition)
            producer.flush(_TIMEOUT_S)
            time.sleep(_POLL_S)


def _segments(folder: Path) -> int:
    return len(list(folder.glob("*.log")))


def _configure(broker: EmbeddedKafka, topic: str, settings: Mapping[str, str | None]) -> None:
    """Sets the topic's `settings`; None takes one back to its default."""
    entries = [
        ConfigEntry(
            name, value or "", incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    client(broker.bootstrap).incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)
