"""Reads offset ranges of an object store for Spark's fold: in Python tasks, as Spark's JVM knows no such store.

The files of a folder are read by Spark's JVM (`on_spark`). Here a file is read whole, by one request, and compared with
its checksum before anything of it is decoded: a damaged page header could end the process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.bin_packing import Until, pack
from compactor.errors import DamagedFileError, ForeignContentError
from compactor.fold.task_split import task_bytes
from compactor.model import record
from compactor.model.log import RunFile
from compactor.runs.checksums import RESTORE
from compactor.runs.reader import read_ranges
from compactor.runs.scan import SCAN, FileRange, OffsetRange, files_of, plan_reads
from compactor.spark.errors import KEY, tagging
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Bytes of files a task, if there are cores for no more tasks; one file of a task is in memory at a time.
_TASK_BYTES: Final = 256 << 20


def scan_in_tasks(spark: SparkSession, storage: Storage, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Reads the records of all `ranges`: the columns of SCAN, `log` being the number of a row's range.

    Raises StorageError, MissingFileError and DamagedFileError when the frame is used.
    """
    files, reads = files_of(ranges), plan_reads(ranges)
    size = task_bytes(
        sum(file.file_bytes for file in files.values()), _TASK_BYTES, spark.sparkContext.defaultParallelism
    )
    work = [tuple(paths) for paths in pack(sorted(reads), Until(size, lambda path: files[path].file_bytes))]
    if not work:
        return spark.createDataFrame([], record.ddl(SCAN))

    key = KEY

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging(key):
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                for path in work[number]:
                    yield from _records(storage, files[path], reads[path])

    return spark.range(0, len(work), 1, len(work)).mapInArrow(task, record.ddl(SCAN))


def _records(storage: Storage, file: RunFile, ranges: Sequence[FileRange]) -> Iterator[pa.RecordBatch]:
    try:
        data = storage.read(file.path, file.file_bytes)
    except ForeignContentError as error:
        raise DamagedFileError(f"{storage.location}/{file.path} is damaged: it is longer.", RESTORE) from error
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise DamagedFileError(f"{storage.location}/{file.path} is damaged: it is not what was written.", RESTORE)
    with pq.ParquetFile(pa.BufferReader(data)) as opened:
        for batch in read_ranges(opened, ranges, record.RUN.names):
            yield batch.select(SCAN.names)
