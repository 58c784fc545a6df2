"""Rewrites runs whose keys a task's memory holds: a task for a bunch of logs, and nothing shuffled between them.

Two passes, as Kafka's cleaner makes them (`Cleaner.buildOffsetMap`, `cleanInto`): the keys first, which say what the
last record of each is; then everything, of which those records are written. Only keys are held, however large values
are. On Spark, which can fold any number of keys, the same takes several times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct
from numpy.typing import NDArray

from compactor import footers, parts, record, runfile
from compactor.bunches import bunches
from compactor.faults import tagging, unwrapping
from compactor.fold import LOG
from compactor.keep import Keep
from compactor.lastrows import last_rows
from compactor.localfold import of_file
from compactor.parts import Part
from compactor.reading import Slice
from compactor.runfile import RunTarget
from compactor.storage import Storage
from compactor.throttle import Pace
from compactor.wants import files_of, wants_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS: Final = 8_000_000
"""The records whose keys all tasks of a machine hold together."""

KEY_BYTES: Final = 512 << 20
"""The bytes of those keys; what is longer than was thought is left to Spark once it is seen."""

_LEFT: Final = "left"
"""The number of a bunch that its task has given up; in place of an answer."""

_ANSWERS: Final = pa.schema([*parts.PARTS, pa.field(_LEFT, pa.int32())])

_KEYS: Final = ("key", "rejected")
_HELD: Final = pa.schema([pa.field(LOG, pa.int32()), *(record.RUN.field(name) for name in _KEYS)])


def rewrite(
    spark: SparkSession,
    storage: Storage,
    slices: Sequence[Slice],
    target: RunTarget,
    keep: Keep,
    failpoint: str,
    limit: int | None = None,
) -> tuple[tuple[Part, ...] | None, ...]:
    """Of each of `slices` what `keep` leaves, as `foldjob.rewrite` gives it; None for those that it is left to.

    Left is what is too much for a task, and whatever lies in a file that is not, byte for byte, what was written.
    Raises StorageError, FoldError.
    """
    cores = spark.sparkContext.defaultParallelism
    plan = bunches(slices, target.max_bytes, cores, RECORDS // cores)
    work = [
        _Bunch(storage, [slices[log] for log in one.logs], one.paths, keep.of(one.logs), KEY_BYTES // cores)
        for one in plan
    ]
    if not work:
        return (None,) * len(slices)
    pace = Pace.shared(limit, cores)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with tagging():
            for number in (number for batch in batches for number in batch["id"].to_pylist()):
                yield from _answers(number, work[number], target, failpoint, pace)

    with unwrapping():
        frame = spark.range(0, len(work), 1, len(work)).mapInArrow(task, record.ddl(_ANSWERS))
        rows = [row.asDict() for row in frame.collect()]
    left = {row[_LEFT] for row in rows}
    done = {log for number, one in enumerate(plan) if number not in left for log in one.logs}
    written = [parts.from_row(row) for row in rows if row[_LEFT] is None]
    return tuple(parts.within(one, written) if log in done else None for log, one in enumerate(slices))


class _Bunch(Struct, frozen=True):
    """What one task does: the files of `slices`, in the order of `paths`; `key_bytes` is what it may hold of keys."""

    storage: Storage
    slices: Sequence[Slice]
    paths: Sequence[str]
    keep: Keep
    key_bytes: int


def _answers(number: int, bunch: _Bunch, target: RunTarget, failpoint: str, pace: Pace) -> Iterator[pa.RecordBatch]:
    """Rows of _ANSWERS: a part for each file and log, or that the bunch is left."""
    last = _last(bunch) if _is_sound(bunch, pace) else None
    if last is None:
        yield pa.RecordBatch.from_pylist([{_LEFT: number}], schema=_ANSWERS)
        return
    answer = parts.to_batch(runfile.write(pace.kept(_kept(bunch, last, pace)), target, failpoint))
    yield answer.append_column(_ANSWERS.field(_LEFT), pa.nulls(answer.num_rows, pa.int32()))


def _is_sound(bunch: _Bunch, pace: Pace) -> bool:
    """Whether every file is, byte for byte, what was written: to decode a damaged page can end this process."""
    files = files_of(bunch.slices)
    for path in bunch.paths:
        pace.wait(files[path].file_bytes)
        if not footers.whole(bunch.storage, files[path]):
            return False
    return True


def _last(bunch: _Bunch) -> NDArray[np.bool_] | None:
    """The first pass: of every record of the bunch, as they are read, whether it is kept; None: they are too much."""
    if not bunch.keep.by_key:
        return np.ones(sum(batch.num_rows for batch in _read(bunch, ["offset"])), np.bool_)
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in _read(bunch, ["offset", *_KEYS]):
        held.append(batch.select([LOG, *_KEYS]))
        size += batch["key"].nbytes
        if size > bunch.key_bytes:
            return None
    return _latest(pa.Table.from_batches(held, _HELD))


def _latest(table: pa.Table) -> NDArray[np.bool_]:
    """Which rows are the last of their key, as `fold.survivors` has it."""
    folds = pc.and_(pc.is_null(table["rejected"]), pc.is_valid(table["key"]))
    rows = np.flatnonzero(folds.to_numpy())
    keyed = table if len(rows) == table.num_rows else table.filter(folds)
    kept = np.zeros(table.num_rows, np.bool_)
    kept[rows[last_rows(keyed, [LOG])]] = True
    return kept


def _kept(bunch: _Bunch, last: NDArray[np.bool_], pace: Pace) -> Iterator[pa.RecordBatch]:
    """The second pass: the records that are kept (record.RUN), in the order of the first."""
    row = 0
    for batch in pace.kept(_read(bunch, record.RUN.names)):
        mask = last[row : row + batch.num_rows]
        row += batch.num_rows
        if mask.any():
            kept = bunch.keep.of_batch(batch.filter(pa.array(mask)))
            yield from runfile.cut(kept.select(record.RUN.names))


def _read(bunch: _Bunch, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """`columns` of all its records, and the number of each one's slice (`fold.LOG`)."""
    wants = wants_of(bunch.slices)
    for path in bunch.paths:
        with (
            footers.readable(bunch.storage, path),
            bunch.storage.open_input(path) as source,
            pq.ParquetFile(source, page_checksum_verification=True) as opened,
        ):
            yield from of_file(opened, wants[path], columns)
