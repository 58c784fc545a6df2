"""Rows of several partitions in one batch, told apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.model.record import TopicPartition

PARTITION: Final = ("topic", "partition")
"""The columns that name a partition."""


def starts(batch: pa.RecordBatch) -> NDArray[np.int64]:
    """The rows at which a partition begins that is not the one of the row before; the first row is one."""
    changes = [pc.not_equal(batch[name].slice(1), batch[name].slice(0, len(batch) - 1)) for name in PARTITION]
    return np.concatenate(([0], 1 + pc.indices_nonzero(pc.or_(*changes)).to_numpy().astype(np.int64)))


def names(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> Iterator[TopicPartition]:
    """The partition of each of `rows`."""
    found = (batch[name].take(pa.array(rows)).to_pylist() for name in PARTITION)
    return (TopicPartition(*name) for name in zip(*found, strict=True))


def spans(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, int, int]]:
    """The rows of each partition that lie together: from the one number to before the other."""
    if batch.num_rows:
        first = starts(batch)
        for tp, (start, end) in zip(names(batch, first), pairwise((*first.tolist(), batch.num_rows)), strict=True):
            yield tp, start, end


def split(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """The rows of `batch` by partition, each by offset."""
    found = list(spans(batch))
    if len(found) > 1:
        order = [(name, "ascending") for name in (*PARTITION, "offset")]
        batch = batch.take(pc.sort_indices(batch, sort_keys=order))
        found = list(spans(batch))
    for tp, start, end in found:
        yield tp, batch.slice(start, end - start)
