"""Rows that do not fit into memory, in a file without a name: nothing of it stays, however the process ends."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, Final

import pyarrow as pa

_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
"""Spark names its folders (`spark.local.dir`) to its Python processes by this variable, with commas."""

_GATHERED: Final = 1 << 20
"""How many bytes of rows are gathered before they are written: many small Arrow messages are slow."""


def unnamed_file() -> IO[bytes]:
    """Opens a file without a name in the folder in which Spark's own plans spill. Raises OSError."""
    folder = os.environ.get(_LOCAL_DIRS, "").partition(",")[0] or None
    return tempfile.TemporaryFile(dir=folder)


class SpillFile:
    """Rows of `schema`: written first, then read once. Raises OSError if the disk refuses."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = unnamed_file()
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        self._writer = pa.ipc.new_stream(self._file, schema, options=options)
        self._schema = schema
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def close(self) -> None:
        """Closes the file, which frees its space on disk."""
        self._file.close()

    def add(self, rows: pa.RecordBatch) -> None:
        """Adds `rows`, which may be none."""
        self._held.extend([rows] if rows.num_rows else [])
        self._bytes += rows.nbytes
        if self._bytes >= _GATHERED:
            self._write()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yields all rows, in the order in which they were added."""
        self._write()
        self._writer.close()
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def _write(self) -> None:
        for batch in pa.Table.from_batches(self._held, self._schema).combine_chunks().to_batches():
            self._writer.write_batch(batch)
        self._held, self._bytes = [], 0
