"""Plans, records and publishers for tests of the changelog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from confluent_kafka import Consumer

from compactor.catalog.catalog import Catalog
from compactor.model.position import Position
from compactor.model.publish_plan import PublishPlan, PublishResult, PublishTarget
from compactor.model.record import RUN, TopicPartition
from compactor.storage.locations import open_storage
from connectors.kafka.admin import Admin, group_id
from connectors.sinks.output_topic import FOREVER
from connectors.sinks.producer_session import read_positions
from connectors.sinks.publisher import ChangelogPublisher
from connectors.sinks.settings import TransactionLimits, WriteRules
from tests.support.clients import client_settings
from tests.support.kafka import Read, consume_all, create_topic, wait_until

CATALOG_ID = "catalog-1"
NOW_MS = 1_700_000_000_000
ONE_RECORD_EACH = TransactionLimits(transaction_bytes=1)
"""Limits that put every record into a transaction of its own."""


class RunRecord(NamedTuple):
    """A record of a run, with defaults for what a test does not set."""

    offset: int
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: Sequence[tuple[str, bytes | None]] | None = ()
    timestamp: int = NOW_MS
    rejected: str | None = None
    partition: int = 0
    timestamp_type: int = 0


def batch(topic: str, records: Iterable[RunRecord]) -> pa.RecordBatch:
    """Returns records as a publish task gets them (record.RUN)."""
    return pa.RecordBatch.from_pylist([_row(topic, record) for record in records], schema=RUN)


def _row(topic: str, record: RunRecord) -> dict[str, Any]:
    headers = None if record.headers is None else [{"key": key, "value": value} for key, value in record.headers]
    return {
        **record._asdict(),
        "topic": topic,
        "headers": headers,
        "delete_horizon": None,
    }


class Changelog:
    """Publishes on the test broker: has a source topic, an output topic, a catalog and publishers."""

    def __init__(
        self,
        bootstrap: str,
        folder: Path,
        topic: str,
        partitions: int = 1,
        output_config: Mapping[str, str | int] | None = None,
        output_partitions: int | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.connector = f"c-{topic}"
        self.output = f"{topic}.compacted"
        self.admin = Admin({"bootstrap.servers": bootstrap})
        self.storage = open_storage(str(folder))
        self.catalog = Catalog.open(self.storage, self.connector)
        with patch("compactor.catalog.catalog.secrets.token_hex", lambda size: CATALOG_ID if size > 8 else "first"):
            self.take_over()
        create_topic(bootstrap, topic, partitions)
        config: dict[str, str | int] = {"message.timestamp.after.max.ms": FOREVER, **(output_config or {})}
        create_topic(bootstrap, self.output, output_partitions or partitions, **config)

    def take_over(self) -> int:
        """Takes the catalog over; returns the new epoch."""
        return self.catalog.take_over("test", NOW_MS).epoch

    def publisher(
        self, rules: WriteRules | None = None, limits: TransactionLimits | None = None, **producer: str | int
    ) -> ChangelogPublisher:
        """Returns a publisher with these rules and limits, and further settings of its producer."""
        return ChangelogPublisher(
            connector=self.connector,
            clients=client_settings({"bootstrap.servers": self.bootstrap}, self.connector, **producer),
            storage=self.storage,
            output_ids={self.output: self.output_id},
            rules=rules or WriteRules(),
            limits=limits or TransactionLimits(),
        )

    @property
    def output_id(self) -> str:
        """The output's current topic id."""
        return self.admin.describe([self.output])[self.output].id

    def target(self, start: int, end: int, partition: int = 0, **named: Any) -> PublishTarget:
        fields: dict[str, Any] = {
            "topic": self.topic,
            "partition": partition,
            "bucket": 0,
            "output": self.output,
            "start": start,
            "end": end,
            "committed": start or None,
            "output_offset": None,
        }
        return PublishTarget(**fields | named)

    def plan(self, *targets: PublishTarget, epoch: int | None = None, catalog_id: str = CATALOG_ID) -> PublishPlan:
        return PublishPlan(bucket=0, epoch=epoch or self.catalog.epoch, catalog_id=catalog_id, targets=targets)

    def publish(
        self,
        targets: PublishTarget | Sequence[PublishTarget],
        records: Iterable[RunRecord],
        publisher: ChangelogPublisher | None = None,
    ) -> Sequence[PublishResult]:
        """Publishes `records` as one batch by a plan of `targets`."""
        found = (targets,) if isinstance(targets, PublishTarget) else tuple(targets)
        return (publisher or self.publisher()).publish(self.plan(*found), iter([batch(self.topic, records)]))

    def place(self, partition: int = 0) -> TopicPartition:
        """A partition of the output."""
        return TopicPartition(self.output, partition)

    def read(self) -> list[Read]:
        """Returns what a read_committed reader sees once the markers of all ended transactions are written."""
        count = self.admin.describe([self.output])[self.output].partitions
        places = [self.place(number) for number in range(count)]
        wait_until(lambda: self.admin.ends(places) == self.admin.high_watermarks(places), "no transaction is open")
        return consume_all(self.bootstrap, self.output)

    def position(self, partition: int = 0) -> Position | None:
        """Returns the group's committed position in a partition of the source."""
        tp = TopicPartition(self.topic, partition)
        return read_positions(self.admin, group_id(self.connector), [tp])[tp]

    def overwrite_position(self, offset: int, metadata: str | None = None, partition: int = 0) -> None:
        """Commits `offset` as kafka-consumer-groups --reset-offsets does."""
        commit_position(self.bootstrap, group_id(self.connector), self.topic, partition, offset, metadata)


def commit_position(
    bootstrap: str, group: str, topic: str, partition: int, offset: int, metadata: str | None = None
) -> None:
    from confluent_kafka import TopicPartition as Partition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "log_level": 0}
    )
    try:
        where = (
            Partition(topic, partition, offset) if metadata is None else Partition(topic, partition, offset, metadata)
        )
        consumer.commit(offsets=[where], asynchronous=False)
    finally:
        consumer.close()


def source_offsets(records: Iterable[Read]) -> list[int]:
    """Returns the source offsets in the headers of output records, in order."""
    return [int(dict(record.headers)["keyfold.source.offset"] or b"") for record in records]
