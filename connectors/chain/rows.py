"""Holds the rows of a batch while a chain changes them one by one, and makes batches of them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from compactor.model.record import HEADERS, KEY_ENCODING, KEY_IDENTITY, ORDER_VALUE, RUN, SOURCE, TopicPartition
from connectors.chain.compared_keys import Compared
from connectors.data.record import Header
from connectors.errors import DataError, PortionLateError, RegistryError

MOST_HEADERS: Final = 100_000
"""Headers of a record that go through a chain: as objects of Python they take 40 MB, and 1 MB has room for 350,000."""
_HEADER_BYTES: Final = 256
"""What a header that was set takes as objects of Python until its piece is handed on, without its own bytes."""
_AT_ONCE: Final = 100_000
"""Headers of a batch up to which all are made at once: a batch of 5,000 records has some ten for each."""
COMPARED: Final = (RUN.field(KEY_IDENTITY), RUN.field(KEY_ENCODING))
"""The columns that follow those of `record.SOURCE` if keys have an identity."""


class Piece(NamedTuple):
    """What the rows before `end` of a batch became: `rows` are those that are in `batch`. `made`: bytes of them."""

    batch: pa.RecordBatch
    rows: Sequence[int]
    end: int
    made: int


def headers_at(batch: pa.RecordBatch, row: int) -> Sequence[Header]:
    """Returns the headers of a row as they were read. Raises DataError for more than MOST_HEADERS."""
    headers = batch["headers"][row]
    if headers.is_valid and len(headers) > MOST_HEADERS:
        raise DataError(
            f"The record has {len(headers)} headers; {MOST_HEADERS} are the most.", "Send it with fewer headers."
        )
    return _headers_of(headers.as_py())


def _headers_of(pairs: Any) -> Sequence[Header]:
    return [Header(header["key"], header["value"]) for header in pairs] if pairs else ()


def located(error: RegistryError, topic: str, partition: int, offset: int) -> RegistryError:
    """Returns `error` with the place of its record, unless it is the whole portion that is late."""
    if isinstance(error, PortionLateError):
        return error
    where = f"topic {topic}, partition {partition}, offset {offset}"
    return type(error)(f"{error.message} It was asked for the record at {where}.", error.action)


class Rows:
    """The rows of a batch, as lists of which single elements are replaced."""

    def __init__(self, batch: pa.RecordBatch, *, is_compared: bool = False, is_ordered: bool = False) -> None:
        self._batch = batch
        self.topics: list[str] = batch["topic"].to_pylist()
        self.partitions: list[int] = batch["partition"].to_pylist()
        self.offsets: list[int] = batch["offset"].to_pylist()
        self.timestamps: list[int] = batch["timestamp"].to_pylist()
        # `set` and `restore` replace elements of the next two lists; the batch itself keeps what was read.
        self.keys: list[bytes | None] = batch["key"].to_pylist()
        self.values: list[bytes | None] = batch["value"].to_pylist()
        self.rejected: list[str | None] = batch["rejected"].to_pylist()
        headers = len(pc.list_flatten(batch["headers"]))
        # The headers of each row; None for those of a row that are in the batch alone. None in all if no row has a
        # header, as in most topics, or if all have so many that they are made a row at a time.
        self._headers: list[Any] | None = batch["headers"].to_pylist() if 0 < headers <= _AT_ONCE else None
        self._has_more = headers > _AT_ONCE
        # Whether a row has got other headers; if not, `batch` returns the column that was read.
        self._changes_headers = False
        # The numbers of the rows that a transform has dropped; `batch` leaves them out.
        self._dropped: set[int] = set()
        # What each key is compared by, if keys have an identity; `set_compared` replaces elements.
        self.compared: list[Compared | None] | None = [None] * len(self.keys) if is_compared else None
        # What each record is ordered by, if that is a field of it (`record.RUN`); `set_order` replaces elements.
        self._order: list[bytes | None] | None = [None] * len(self.keys) if is_ordered else None
        # The first row that `take` has not returned, and how many bytes were put into that one and those after it.
        self.first = 0
        self.written = 0

    def headers_of(self, row: int) -> Sequence[Header]:
        """Returns the headers of a row as they were read. Raises DataError for more than MOST_HEADERS."""
        own = self._headers[row] if self._headers is not None else None
        if own is None and self._has_more:
            return headers_at(self._batch, row)
        return _headers_of(own)

    def located(self, error: RegistryError, row: int) -> RegistryError:
        """Returns `error` with the place of its record, unless it is the whole portion that is late."""
        return located(error, self.topics[row], self.partitions[row], self.offsets[row])

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
        self.written += sum(_HEADER_BYTES + len(key) + len(value or b"") for key, value in headers)

    def set_compared(self, row: int, compared: Compared) -> None:
        """Sets what the key of a row is compared by."""
        assert self.compared is not None
        self.compared[row] = compared
        self.written += len(compared.identity or b"")

    def set_order(self, row: int, value: bytes | None) -> None:
        """Sets what a record is ordered by."""
        assert self._order is not None
        self._order[row] = value
        self.written += len(value or b"")

    def restore(self, row: int) -> None:
        """Makes a row again what was read."""
        self.set(row, self._batch["key"][row].as_py(), self._batch["value"][row].as_py())
        if self._changes_headers and self._headers is not None:
            self._headers[row] = None

    @staticmethod
    def _written_headers(rows: list[Any], before: pa.Array) -> pa.Array:
        """Returns the headers of rows, of which those that are None stay as they were in `before`."""
        kept = pa.array([headers is None for headers in rows], pa.bool_())
        others = pa.array([headers or [] for headers in rows], HEADERS)
        return pc.if_else(kept, before, others) if kept.true_count else others

    def drop(self, row: int) -> None:
        """Leaves a row out."""
        self._dropped.add(row)

    def dropped_partitions(self) -> Iterator[TopicPartition]:
        """Yields the partition of each row that is left out."""
        return (TopicPartition(self.topics[row], self.partitions[row]) for row in self._dropped)

    def take(self, end: int) -> Piece:
        """Returns the rows from `first` to `end` that are left, as they are now. The next call begins at `end`."""
        part, before = slice(self.first, end), self._batch.slice(self.first, end - self.first)
        changed: dict[str, pa.Array] = {
            "key": pa.array(self.keys[part], pa.binary()),
            "value": pa.array(self.values[part], pa.binary()),
            "rejected": pa.array(self.rejected[part], pa.string()),
        }
        if self._changes_headers and self._headers is not None:
            changed["headers"] = self._written_headers(self._headers[part], before["headers"])
            self._headers[part] = [None] * before.num_rows
        columns, fields = [changed.get(name, before[name]) for name in SOURCE.names], [*SOURCE]
        if self.compared is not None:
            pairs = [compared or (None, None) for compared in self.compared[part]]
            identities, encodings = zip(*pairs, strict=True) if pairs else ((), ())
            columns += [pa.array(identities, pa.binary()), pa.array(encodings, pa.string())]
            fields += COMPARED
            self.compared[part] = [None] * before.num_rows
        if self._order is not None:
            columns.append(pa.array(self._order[part], pa.binary()))
            fields.append(RUN.field(ORDER_VALUE))
            self._order[part] = [None] * before.num_rows
        batch = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
        kept: Sequence[int] = range(self.first, end)
        if self._dropped:
            kept = [row for row in kept if row not in self._dropped]
            batch = batch.take(pa.array([row - self.first for row in kept], pa.int64()))
            self._dropped.clear()
        nothing = [None] * before.num_rows  # they are in `batch` now
        self.keys[part] = self.values[part] = nothing
        piece = Piece(batch, kept, end, self.written)
        self.first, self.written = end, 0
        return piece
