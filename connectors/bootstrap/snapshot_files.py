"""Reads the records of a topic's newest snapshot, in a folder or an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa
from msgspec import UNSET, Struct

from compactor.snapshot import manifest
from compactor.snapshot.content import APPEND
from compactor.snapshot.file_reader import batches, open_file, read_file
from compactor.snapshot.manifest import DataFile, Manifest
from compactor.snapshot.typed_table import REST
from compactor.storage.base import Storage
from connectors.bootstrap.records import TableRecord, comparable
from connectors.errors import BootstrapError
from connectors.snapshot_folder import newest_in
from connectors.typed.plain_values import listed, value_of

_OPEN_AHEAD: Final = 256
"""Files that are opened before the first record is handed out: a file of a folder that is open can be read to its end,
also once its snapshot is removed. A process may mostly have 1,024 of them."""
_ROWS: Final = 65_536
"""Records that are in memory at a time while they are handed out."""


class SnapshotFiles(Struct, frozen=True):
    """A snapshot in the storage of its topic's folder: its id and its manifest."""

    place: Storage
    id: str
    manifest: Manifest

    @property
    def _folder(self) -> Storage:
        return self.place.sub(self.id)

    @property
    def is_typed(self) -> bool:
        """Whether the fields of keys or values are columns."""
        return self.manifest.typed is not UNSET

    @property
    def is_appended(self) -> bool:
        """Whether it has every record, not the last of each key."""
        return self.manifest.snapshot_mode == APPEND

    def columns(self) -> pa.Schema:
        """Reads the columns of its files, which are all alike. Raises MissingFileError if the snapshot was removed."""
        with open_file(self._folder, self.manifest.files[0]) as opened:
            return opened.schema_arrow

    def tables(self) -> Iterator[pa.Table]:
        """Yields the records of each file, and reads the next one meanwhile.

        Raises MissingFileError if the snapshot was removed.
        """
        with ThreadPoolExecutor(1, "keyfold-snapshot") as pool:
            reads = (pool.submit(self._table, file) for file in self.manifest.files)
            ahead = next(reads, None)
            while ahead is not None:
                table, ahead = ahead.result(), next(reads, None)
                yield table

    def _table(self, file: DataFile) -> pa.Table:
        with open_file(self._folder, file) as opened:
            return opened.read()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yields the records in the order of the files. Raises MissingFileError if the snapshot was removed."""
        files = self.manifest.files
        with ExitStack() as stack:
            ahead = [stack.enter_context(open_file(self._folder, file)) for file in files[:_OPEN_AHEAD]]
            for opened in ahead:
                yield from batches(opened, _ROWS)
        for file in files[_OPEN_AHEAD:]:
            yield from read_file(self._folder, file, _ROWS)


def newest_snapshot(place: Storage) -> SnapshotFiles:
    """Finds the newest snapshot in the folder of a topic, and reads its manifest.

    Raises UsageError if there is none, MissingFileError if it was removed meanwhile.
    """
    newest = newest_in(place).id
    return SnapshotFiles(place, newest, manifest.read(place, newest))


def check_keys(snapshot: SnapshotFiles) -> None:
    """Raises BootstrapError if the records of `snapshot` do not have their keys."""
    columns = RecordColumns(snapshot)
    place = f"Snapshot {snapshot.id} in {snapshot.place.location}"
    if columns.key not in {column.name for column in snapshot.manifest.schema}:
        raise BootstrapError(
            f"{place} has no column {columns.key}, so its records cannot be told apart.",
            "Put _key into snapshot.metadata.columns, and take a snapshot.",
        )


class RecordColumns:
    """Makes records of the rows of one snapshot: key and value as in the topic, or fields if it is typed.

    A typed key that fits no column is its bytes.
    """

    def __init__(self, snapshot: SnapshotFiles) -> None:
        typed = snapshot.manifest.typed
        self._prefix = "" if typed is UNSET else "_"
        # Whether values are columns; and whether keys are bytes, as they are in the topic.
        self.has_fields = typed is not UNSET and typed.value_format != "bytes"
        self.has_raw_keys = typed is UNSET or typed.key_format == "bytes"
        self.key = f"{self._prefix}key"
        self.partition = f"{self._prefix}partition"
        self.offset = f"{self._prefix}offset"
        self.timestamp = f"{self._prefix}timestamp"

    def plain(self, data: pa.RecordBatch) -> pa.RecordBatch:
        """Returns `data` as records have it: text of keys and values as bytes, the record's time in ms.

        Times in ns become whole numbers, as Python has no type for them (and `listed` makes some of others).
        """
        return data.cast(pa.schema([field.with_type(self._plain_type(field)) for field in data.schema]))

    def record(self, columns: Mapping[str, pa.Array], row: int) -> TableRecord:
        """Makes the record of a row of the columns of a batch that `plain` has returned."""
        return self._record({name: value_of(column[row]) for name, column in columns.items()})

    def keys(self, batch: pa.RecordBatch) -> list[Any]:
        """Returns what the keys of a batch that `plain` has returned are looked up by (`records.comparable`)."""
        keys = batch.column(self.key)
        if self.has_raw_keys:
            return keys.to_pylist()
        own = listed(keys)
        own = list(map(comparable, own)) if _may_differ(keys.type) else own
        unplaced = batch.column(REST["key"])
        if unplaced.null_count == len(unplaced):
            return own
        rest = unplaced.to_pylist()
        return [key if raw is None else raw for key, raw in zip(own, rest, strict=True)]

    def records(self, batch: pa.RecordBatch) -> Iterator[TableRecord]:
        """Yields the records of a batch that `plain` has returned."""
        return map(self._record, listed(batch.to_struct_array()))

    def _record(self, values: dict[str, Any]) -> TableRecord:
        own = {name: values.pop(f"{self._prefix}{name}", None) for name in _OWN}
        unplaced = values.pop(REST["key"], None) if self._prefix else None
        return TableRecord(
            key=own["key"] if unplaced is None else unplaced,
            value=None if self.has_fields else values.pop("value"),
            partition=own["partition"],
            offset=own["offset"],
            timestamp=own["timestamp"],
            headers=tuple((header["key"], header["value"]) for header in own["headers"] or ()),
            fields=values if self.has_fields else None,
        )

    def _plain_type(self, field: pa.Field) -> pa.DataType:
        if field.name == f"{self._prefix}timestamp":
            return pa.int64()
        is_raw = self.has_raw_keys and field.name == self.key
        if is_raw or (field.name == "value" and not self.has_fields):
            return pa.binary()
        return _without_ns(field.type)


_OWN: Final = ("key", "partition", "offset", "timestamp", "headers")
"""The fields of a record that a snapshot's metadata columns have."""


def _may_differ(kind: pa.DataType) -> bool:
    """Returns whether a key of Python differs from what it is looked up by."""
    return pa.types.is_nested(kind) or pa.types.is_floating(kind)


def _without_ns(kind: pa.DataType) -> pa.DataType:
    """Returns `kind` with int64 in place of times in ns, at any depth."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_ns(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_ns(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_field, kind.item_field.with_type(_without_ns(kind.item_type)))
    is_ns = (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)) and kind.unit == "ns"
    return pa.int64() if is_ns else kind
