"""Data files of snapshots are read a row group at a time, so that memory does not grow with the size of values."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.snapshot import row_groups


def test_no_batch_has_rows_of_two_row_groups() -> None:
    """Though one of as many rows as are asked for would: the number of rows bounds no memory."""
    written = io.BytesIO()
    pq.write_table(pa.table({"value": [b"%d" % n for n in range(7)]}), written, row_group_size=3)
    with pq.ParquetFile(written) as file:
        batches = list(row_groups.batches(file, 2))
        assert [batch.num_rows for batch in row_groups.batches(file, 10_000)] == [3, 3, 1]
    assert [batch.num_rows for batch in batches] == [2, 1, 2, 1, 1]
    assert [value for batch in batches for value in batch["value"].to_pylist()] == [b"%d" % n for n in range(7)]
