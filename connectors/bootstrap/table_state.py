"""Holds the records of a table: those of its snapshot as Arrow has them, and over them what has changed since.

One thread applies changes, others read: a reader sees each record as it was at some moment of its call. In memory are
the snapshot's columns, a dict with the place of each of its keys, and an object for each key that has changed since.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
from msgspec import UNSET

from connectors.bootstrap.records import Change, TableRecord, comparable
from connectors.bootstrap.snapshot_files import RecordColumns, SnapshotFiles, check_keys
from connectors.errors import BootstrapError

Group = int | None
"""The partition in which a key is looked up; None if a key has one record over all partitions."""


_ROWS: Final = 65_536
"""Rows of a batch, and keys of a dict. Of 5 million keys, dicts of this size are made in 0.6 s and looked through in 12
µs; a single one, which does not fit into the processor's caches, takes 1.3 s and 1 µs."""


class TableState:
    """The records of a table, by key and partition. Only one thread may call `apply`."""

    def __init__(self, snapshot: SnapshotFiles) -> None:
        self._columns = RecordColumns(snapshot)
        self._has_partitions = snapshot.manifest.scope is UNSET
        # The snapshot's rows, and the number of the first row of each batch.
        self._batches: list[pa.RecordBatch] = []
        # The columns of each batch by name: to ask a batch for them takes longer than to read them.
        self._arrays: list[dict[str, pa.Array]] = []
        self._starts: list[int] = []
        # The row of each key of the snapshot, by group: a dict for each batch.
        self._rows: dict[Group, list[dict[Any, int]]] = {}
        # Rows of a typed key that another row has as well: the topic has two encodings of it.
        self._superseded: set[int] = set()
        # What has changed since: None is a deleted key. A group is in here if it is in `_rows`.
        self._changed: dict[Group, dict[Any, TableRecord | None]] = {}
        # The groups as readers go through them; replaced when there is another one.
        self._groups: tuple[Group, ...] = ()
        # How many records there are now.
        self._count = 0
        _check_keys(snapshot, self._columns, has_partitions=self._has_partitions)
        for table in snapshot.tables():
            for batch in table.to_batches():
                plain = self._columns.plain(batch)
                for at in range(0, plain.num_rows, _ROWS):
                    self._add(plain.slice(at, _ROWS))
        self._changed = {group: {} for group in self._rows}
        self._groups = tuple(self._rows)

    def __len__(self) -> int:
        return self._count

    def get(self, key: Any) -> TableRecord | None:
        """Returns the record of `key`; of several partitions that of the latest time, then of the last partition."""
        own = comparable(key)
        records = [record for group in self._groups if (record := self._record(group, own)) is not None]
        return max(records, key=_age) if len(records) > 1 else records[0] if records else None

    def __iter__(self) -> Iterator[TableRecord]:
        """Yields every record; a key may be there once for each partition."""
        changed = {group: self._changed[group].copy() for group in self._groups}
        for start, batch in zip(self._starts, self._batches, strict=True):
            for row, record in enumerate(self._columns.records(batch), start):
                group = record.partition if self._has_partitions else None
                if comparable(record.key) not in changed[group] and row not in self._superseded:
                    yield record
        for records in changed.values():
            yield from (record for record in records.values() if record is not None)

    def apply(self, changes: Iterable[Change]) -> None:
        """Replaces and deletes the records of the keys of `changes`, of each key once: by its last change.

        So no reader sees a typed key missing between the tombstone of one encoding and the record of the next.
        """
        last = {
            (change.partition if self._has_partitions else None, comparable(change.key)): change for change in changes
        }
        for (group, key), change in last.items():
            if group not in self._changed:
                self._rows[group], self._changed[group] = [], {}
                self._groups = (*self._groups, group)
            changed, record = self._changed[group], change.record
            row = self._row(group, key)
            was_there = changed[key] is not None if key in changed else row is not None
            if record is None and row is None:
                changed.pop(key, None)
            else:
                changed[key] = record
            self._count += (record is not None) - was_there

    def _record(self, group: Group, key: Any) -> TableRecord | None:
        changed = self._changed[group]
        try:
            return changed[key]
        except KeyError:
            row = self._row(group, key)
            return None if row is None else self._at(row)

    def _row(self, group: Group, key: Any) -> int | None:
        return next((rows[key] for rows in self._rows[group] if key in rows), None)

    def _at(self, row: int) -> TableRecord:
        batch = bisect_right(self._starts, row) - 1
        return self._columns.record(self._arrays[batch], row - self._starts[batch])

    def _add(self, batch: pa.RecordBatch) -> None:
        start = self._starts[-1] + self._batches[-1].num_rows if self._starts else 0
        self._batches.append(batch)
        self._arrays.append(dict(zip(batch.schema.names, batch.columns, strict=True)))
        self._starts.append(start)
        keys = self._columns.keys(batch)
        if not self._has_partitions:
            self._index(None, keys, range(start, start + batch.num_rows))
            return
        numbers = batch.column(self._columns.partition).to_numpy()
        if numbers.min() == numbers.max():  # as files are of one partition mostly
            self._index(int(numbers[0]), keys, range(start, start + batch.num_rows))
            return
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            self._index(number, [keys[row] for row in rows.tolist()], (rows + start).tolist())

    def _index(self, group: Group, keys: list[Any], rows: Iterable[int]) -> None:
        dicts = self._rows.setdefault(group, [])
        if self._columns.has_raw_keys:
            dicts.append(dict(zip(keys, rows, strict=True)))
            self._count += len(keys)
            return
        if not dicts:
            dicts.append({})
        known = dicts[0]
        for key, row in zip(keys, rows, strict=True):
            before = known.get(key)
            if before is None:
                self._count += 1
            elif self._order(before) > self._order(row):
                self._superseded.add(row)
                continue
            else:
                self._superseded.add(before)
            known[key] = row

    def _order(self, row: int) -> tuple[int, ...]:
        """Returns what says which of two rows of one key is the later one: the offset within a partition."""
        record = self._at(row)
        offset = -1 if record.offset is None else record.offset
        return (offset,) if self._has_partitions else (*_age(record), offset)


def _age(record: TableRecord) -> tuple[int, int]:
    return (
        -1 if record.timestamp is None else record.timestamp,
        -1 if record.partition is None else record.partition,
    )


def _check_keys(snapshot: SnapshotFiles, columns: RecordColumns, *, has_partitions: bool) -> None:
    """Raises BootstrapError if the rows of `snapshot` cannot be told apart by the keys of the output."""
    where = f"Snapshot {snapshot.id} in {snapshot.place.location}"
    if snapshot.is_appended:
        raise BootstrapError(
            f"{where} has every record, not the last of each key (snapshot.mode=append).", "Read it with open_table."
        )
    names = {column.name for column in snapshot.manifest.schema}
    check_keys(snapshot)
    if has_partitions and columns.partition not in names:
        raise BootstrapError(
            f"{where} has no column {columns.partition}, and a key may be in several partitions.",
            "Set _partition in snapshot.metadata.columns, and take a snapshot.",
        )
