"""Reads the demo's outputs as any reader does: topics as a `read_committed` consumer, the snapshot with DuckDB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Message, TopicPartition
from msgspec import Struct

from connectors.dev.demo.data import INSTALL
from connectors.errors import ConfigError
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import reading
from connectors.sinks.output_reader import OutputPartitionReader

_CARRIERS: Final = """\
SELECT carrier, count(*) AS aircraft,
       strftime(max(_timestamp) AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%MZ') AS last_seen
FROM '{data}'
GROUP BY carrier ORDER BY aircraft DESC, carrier LIMIT 5"""


class TopicCount(Struct, frozen=True):
    """How much is in a topic: records, among them tombstones, and how many different keys."""

    records: int
    tombstones: int
    keys: int


def count(bootstrap: str, topic: str) -> TopicCount:
    """Reads `topic` from start to end; raises UnreachableError if its end does not come in time."""
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
    """Yields every record of `topic` up to its last stable offsets of now, partition by partition."""
    config: dict[str, Setting] = {"bootstrap.servers": bootstrap}
    partitions = Admin(config).describe([topic])[topic].partitions
    with reading(config, f"The demo's topic {topic}", topic):
        for partition in range(partitions):
            reader = OutputPartitionReader(config, TopicPartition(topic, partition))
            yield from reader.read(*reader.bounds())


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
