"""Reads data files of snapshots a row group at a time, so that memory does not grow with the size of the values.

A row group ends once it has 16 MiB, in a typed snapshot 64 MiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.errors import FoldError
from compactor.runs.checksums import is_decoding, read_errors
from compactor.snapshot.manifest import DataFile
from compactor.storage.base import Storage


@contextmanager
def open_parquet(storage: Storage, path: str, size: int) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file of `size` bytes that other programs may have changed.

    Raises FoldError, also within the block, if it is damaged; MissingFileError, UnreadableFileError, StorageError.
    """
    with read_errors(storage, path):
        try:
            with storage.open_input(path, size) as source, pq.ParquetFile(source) as opened:
                yield opened
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and not is_decoding(error):
                raise
            raise _damaged(storage, path, str(error).partition("\n")[0][:200]) from error


@contextmanager
def open_file(snapshot: Storage, file: DataFile) -> Iterator[pq.ParquetFile]:
    """Opens a data file of `snapshot`, the storage of its folder, as `open_parquet`.

    Raises FoldError as well if it has not as many records as its manifest says.
    """
    with open_parquet(snapshot, file.path, file.bytes) as opened:
        if (records := opened.metadata.num_rows) != file.records:
            raise _damaged(snapshot, file.path, f"it has {records:,} records, not {file.records:,}")
        yield opened


def _damaged(storage: Storage, path: str, why: str) -> FoldError:
    return FoldError(
        f"{storage.location}/{path} cannot be read: {why}.",
        "Put the file back, or take a new snapshot: keyfold snapshot CONNECTOR.json. "
        "keyfold snapshot verify names every file that is damaged.",
    )


def batches(file: pq.ParquetFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the records of `file`, up to `rows` at a time, none of two row groups together."""
    for group in range(file.num_row_groups):
        yield from file.iter_batches(rows, row_groups=[group])


def read_file(snapshot: Storage, file: DataFile, rows: int) -> Iterator[pa.RecordBatch]:
    """Yields the records of a data file as `batches` does. Raises as `open_file`."""
    with open_file(snapshot, file) as opened:
        yield from batches(opened, rows)
