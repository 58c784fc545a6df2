"""Holds the rows of a batch while a chain changes them one by one, and makes batches of them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.model.record import HEADERS, KEY_ENCODING, KEY_IDENTITY, RUN, SOURCE, TopicPartition
from connectors.chain.key_identity import Compared
from connectors.data.record import Header
from connectors.errors import PortionLateError, RegistryError

_COMPARED: Final = pa.schema([*SOURCE, RUN.field(KEY_IDENTITY), RUN.field(KEY_ENCODING)])


class Rows:
    """The rows of a batch, as lists of which single elements are replaced."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self.topics: list[str] = batch["topic"].to_pylist()
        self.partitions: list[int] = batch["partition"].to_pylist()
        self.offsets: list[int] = batch["offset"].to_pylist()
        self.timestamps: list[int] = batch["timestamp"].to_pylist()
        # `set` and `restore` replace elements of the next two lists; the batch itself keeps what was read.
        self.keys: list[bytes | None] = batch["key"].to_pylist()
        self.values: list[bytes | None] = batch["value"].to_pylist()
        self.rejected: list[str | None] = batch["rejected"].to_pylist()
        has_headers = len(pc.list_flatten(batch["headers"])) > 0
        # None if no row has a header, as in most topics: no list is made for each row then.
        self._headers: list[Any] | None = batch["headers"].to_pylist() if has_headers else None
        # Whether a row has got other headers; if not, `batch` returns the column that was read.
        self._changes_headers = False
        # The numbers of the rows that a transform has dropped; `batch` leaves them out.
        self._dropped: set[int] = set()
        self.compared: list[Compared | None] | None = None
        # The first row that `take` has not returned, and how many bytes were put into that one and those after it.
        self.first = 0
        self.written = 0

    def headers_of(self, row: int) -> Sequence[Header]:
        """Returns the headers of a row as they were read."""
        own = self._headers[row] if self._headers is not None else None
        return [Header(header["key"], header["value"]) for header in own] if own else ()

    def located(self, error: RegistryError, row: int) -> RegistryError:
        """Returns `error` with the place of its record, unless it is the whole portion that is late."""
        if isinstance(error, PortionLateError):
            return error
        where = f"topic {self.topics[row]}, partition {self.partitions[row]}, offset {self.offsets[row]}"
        return type(error)(f"{error.message} It was asked for the record at {where}.", error.action)

    def set(self, row: int, key: bytes | None, value: bytes | None) -> None:
        """Replaces key and value of a row."""
        self.keys[row] = key
        self.values[row] = value
        self.written += len(key or b"") + len(value or b"")

    def set_headers(self, row: int, headers: Sequence[tuple[str, bytes | None]]) -> None:
        """Replaces the headers of a row."""
        if self._headers is None:
            self._headers = [None] * len(self.keys)
        self._headers[row] = [{"key": key, "value": value} for key, value in headers]
        self._changes_headers = True
        self.written += sum(len(key) + len(value or b"") for key, value in headers)

    def restore(self, row: int) -> None:
        """Makes a row again what was read."""
        self.set(row, self._batch["key"][row].as_py(), self._batch["value"][row].as_py())
        if self._changes_headers and self._headers is not None:
            self._headers[row] = self._batch["headers"][row].as_py()

    def drop(self, row: int) -> None:
        """Leaves a row out."""
        self._dropped.add(row)

    def dropped_partitions(self) -> Iterator[TopicPartition]:
        """Yields the partition of each row that is left out."""
        return (TopicPartition(self.topics[row], self.partitions[row]) for row in self._dropped)

    def take(self, end: int) -> pa.RecordBatch:
        """Returns the rows from `first` to `end` that are left, as they are now. The next call begins at `end`."""
        part, before = slice(self.first, end), self._batch.slice(self.first, end - self.first)
        changed: dict[str, pa.Array] = {
            "key": pa.array(self.keys[part], pa.binary()),
            "value": pa.array(self.values[part], pa.binary()),
            "rejected": pa.array(self.rejected[part], pa.string()),
        }
        if self._changes_headers and self._headers is not None:
            changed["headers"] = pa.array([headers or [] for headers in self._headers[part]], HEADERS)
            self._headers[part] = [None] * before.num_rows
        columns = [changed.get(name, before[name]) for name in SOURCE.names]
        batch = pa.RecordBatch.from_arrays(columns, schema=SOURCE)
        if self.compared is not None:
            pairs = [compared or (None, None) for compared in self.compared[part]]
            identities, encodings = zip(*pairs, strict=True) if pairs else ((), ())
            more = [pa.array(identities, pa.binary()), pa.array(encodings, pa.string())]
            batch = pa.RecordBatch.from_arrays([*columns, *more], schema=_COMPARED)
        if self._dropped:
            kept = [row - self.first for row in range(self.first, end) if row not in self._dropped]
            batch = batch.take(pa.array(kept, pa.int64()))
            self._dropped.clear()
        self.keys[part] = self.values[part] = [None] * before.num_rows  # they are in `batch` now
        self.first, self.written = end, 0
        return batch
