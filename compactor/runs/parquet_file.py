"""Writes one Parquet file, of a run or of a snapshot, and knows its size and checksum as it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.model import record
from compactor.runs import checksums
from compactor.runs.group_notes import GroupNotes
from compactor.storage.base import Storage

_OPTIONS: Final = {"version": "2.6", "compression": "zstd", "compression_level": 1}
# Columns with a dictionary: their values repeat within a partition.
_REPEATED: Final = [
    "topic",
    "partition",
    "timestamp_type",
    "key",
    "headers.list.element.key",
    "rejected",
    record.KEY_ENCODING,
]
_ENCODINGS: Final = {
    "offset": "DELTA_BINARY_PACKED",
    "timestamp": "DELTA_BINARY_PACKED",
    "key": "DELTA_LENGTH_BYTE_ARRAY",
    "value": "DELTA_LENGTH_BYTE_ARRAY",
}
"""How columns of runs are encoded if they have no dictionary: numbers that rise as small differences, and lengths apart
from bytes.

A file has 5 bytes a record less than with Parquet's plain encoding, and offsets are read in a quarter of the time
(docs/decisions/speed.md). Snapshots are for readers of all kinds, some of which know the plain encoding alone."""
# Columns with statistics: readers skip row groups by them.
_PRUNED_BY: Final = ["topic", "partition", "offset", "timestamp", "delete_horizon"]


def plain_options(schema: pa.Schema, *, keys_repeat: bool = True) -> dict[str, Any]:
    """Returns options of `pyarrow.parquet.ParquetWriter` for records: what repeats has a dictionary.

    Statistics are kept of the columns by which files are pruned alone: those of keys and values would only cost.
    """
    names = set(schema.names)
    repeated = _REPEATED if keys_repeat else [name for name in _REPEATED if name != "key"]
    return {
        "use_dictionary": [name for name in repeated if name.partition(".")[0] in names],
        "write_statistics": [name for name in _PRUNED_BY if name in names],
    }


def run_options(*, keys_repeat: bool) -> dict[str, Any]:
    """Returns options for the file of a run, `record.RUN`; `keys_repeat`: keys have a dictionary."""
    options = plain_options(record.RUN, keys_repeat=keys_repeat)
    plain = _ENCODINGS.keys() - set(options["use_dictionary"])
    return {**options, "column_encoding": {name: _ENCODINGS[name] for name in plain}}


class ParquetFile:
    """Writes tables, each as one row group; the file appears in the store once it is closed without an error.

    Its size and checksum are known without reading it again.

    `options` are those of `pyarrow.parquet.ParquetWriter`; by itself `plain_options`. `notes`: the footer has them of
    each row group, as records are looked up in the file by their keys.
    """

    def __init__(
        self,
        storage: Storage,
        path: str,
        schema: pa.Schema,
        options: Mapping[str, Any] | None = None,
        notes: GroupNotes | None = None,
    ) -> None:
        self.path = path
        self._context = storage.open_output(path)
        self._notes = notes
        self._tee = _Tee(self._context.__enter__(), notes)
        self._writer = pq.ParquetWriter(
            pa.PythonFile(self._tee, mode="w"),
            schema,
            write_page_checksum=True,  # so that a damaged page is known by itself, and the rest of the file stays good
            **_OPTIONS,
            **(plain_options(schema) if options is None else options),
        )

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return self._tee.bytes

    @property
    def sha256(self) -> str:
        """The checksum, in hex, of what was written so far."""
        return self._tee.digest.hexdigest()

    @property
    def footer(self) -> str:
        """What `compactor.runs.checksums` keeps of the closed file."""
        return checksums.fingerprint(self._tee.tail)

    def write(self, table: pa.Table, group_rows: int | None = None) -> None:
        """Adds `table` as one row group, or as several of `group_rows` rows."""
        rows = max(1, group_rows or table.num_rows)
        if self._notes is None:
            self._writer.write_table(table, row_group_size=rows)
            return
        for at in range(0, table.num_rows, rows):
            piece = table.slice(at, rows)
            self._notes.begin()
            self._writer.write_table(piece, row_group_size=rows)
            self._notes.end(self.bytes, piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Completes the file, or removes it if there was an error."""
        self._tee.keep_tail()  # closing writes the footer, and nothing else
        try:
            if self._notes is not None:
                self._writer.add_key_value_metadata(self._notes.metadata())
            self._writer.close()
        except Exception as closing:
            self._context.__exit__(type(closing), closing, closing.__traceback__)
            if error is None:
                raise
        else:
            self._context.__exit__(kind, error, trace)


class _Tee:
    """A stream for Arrow that counts and digests what passes to `stream`, and leaves closing it to its owner."""

    closed = False

    def __init__(self, stream: Any, notes: GroupNotes | None) -> None:
        self._stream = stream
        self._notes = notes
        self.bytes = 0
        self.digest = hashlib.sha256()
        self.tail = b""
        # Set before the footer is written: `tail` keeps what comes from then on.
        self._keeps = False

    def keep_tail(self) -> None:
        self._keeps = True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        if self._notes is not None:
            self._notes.add(data)
        self._stream.write(data)
        self.tail += bytes(data) if self._keeps else b""
        self.bytes += len(data)
        return len(data)

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        """Does nothing: the owner of the stream makes it durable."""

    def close(self) -> None:
        self.closed = True
