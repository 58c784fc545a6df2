"""Reads data files of snapshots a row group at a time, so that memory does not grow with the size of the values.

A row group ends once it has 16 MiB, in a typed snapshot 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq


def batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the records of `file`, up to `rows` at a time, none of two row groups together."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group])
