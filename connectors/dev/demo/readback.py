"""Reads the demo's outputs as any reader does: topics as a `read_committed` consumer, the snapshot with DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec
from msgspec import Struct

from connectors.dev.demo.data import INSTALL
from connectors.errors import ConfigError, UnreachableError
from connectors.kafka.admin import new_client
from connectors.kafka.client_log import logged

# How long (s) the broker may take to answer for the ends of a topic.
_TIMEOUT_S: Final = 30.0
# Records that one call of the consumer returns at most.
_BATCH: Final = 10_000

_CARRIERS: Final = """\
SELECT decode(value) ->> 'carrier' AS carrier, count(*) AS aircraft,
       strftime(max(timestamp) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%MZ') AS last_seen
FROM '{data}'
GROUP BY carrier ORDER BY aircraft DESC, carrier LIMIT 5"""


class TopicCount(Struct, frozen=True):
    """How much is in a topic: records, among them tombstones, and how many different keys."""

    records: int
    tombstones: int
    keys: int


def count(bootstrap: str, topic: str) -> TopicCount:
    """Reads `topic` from start to end; UnreachableError when the end does not come in time."""
    records = tombstones = 0
    keys: set[bytes] = set()
    for message in read(bootstrap, topic):
        records += 1
        tombstones += message.value() is None
        key = message.key()
        if key is not None:
            keys.add(key)
    return TopicCount(records, tombstones, len(keys))


def read(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yields every record of `topic` up to its last stable offsets of now, in offset order per partition."""
    ends = _ends(bootstrap, topic)
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": f"keyfold-demo-{uuid4().hex}",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer(logged(settings))
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition, end in ends.items() if end])
        yield from _until(consumer, topic, {partition: end for partition, end in ends.items() if end})
    finally:
        consumer.close()


def _until(consumer: Consumer, topic: str, ends: dict[int, int]) -> Iterator[Message]:
    """Yields records until the position is at the end: the last offset may be a marker, which no reader sees."""
    while _behind(consumer, topic, ends):
        messages = consumer.consume(_BATCH, timeout=1.0)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            if (message.offset() or 0) < ends[message.partition() or 0]:
                yield message


def _behind(consumer: Consumer, topic: str, ends: dict[int, int]) -> bool:
    positions = consumer.position([TopicPartition(topic, partition) for partition in ends])
    return any(each.offset < ends[each.partition] for each in positions)


def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    """Returns partition → last stable offset."""
    admin = new_client({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        partitions = admin.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        answers = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return {each.partition: future.result(_TIMEOUT_S).offset for each, future in answers.items()}
    except KafkaException as error:
        raise UnreachableError(f"The demo's topic {topic} could not be read: {error.args[0]}.") from error


class Snapshot(Struct, frozen=True):
    """A finished snapshot: its folder, and how many records its manifest promises."""

    path: Path
    records: int
    files: int


class QueryAnswer(Struct, frozen=True):
    """A query and what came back."""

    sql: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def newest_snapshot(location: Path, connector: str, topic: str) -> Snapshot:
    """Returns the snapshot that LATEST names."""
    folder = location / connector / topic
    path = folder / (folder / "LATEST").read_text(encoding="utf-8").strip()
    manifest = msgspec.json.decode((path / "_manifest.json").read_bytes())
    return Snapshot(path, manifest["records"], len(manifest["files"]))


def carriers(snapshot: Path, as_shown: str) -> QueryAnswer:
    """Queries the carriers with the most aircraft, and when one of theirs last left; `as_shown` is the folder's name.

    Raises ConfigError if DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise ConfigError("The demo's duckdb is not installed.", INSTALL) from None
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        answer = connection.execute(_CARRIERS.format(data=_data(str(snapshot))))
        columns = [column[0] for column in answer.description or ()]
        return QueryAnswer(_CARRIERS.format(data=_data(as_shown)), columns, answer.fetchall())


def _data(folder: str) -> str:
    """Returns the pattern of a snapshot's files for a text of SQL; DuckDB takes what stands in brackets literally."""
    return re.sub(r"[*?[]", r"[\g<0>]", folder).replace("'", "''") + "/data/*.parquet"
