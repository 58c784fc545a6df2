"""Reads what the checks need: from the broker as any consumer, and from the files."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from typing import Final

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from compactor.errors import MissingFileError
from compactor.model.order import TIMESTAMP
from compactor.model.state import CatalogState
from compactor.snapshot import manifest
from compactor.snapshot.listing import LATEST
from compactor.storage.base import Storage
from tests.faults.checks import Observation, Row, SnapshotFiles
from tests.faults.load import Load, TopicRecords, number_of
from tests.support.deployment import Deployment
from tests.support.kafka import TIMEOUT_S, consume_all, end_offsets
from tests.support.promises import Rules, by_bytes, by_offset, by_time

TRIES: Final = 20
FILLED: Final = "unavailable"
"""compaction.fill of values that are filled."""


def observe(deployment: Deployment, load: Load | TopicRecords) -> Observation:
    """Returns what is there now; no record may be produced meanwhile, but the worker may run."""
    ends = end_offsets(deployment.bootstrap, deployment.topic)
    source = tuple(consume_all(deployment.bootstrap, deployment.topic))
    taken = newest(deployment)
    state = deployment.state()
    return Observation(
        acknowledged=dict(load.acknowledged),
        source=source,
        ends=ends,
        output=tuple(consume_all(deployment.bootstrap, deployment.output)),
        positions=positions(deployment, len(ends)),
        logs=state.logs,
        snapshot=taken,
        damaged=tuple(_damaged(deployment, state)),
        skips=deployment.settings.get("publish.unchanged") == "skip",
        is_of_topic=state.is_of_topics,
        fills=state.winners.fill == FILLED,
        rules=Rules(
            number_of if state.key_identity else by_bytes, by_time if state.record_order == TIMESTAMP else by_offset
        ),
    )


def positions(deployment: Deployment, partitions: int) -> dict[int, int]:
    """Returns the committed offsets of the connector's group."""
    consumer = Consumer(
        {"bootstrap.servers": deployment.bootstrap, "group.id": f"connect-{deployment.name}", "log_level": 0}
    )
    try:
        asked = [TopicPartition(deployment.topic, number) for number in range(partitions)]
        return {each.partition: each.offset for each in consumer.committed(asked, TIMEOUT_S)}
    finally:
        consumer.close()


def newest(deployment: Deployment) -> SnapshotFiles | None:
    """Reads the snapshot that LATEST names; None if there is none yet.

    A running worker may remove it while it is read: then LATEST names another by now.
    """
    folder = deployment.snapshots
    for _ in range(TRIES):
        if not folder.exists(LATEST):
            return None
        name = folder.read(LATEST).decode().strip()
        try:
            return _taken(folder.sub(name))
        except MissingFileError:
            if folder.read(LATEST).decode().strip() == name:
                raise
    raise AssertionError(f"{folder.location}: {TRIES} snapshots went while they were read")


def _taken(folder: Storage) -> SnapshotFiles:
    found = manifest.decode(folder.read(manifest.NAME))
    files = {file.path: folder.read(file.path) for file in found.files}
    tables = {path: pq.read_table(io.BytesIO(data)) for path, data in files.items()}
    rows = (row for table in tables.values() for row in table.to_pylist())
    return SnapshotFiles(
        found,
        files,
        {path: table.num_rows for path, table in tables.items()},
        tuple(Row(row["partition"], row["key"], row["offset"], row["value"]) for row in rows),
    )


def _damaged(deployment: Deployment, state: CatalogState) -> Iterator[str]:
    """Yields files that the catalog names and that are missing or have another checksum.

    A running worker may have replaced and removed one meanwhile: what the catalog names no more does not count.
    """
    root = deployment.storage
    said = {
        file.path: file.sha256
        for log in state.logs
        for run in (*log.runs, *([log.base] if log.base else []))
        for file in run.files
    }
    wrong = [path for path, digest in said.items() if _digest(root, path) != digest]
    if wrong:
        still = {path for log in deployment.state().logs for path in log.paths}
        yield from (f"{path} is damaged or gone" for path in wrong if path in still)


def _digest(root: Storage, path: str) -> str | None:
    try:
        return hashlib.sha256(root.read(path)).hexdigest()
    except MissingFileError:
        return None
