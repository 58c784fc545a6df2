"""Compares snapshots with the model, and consumers that resume from them with one that read all."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import UNSET, UnsetType

from compactor.model.actions import AddSnapshot
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.snapshot import manifest
from compactor.storage.base import Storage
from tests.support.engine import Row
from tests.support.memory.journal import REFUSED, OutputRecord, OutputTopic
from tests.support.oracle.model import ExpectedSnapshot, LogModel
from tests.support.oracle.output import apply_records, left_of

_LAST_MS: Final = 9_223_372_036_854_774
"""The last time, in ms, that a snapshot's timestamps can have."""


class Loaded(NamedTuple):
    """A snapshot as it was read."""

    manifest: manifest.Manifest
    rows: list[Row]


class SnapshotReader:
    """Reads snapshots, each once: they never change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Loaded] = {}

    def load(self, taken: AddSnapshot) -> Loaded:
        """Returns a snapshot's manifest and records."""
        if taken.id not in self._known:
            found = manifest.decode(self._storage.read(f"{taken.path}/{manifest.NAME}"))
            files = (self._storage.read(f"{taken.path}/{file.path}") for file in found.files)
            rows = [row for data in files for row in _table(data).to_pylist()]
            self._known[taken.id] = Loaded(found, rows)
        return self._known[taken.id]

    def latest(self, taken: AddSnapshot) -> str:
        """Returns the content of LATEST beside `taken`."""
        return self._storage.read(f"{taken.path.rpartition('/')[0]}/LATEST").decode().strip()


def _table(data: bytes) -> pa.Table:
    """Reads a data file, with timestamps in ms."""
    table = pq.read_table(io.BytesIO(data))
    column = table.column_names.index("timestamp")
    return table.set_column(column, "timestamp", table["timestamp"].cast(pa.int64()))


def violations(
    state: CatalogState,
    shelf: SnapshotReader,
    expected: Mapping[str, Mapping[TopicPartition, ExpectedSnapshot]],
    output: OutputTopic | None,
    scoped_otherwise: Collection[str] = (),
) -> Iterator[str]:
    """Yields what is wrong with the snapshots that `state` names; `expected` is what each must contain.

    Nobody goes on from those that are `scoped_otherwise`, nor from any if nothing is published: `output` is None.
    """
    for taken in state.snapshots:
        loaded, moments = shelf.load(taken), expected[taken.id]
        yield from (f"snapshot {taken.id}: {wrong}" for wrong in record_violations(loaded, moments))
        if output is None or taken.id in scoped_otherwise:
            continue
        for tp, moment in moments.items():
            yield from (f"snapshot {taken.id}, {tp}: {wrong}" for wrong in _resumed(loaded, tp, moment, output))


def record_violations(loaded: Loaded, moments: Mapping[TopicPartition, ExpectedSnapshot]) -> Iterator[str]:
    """Checks that it has the last record of each key at the vector, by (partition, offset), without tombstones."""
    vector = {str(tp.partition): moment.end for tp, moment in moments.items()}
    if loaded.manifest.source_offsets != vector:
        yield f"the manifest has {loaded.manifest.source_offsets}, the vector is {vector}"
    expected = [_shown(row) for tp in sorted(moments) for row in moments[tp].rows]
    if loaded.rows != expected:
        yield f"{loaded.rows} should be {expected}"
    if loaded.manifest.records != len(expected):
        yield f"the manifest counts {loaded.manifest.records} records, there are {len(expected)}"


def generations(logs: Iterable[LogModel]) -> dict[str, int] | UnsetType:
    """Returns the generations of some logs as a manifest has them."""
    numbers = {log.tp.partition: log.number for log in logs}
    return manifest.by_partition(numbers) if any(number > 1 for number in numbers.values()) else UNSET


def _shown(row: Row) -> dict[str, Any]:
    in_range = abs(row["timestamp"]) <= _LAST_MS
    return {
        **{name: row[name] for name in ("key", "value", "partition", "offset")},
        "timestamp": row["timestamp"] if in_range else None,
        "headers": row["headers"],
    }


def _resumed(loaded: Loaded, tp: TopicPartition, moment: ExpectedSnapshot, output: OutputTopic) -> Iterator[str]:
    """Checks that a consumer that resumes from the snapshot gets the table of one that has read all.

    Only the latter has what retention had removed before the snapshot. A snapshot also has what the broker refused.
    """
    start = loaded.manifest.output_offsets[str(tp.partition)]
    records = output.records.get(tp, [])
    after = [one for one in records if _place(one) >= (moment.generation, moment.end)]
    missed = [one for one in after if one.offset < start]
    if missed:
        yield f"who goes on at {start} misses {missed}"
    table = {row["key"]: row["value"] for row in loaded.rows if row["partition"] == tp.partition}
    resumed = apply_records((one for one in records if one.offset >= start), table)
    everything = apply_records(records)
    removed = left_of(records, moment.left)
    refused = {one.key for one in output.letters if one.tp == tp and one.value == REFUSED}
    resumed = {key: value for key, value in resumed.items() if key not in refused}
    everything = {key: value for key, value in everything.items() if key not in refused}
    if {key: value for key, value in everything.items() if key not in removed or key in resumed} != resumed:
        yield f"who goes on at {start} has {resumed}, who followed {everything}"


def _place(record: OutputRecord) -> tuple[int, int]:
    """Returns where a record is in the source: its generation, and its offset in there."""
    return record.generation, record.source_offset
