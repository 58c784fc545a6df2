"""Plans and reads ranges of the test broker without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import Setting
from connectors.source.options import SourceOptions
from connectors.source.plan import SourceRange
from connectors.source.planner import Planner
from connectors.source.reader import ReadParts, read
from connectors.source.topics import SourceTopics
from tests.support.source_options import source_options

Row = dict[str, Any]
AT_ONCE = ReadParts(at_once=1)
ONE_BY_ONE = ReadParts(at_once=None)


class Way:
    """How ranges are read; a test may set its `parts`."""

    parts = ReadParts()


WAY = Way()


class BrokerSource:
    """Plans and reads topics of the test broker; the keywords are those of `source_options`."""

    def __init__(self, bootstrap: str, *topics: str, timeout: float = 20.0, **named: Any) -> None:
        given: dict[str, Setting] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.options: SourceOptions = source_options(given, topics, timeout=timeout, metadata_age=0.001, **named)
        own = Admin({"bootstrap.servers": bootstrap, "log_level": 0}, self.options.timeouts.request)
        self.topics = SourceTopics(self.options.connector, own)
        self.planner = Planner(self.options, self.topics)

    def range(self, topic: str, lo: int, hi: int, partition: int = 0) -> SourceRange:
        return SourceRange(topic, self.topics.named([topic])[topic].id, partition, lo, hi)

    def batches(self, *ranges: SourceRange) -> list[pa.RecordBatch]:
        return list(read(ranges, self.options, parts=WAY.parts))

    def read(self, *ranges: SourceRange) -> list[Row]:
        return [row for batch in self.batches(*ranges) for row in batch.to_pylist()]


def records(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["range"] is None]


def offsets(rows: list[Row], partition: int = 0) -> list[int]:
    return [row["offset"] for row in records(rows) if row["partition"] == partition]


def range_reports(rows: list[Row]) -> list[tuple[int, int, int, int]]:
    found = [row["range"] for row in rows if row["range"] is not None]
    return [(each["lo"], each["hi"], each["start"], each["records"]) for each in found]


def numbered_records(count: int, partition: int = 0) -> list[tuple[object, ...]]:
    return [(partition, b"k%d" % number, b"v%d" % number) for number in range(count)]
