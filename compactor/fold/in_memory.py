"""The fold of what one process can hold, with Arrow: what `fold.latest(fold.scan(…))` gives, without a Spark job.

Everything that is read is in memory at once; whoever calls has looked how much that is. Only files that are, byte for
byte, what was written are decoded here: a damaged page can end the process that reads it (`quarantine.verify`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compactor.fold.arrow_kernel import last_rows
from compactor.model.record import RUN
from compactor.runs.reader import read_ranges
from compactor.runs.scan import LOG, SCAN, FileRange, OffsetRange, files_of, plan_reads
from compactor.storage.base import Storage

_ROWS: Final = 10_000

Files = Mapping[str, bytes]
"""Whole files, by path."""


def load(storage: Storage, slices: Iterable[OffsetRange]) -> Files | None:
    """Every file that holds anything of `slices`; None where one is not what was written. Raises StorageError."""
    found: dict[str, bytes] = {}
    for path, file in files_of(slices).items():
        found[path] = storage.read(path)
        if hashlib.sha256(found[path]).hexdigest() != file.sha256:
            return None
    return found


def latest(files: Files, slices: Sequence[OffsetRange]) -> pa.Table:
    """The latest record of every key of each slice, and every rejected record, by slice and offset (`scan.SCAN`)."""
    read = _scan(files, slices)
    order = pc.sort_indices(read, sort_keys=[(LOG, "ascending"), ("offset", "ascending")])
    last = last_rows(read.select([LOG, "key", "rejected"]).take(order), [LOG])
    return read.take(order.take(pa.array(last)))


def batches(folded: pa.Table) -> Iterator[pa.RecordBatch]:
    """The records of `folded` (`scan.SCAN`) as a publisher takes them (record.RUN), some thousands at a time."""
    return iter(folded.select(RUN.names).to_batches(_ROWS))


def _scan(files: Files, slices: Sequence[OffsetRange]) -> pa.Table:
    """The records of all `slices` with the number of their slice; every file is opened once."""
    found = (one for path, wants in plan_reads(slices).items() for one in _of_bytes(files[path], wants))
    return pa.Table.from_batches(found, SCAN)


def _of_bytes(data: bytes, wanted: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        yield from read_ranges(opened, wanted, RUN.names)
