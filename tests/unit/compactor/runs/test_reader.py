"""Ranges of a file whose row groups several partitions share: read some at a time, and nothing beside what is asked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.model.record import RUN, TopicPartition
from compactor.runs import writer
from compactor.runs.reader import read_ranges
from compactor.runs.scan import LOG, FileRange
from compactor.storage.local import LocalStorage
from tests.support.engine import row, target

PARTITIONS, RECORDS = 40, 6


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param([(p, 0, RECORDS) for p in range(PARTITIONS)], id="all"),
        pytest.param([(3, 2, 4), (17, 0, 1), (17, 3, 5), (39, 5, 9)], id="parts"),
        pytest.param([(20, 0, RECORDS)], id="one"),
        pytest.param([(5, 6, 9), (50, 0, 9)], id="none"),
    ],
)
def test_ranges_of_shared_row_groups_are_read_in_order_with_their_numbers(
    tmp_path: Path, asked: list[tuple[int, int, int]]
) -> None:
    """Each record of the ranges comes once, in the file's order, with the number of its range; no other comes."""
    storage = LocalStorage(str(tmp_path))
    rows = [row(p, offset, b"%d" % p, b"%d" % offset) for p in range(PARTITIONS) for offset in range(RECORDS)]
    written = pa.RecordBatch.from_pylist(rows, schema=RUN)
    files = {one.tp.partition: one.file for one in writer.write([written], target(storage), "ingest.write")}
    ranges = [
        FileRange(tp=TopicPartition("t", p), file=files.get(p, files[0]), start=start, end=end, log=7 + number)
        for number, (p, start, end) in enumerate(asked)
    ]
    with storage.open_input(files[0].path) as source, pq.ParquetFile(source) as opened:
        assert opened.num_row_groups > 1
        found = [one for batch in read_ranges(opened, ranges, ["offset", "key"]) for one in batch.to_pylist()]
    assert [(one[LOG], one["key"], one["offset"]) for one in found] == [
        (7 + number, b"%d" % p, offset)
        for number, (p, start, end) in enumerate(asked)
        for offset in range(start, min(end, RECORDS))
        if p < PARTITIONS
    ]
