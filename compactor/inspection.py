"""Whom a damaged store concerns: reads what logs need, without Spark, against the checksums of pages."""

from __future__ import annotations

import pyarrow as pa

from compactor.errors import StorageError
from compactor.log import PartitionLog
from compactor.reading import Slice, between, read_extent
from compactor.storage import Storage


class DamagedFileError(StorageError):
    """A file of a log is there, and is not what was written."""


def damage(storage: Storage, part: Slice) -> StorageError | None:
    """The first trouble with what `part` needs of its files; None where every record of it can be read.

    A page that is damaged concerns the partition that it belongs to, a missing file or a damaged footer all that the
    file holds.
    """
    for extent in part.extents:
        where = f"{extent.tp}, offsets [{extent.start}, {extent.end}): {storage.location}/{extent.file.path}"
        try:
            records = sum(batch.num_rows for batch in read_extent(storage, extent))
        except StorageError as error:
            return error
        except (pa.ArrowException, OSError) as error:
            return DamagedFileError(f"{where} is damaged: {_first_line(error)}.", _RESTORE)
        whole = extent.start <= extent.file.first and extent.file.last < extent.end
        if whole and records != extent.file.records:
            return DamagedFileError(f"{where} is damaged: it has {records} of {extent.file.records} records.", _RESTORE)
    return None


def kept(log: PartitionLog) -> Slice:
    """What a full fold of `log` reads."""
    return between(log, log.start, log.published)


def unpublished(log: PartitionLog) -> Slice:
    """What publishing of `log` still has to read."""
    return between(log, log.published, log.end)


_RESTORE = "Put the file back from a copy, then `keyfold release` the partition; until then it is set aside alone."


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
