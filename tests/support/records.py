"""Random records for end-to-end tests, and the live records of a source and of a snapshot."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from tests.support.deployment import Deployment
from tests.support.kafka import ToSend, consume_all

BASE_MS = 1_700_000_000_000


def random_records(seed: int, count: int, keys: int = 40, partitions: int = 2) -> list[ToSend]:
    """Returns random updates and deletes; every key has one partition."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        key = chance.randrange(keys)
        value = None if chance.random() < 0.15 else f"{seed}-{number}".encode()
        headers = [("h", b"1"), ("h", None), ("x", b"")] if number % 7 == 0 else []
        found.append(ToSend(key % partitions, f"key-{key}".encode(), value, headers, BASE_MS + number))
    return found


def live_records(deployment: Deployment) -> dict[tuple[int, bytes | None], tuple[int, bytes]]:
    """Returns (partition, key) → (offset, value) of the source's last records, without deleted keys."""
    last = {(record.partition, record.key): record for record in consume_all(deployment.bootstrap, deployment.topic)}
    return {at: (record.offset, record.value) for at, record in last.items() if record.value is not None}


def newest_snapshot(deployment: Deployment) -> Path:
    """Returns the folder of the snapshot that LATEST names."""
    folder = Path(deployment.settings["snapshot.location"]) / deployment.name / deployment.topic
    return folder / (folder / "LATEST").read_text().strip()


def read_snapshot(deployment: Deployment) -> tuple[dict[str, Any], dict[tuple[int, bytes | None], tuple[int, bytes]]]:
    """Returns the newest snapshot's manifest, whose record count it checks, and (partition, key) → (offset, value)."""
    snapshot = deployment.snapshots.sub(deployment.snapshots.read("LATEST").decode().strip())
    columns = ["partition", "key", "offset", "value"]
    if snapshot.is_folder:
        query = f"select partition, key, \"offset\", value from '{snapshot.location}/data/*.parquet'"
        rows = duckdb.connect().execute(query).fetchall()
    else:
        files = [io.BytesIO(snapshot.read(info.path)) for info in snapshot.walk("data")]
        tables = [pq.read_table(file, columns=columns).to_pylist() for file in files]
        rows = [tuple(row[name] for name in columns) for table in tables for row in table]
    manifest = json.loads(snapshot.read("_manifest.json"))
    assert manifest["records"] == len(rows)
    return manifest, {(partition, key): (offset, value) for partition, key, offset, value in rows}
