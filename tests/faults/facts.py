"""Reads what the verdict is about: from the broker as any reader would, and from the files as they lie there."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from confluent_kafka import Consumer, TopicPartition

from compactor.model.state import State
from compactor.snapshot import manifest
from compactor.snapshot.listing import LATEST
from tests.faults.load import Load
from tests.faults.verdict import Facts, Row, Taken
from tests.support.kafka import TIMEOUT_S, consume_all, end_offsets
from tests.support.place import Place

TRIES: Final = 20


def gather(place: Place, load: Load) -> Facts:
    """The facts of now; the source must rest, the worker may go on."""
    ends = end_offsets(place.bootstrap, place.topic)
    source = tuple(consume_all(place.bootstrap, place.topic))
    taken = newest(place)
    state = place.state()
    return Facts(
        acknowledged=dict(load.acknowledged),
        source=source,
        ends=ends,
        output=tuple(consume_all(place.bootstrap, place.output)),
        positions=positions(place, len(ends)),
        logs=state.logs,
        snapshot=taken,
        damaged=tuple(_damaged(place, state)),
    )


def positions(place: Place, partitions: int) -> dict[int, int]:
    """What the connector's group holds."""
    consumer = Consumer({"bootstrap.servers": place.bootstrap, "group.id": f"connect-{place.name}", "log_level": 0})
    try:
        asked = [TopicPartition(place.topic, number) for number in range(partitions)]
        return {each.partition: each.offset for each in consumer.committed(asked, TIMEOUT_S)}
    finally:
        consumer.close()


def newest(place: Place) -> Taken | None:
    """The snapshot that LATEST names; None where the connector keeps none, or has not taken one yet.

    A running worker may remove it while it is read: then LATEST names another by now.
    """
    folder = Path(place.settings["snapshot.location"]) / place.name / place.topic
    for _ in range(TRIES):
        if not (folder / LATEST).exists():
            return None
        name = (folder / LATEST).read_text().strip()
        try:
            return _taken(folder / name)
        except FileNotFoundError:
            if (folder / LATEST).read_text().strip() == name:
                raise
    raise AssertionError(f"{folder}: {TRIES} snapshots went while they were read")


def _taken(folder: Path) -> Taken:
    found = manifest.decode((folder / manifest.NAME).read_bytes())
    files = {file.path: (folder / file.path).read_bytes() for file in found.files}
    tables = {path: pq.read_table(io.BytesIO(data)) for path, data in files.items()}
    rows = (row for table in tables.values() for row in table.to_pylist())
    return Taken(
        found,
        files,
        {path: table.num_rows for path, table in tables.items()},
        tuple(Row(row["partition"], row["key"], row["offset"], row["value"]) for row in rows),
    )


def _damaged(place: Place, state: State) -> Iterator[str]:
    """Files that the catalog names and that are gone or not as it says.

    A running worker may have replaced and removed one meanwhile: what the catalog names no more does not count.
    """
    root = Path(place.worker["storage.location"]) / place.name
    said = {
        file.path: file.sha256
        for log in state.logs
        for run in (*log.runs, *([log.base] if log.base else []))
        for file in run.files
    }
    wrong = [path for path, digest in said.items() if _digest(root / path) != digest]
    if wrong:
        still = {path for log in place.state().logs for path in log.paths}
        yield from (f"{path} is damaged or gone" for path in wrong if path in still)


def _digest(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return None
