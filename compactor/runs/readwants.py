"""Reads what several slices want of one Parquet file of runs, row group by row group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.fold.on_spark import LOG, SCAN
from compactor.model.partitioned import PARTITION, split
from compactor.model.record import TopicPartition
from compactor.runs.reader import bounds_of, trimmed
from compactor.runs.scan import Want


def of_file(opened: pq.ParquetFile, wanted: Sequence[Want], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """What is `wanted` of a file, in its order: `columns`, with `offset` among them, and the number of the slice."""
    wants: dict[TopicPartition, list[Want]] = {}
    for want in wanted:
        wants.setdefault(want.tp, []).append(want)
    for group in range(opened.num_row_groups):
        bounds = bounds_of(opened.metadata.row_group(group))
        near = wanted if bounds.tp is None else wants.get(bounds.tp, ())
        inside = [want for want in near if bounds.overlap(want.tp, want.start, want.end)]
        if not inside:
            continue
        if bounds.tp is None:
            yield from _of_shared(opened.read_row_group(group, [*{*columns, *PARTITION}]), wants, columns)
            continue
        for batch in opened.read_row_group(group, list(columns)).to_batches():
            yield from (_numbered(batch, want) for want in inside)


def _of_shared(
    rows: pa.Table, wants: Mapping[TopicPartition, Sequence[Want]], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """What is wanted of a row group that several partitions share: little of each, so all of it at once."""
    pieces = ((tp, rows) for batch in rows.to_batches() for tp, rows in split(batch))
    found = [_numbered(rows.select(columns), want) for tp, rows in pieces for want in wants.get(tp, ())]
    if found:
        yield pa.concat_batches(found)


def _numbered(batch: pa.RecordBatch, want: Want) -> pa.RecordBatch:
    """The rows of `batch` that are wanted, with the number of their slice."""
    rows = trimmed(batch, want.start, want.end)
    return rows.append_column(SCAN.field(LOG), pa.repeat(pa.scalar(want.log, pa.int32()), rows.num_rows))
