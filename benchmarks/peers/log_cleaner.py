"""Kafka's own log cleaner as a peer: it is made to clean a whole topic, and timed by what the broker logs of it.

A pass begins with the line of `Cleaner.doClean` and ends with those of `LogCleaner.CleanerThread.recordStats`. Both are
stamped in milliseconds; the seconds that the latter tell are rounded to tenths.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from msgspec import Struct

from benchmarks.harness.topics import admin, end_offsets
from connectors.dev.embedded_config import Layout
from connectors.dev.embedded_kafka import EmbeddedKafka

_PROPERTIES: Final = {
    "log.initial.task.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.threads": "2",
    "log.index.size.max.bytes": str(10 << 20),
}
"""A thread for each core; its buffer and its indexes are Kafka's defaults.

A thread looks for work at once, not after 15 s: so both begin on their logs at the same time."""
_JAVA_OPTIONS: Final = (
    # As in Kafka's start script: the embedded broker's defaults start quickly, but run slowly.
    "-XX:TieredStopAtLevel=4",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    # The log has decimal points, and commas between thousands.
    "-Duser.language=en",
    "-Duser.country=US",
)
_SMALLEST_SEGMENT: Final = 1 << 20
_TIMEOUT_S: Final = 60.0
_LONGEST_S: Final = 3_600.0
_POLL_S: Final = 0.2
_BEGUN: Final = re.compile(r"^\[(?P<at>[\dT:,-]+)\] INFO [^\n]*Beginning cleaning of log (?P<log>\S+)", re.MULTILINE)
_PASS: Final = re.compile(
    r"^\[(?P<at>[\dT:,-]+)\] INFO [^\n]*\s+"
    r"Log cleaner thread \d+ cleaned log (?P<log>\S+) \(dirty section = \[(?P<start>\d+), (?P<end>\d+)\]\)\s+"
    r"(?P<mb>[\d,.]+) MB of log processed in [\d,.]+ seconds"
    r"(?:(?!Log cleaner thread).)*?Start size: [\d,.]+ MB \((?P<read>[\d,]+) messages\)"
    r"\s+End size: [\d,.]+ MB \((?P<kept>[\d,]+) messages\)",
    re.DOTALL | re.MULTILINE,
)


class Pass(Struct, frozen=True, kw_only=True):
    """One pass over one partition, `log` being topic-partition, with the dirty section [start, end).

    `read` and `kept` are records; `mb` is what it read, the dirty section twice; `since` and `until` are when it began
    and ended, in seconds since the epoch, to the millisecond.
    """

    log: str
    since: float
    until: float
    start: int
    end: int
    mb: float
    read: int
    kept: int


@contextmanager
def cleaning_broker(folder: Path) -> Iterator[EmbeddedKafka]:
    """Runs a broker during the block whose cleaner has two threads, otherwise Kafka's defaults."""
    with EmbeddedKafka(folder, properties=_PROPERTIES, heap="1g", java_options=_JAVA_OPTIONS) as broker:
        yield broker


def clean(broker: EmbeddedKafka, topic: str) -> tuple[int, float]:
    """Sets cleanup.policy=compact on `topic` and waits until all of it is cleaned; returns records read, seconds.

    The seconds are those in which at least one of its threads was at it.

    Raises:
        TimeoutError: it was not cleaned within an hour.
    """
    logs = {f"{topic}-{partition}": end for partition, end in end_offsets(broker.bootstrap, topic).items()}
    _roll_segments(broker, topic, len(logs))
    _configure(
        broker,
        topic,
        # Only now: the cleaner would begin while the topic is filled, and clean parts of it more than once.
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": None},
    )
    deadline = time.monotonic() + _LONGEST_S
    while (found := passes_to(passes(broker.log_file.read_text(encoding="utf-8", errors="replace")), logs)) is None:
        broker.require_running()
        if time.monotonic() > deadline:
            raise TimeoutError(f"The cleaner has not gone over {topic}: see {broker.log_file}.")
        time.sleep(_POLL_S)
    return sum(one.read for one in found), busy_seconds(found)


def _roll_segments(broker: EmbeddedKafka, topic: str, partitions: int) -> None:
    """Rolls the active segment of each partition, which is never cleaned, by producing until there is a new one."""
    folders = [Layout(broker.log_file.parent).data / f"{topic}-{partition}" for partition in range(partitions)]
    before = [_segments(folder) for folder in folders]
    _configure(broker, topic, {"segment.bytes": str(_SMALLEST_SEGMENT)})
    deadline = time.monotonic() + _TIMEOUT_S
    with Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0}) as producer:
        while behind := [one for one, folder in enumerate(folders) if _segments(folder) == before[one]]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{topic} has no new segment in partition {behind[0]}.")
            for partition in behind:
                producer.produce(topic, bytes(_SMALLEST_SEGMENT // 2), b"roll", partition)
            producer.flush(_TIMEOUT_S)
            time.sleep(_POLL_S)


def _segments(folder: Path) -> int:
    return len(list(folder.glob("*.log")))


def _configure(broker: EmbeddedKafka, topic: str, settings: Mapping[str, str | None]) -> None:
    """Sets the topic's `settings`; None resets one to its default."""
    entries = [
        ConfigEntry(
            name, value or "", incremental_operation=AlterConfigOpType.SET if value else AlterConfigOpType.DELETE
        )
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin(broker.bootstrap).incremental_alter_configs([resource])[resource].result(_TIMEOUT_S)


def passes(text: str) -> Iterator[Pass]:
    """Parses the passes out of `text`, the log of a broker whose language is English, in order.

    A pass of which the beginning was not logged is left out.
    """
    begun = [(found.start(), found["log"], _seconds(found["at"])) for found in _BEGUN.finditer(text)]
    for found in _PASS.finditer(text):
        since = max((at for place, log, at in begun if log == found["log"] and place < found.start()), default=None)
        if since is None:
            continue
        plain = {name: text.replace(",", "") for name, text in found.groupdict().items() if name != "at"}
        yield Pass(
            log=plain["log"],
            since=since,
            until=_seconds(found["at"]),
            start=int(plain["start"]),
            end=int(plain["end"]),
            mb=float(plain["mb"]),
            read=int(plain["read"]),
            kept=int(plain["kept"]),
        )


def _seconds(stamp: str) -> float:
    """Returns the seconds since the epoch of the time of a line."""
    return datetime.fromisoformat(stamp.replace(",", ".")).timestamp()


def busy_seconds(found: Iterable[Pass]) -> float:
    """Returns the seconds in which at least one of the passes ran, each of which may be beside another."""
    busy, covered = 0.0, 0.0
    for since, until in sorted((one.since, one.until) for one in found):
        busy += max(0.0, until - max(since, covered))
        covered = max(covered, until)
    return busy


def passes_to(found: Iterable[Pass], ends: Mapping[str, int]) -> list[Pass] | None:
    """Returns the passes over the logs in `ends` (log → end offset); None until each is cleaned to its end."""
    own = [one for one in found if one.log in ends]
    reached = {one.log: one.end for one in own}
    return own if all(reached.get(log, 0) >= end for log, end in ends.items()) else None
