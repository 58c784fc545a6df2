"""Compares two snapshots key by key: `keyfold snapshot diff`.

The rows of both are dealt to buckets by the hash of their keys, which lie on disk; then bucket by bucket is joined. So
memory grows with the largest bucket, a hundredth of a large snapshot, and no order of the files is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import repeat
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import UNSET, Struct

from compactor.errors import FoldError, MissingFileError
from compactor.model.key_hash import plain_hashes
from compactor.snapshot import manifest
from compactor.snapshot.content import APPEND
from compactor.snapshot.file_reader import read_file
from compactor.storage.spill_file import SpillFile
from connectors.errors import UsageError
from connectors.snapshot_folder import SnapshotFolder
from connectors.typed.plain_values import comparable, listed, told_of

ADDED: Final = "added"
CHANGED: Final = "changed"
REMOVED: Final = "removed"

_BUCKET_BYTES: Final = 16 << 20
"""Bytes of both snapshots' files for which there is a bucket. Decoded they take some times as much memory."""
_MOST_BUCKETS: Final = 128
"""Buckets at most: each gathers up to 1 MiB of each snapshot in memory before it writes."""
_ROWS: Final = 16_384
"""Rows of a file in memory at a time."""
_PARTITION: Final = "p"
_KEY: Final = "k"

Tell = Callable[[str, int | None, bytes], object]
"""Is told each key that differs: how, its partition (None if keys are compared over all partitions), and its bytes."""


class SnapshotDiff(Struct, frozen=True, kw_only=True):
    """How many keys only `new` has (added), only `old` has (removed), or both have with other records (changed).

    `same` counts the keys with equal records. `old` and `new` are the snapshots' folders.
    """

    old: str
    new: str
    added: int
    changed: int
    removed: int
    same: int


class _Side:
    """One of both snapshots: how its columns become those that are compared."""

    def __init__(self, snapshot: SnapshotFolder) -> None:
        self._snapshot = snapshot
        self.said = snapshot.manifest()
        self.is_typed = self.said.typed is not UNSET
        if manifest.mode_of(self.said) == APPEND:
            raise UsageError(
                f"Snapshot {snapshot.location} has every record (snapshot.mode=append), not one of each key.",
                "Compare snapshots of the latest records; DuckDB can compare any files.",
            )
        names = [column.name for column in self.said.schema]
        self._key, self._place = ("_key", "_partition") if self.is_typed else ("key", "partition")
        own = {self._key, self._place, "_offset" if self.is_typed else "offset"}
        self.compared = [name for name in names if name not in own]
        self.has_place = self._place in names
        if self._key not in names:
            raise UsageError(
                f"Snapshot {snapshot.location} has no column {self._key}: its rows cannot be told apart.",
                "Put _key into snapshot.metadata.columns, and take another snapshot.",
            )

    @property
    def bytes(self) -> int:
        """The bytes of its data files."""
        return sum(file.bytes for file in self.said.files)

    def rows(self, *, with_place: bool, read: Callable[[int], None]) -> Iterator[pa.Table]:
        """Yields its rows: the key as bytes, its partition (0 unless `with_place`), and what is compared."""
        for file in self.said.files:
            try:
                for batch in read_file(self._snapshot.files, file, _ROWS):
                    places = batch[self._place] if with_place else pa.array(np.zeros(batch.num_rows, np.int32))
                    columns = {_PARTITION: places, _KEY: _key_bytes(batch[self._key])}
                    yield pa.table({**columns, **{f"_{name}": batch[name] for name in self.compared}})
            except MissingFileError as error:
                raise FoldError(error.message, "keyfold snapshot verify says what else is wrong.") from error
            read(file.bytes)


def diff_snapshots(
    old: SnapshotFolder,
    new: SnapshotFolder,
    tell: Tell | None = None,
    read: Callable[[int], None] = lambda _: None,
    bucket_bytes: int = _BUCKET_BYTES,
) -> SnapshotDiff:
    """Compares what `new` has of each key with what `old` has: all that a record says but its offset.

    A key counts once for each partition, unless both snapshots have one record of it over all partitions. `tell` is
    told each key that differs, `read` the bytes of each file that was read. There is a bucket for each `bucket_bytes`
    of the files. Raises UsageError if the snapshots cannot be compared, FoldError if a file is damaged or missing,
    StorageError, OSError if there is no room for the buckets.
    """
    sides = _Side(old), _Side(new)
    with_place = _with_place(sides)
    count = min(_MOST_BUCKETS, sum(side.bytes for side in sides) // bucket_bytes + 1)
    counts = dict.fromkeys((ADDED, CHANGED, REMOVED, ""), 0)
    with ExitStack() as stack:
        dealt = [_deal(side.rows(with_place=with_place, read=read), count, stack) for side in sides]
        for before, after in zip(*dealt, strict=True):
            for change, rows in _compared(_whole(before), _whole(after)):
                counts[change] += rows.num_rows
                if change and tell is not None:
                    places = rows[_PARTITION].to_pylist() if with_place else repeat(None, rows.num_rows)
                    for place, key in zip(places, rows[_KEY].to_pylist(), strict=True):
                        tell(change, place, key)
    return SnapshotDiff(
        old=old.location,
        new=new.location,
        added=counts[ADDED],
        changed=counts[CHANGED],
        removed=counts[REMOVED],
        same=counts[""],
    )


def _with_place(sides: tuple[_Side, _Side]) -> bool:
    """Returns whether a key counts once for each partition. Raises UsageError if it should, and none are named."""
    old, new = sides
    if old.is_typed != new.is_typed:
        raise UsageError(
            "One of both snapshots has typed columns, the other bytes: their values cannot be compared.",
            "Compare two of one format.",
        )
    if all(side.said.scope is not UNSET for side in sides) or all(len(side.said.source_offsets) <= 1 for side in sides):
        return False
    if not all(side.has_place for side in sides):
        raise UsageError(
            "A key may be in several partitions, and a snapshot has no column _partition.",
            "Put _partition into snapshot.metadata.columns, and take another snapshot.",
        )
    return True


def _key_bytes(keys: pa.Array) -> pa.Array:
    """Returns keys as bytes: text in UTF-8, other types as JSON, without fields that only other keys have."""
    if pa.types.is_binary(keys.type):
        return keys
    if pa.types.is_string(keys.type):
        return keys.cast(pa.binary())
    encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string", order="sorted")
    return pa.array([encoder.encode(comparable(key)) for key in listed(keys)], pa.binary())


def _deal(rows: Iterable[pa.Table], count: int, stack: ExitStack) -> list[SpillFile | None]:
    """Deals `rows` to `count` buckets by their keys; None stands for all buckets if there is no row."""
    buckets: list[SpillFile] = []
    for table in rows:
        buckets = buckets or [stack.enter_context(closing(SpillFile(table.schema))) for _ in range(count)]
        numbers = plain_hashes(table[_KEY]) % np.uint64(count)
        order = np.argsort(numbers, kind="stable")
        ends = np.searchsorted(numbers[order], np.arange(count + 1))
        (batch,) = table.take(pa.array(order)).combine_chunks().to_batches() or [None]
        for number, bucket in enumerate(buckets):
            start, end = int(ends[number]), int(ends[number + 1])
            if batch is not None and end > start:
                bucket.add(batch.slice(start, end - start))
    return [*buckets] if buckets else [None] * count


def _whole(bucket: SpillFile | None) -> pa.Table:
    """Reads a bucket."""
    batches = [] if bucket is None else list(bucket.read())
    return pa.Table.from_batches(batches) if batches else pa.table({_PARTITION: _EMPTY_PLACES, _KEY: _EMPTY_KEYS})


_EMPTY_PLACES: Final = pa.array([], pa.int32())
_EMPTY_KEYS: Final = pa.array([], pa.binary())


def _compared(old: pa.Table, new: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yields the keys of a bucket by what has become of them; the empty text stands for nothing."""
    sides = [
        table.select([_PARTITION, _KEY]).append_column(name, pa.array(np.arange(table.num_rows)))
        for name, table in (("old", old), ("new", new))
    ]
    joined = sides[0].join(sides[1], [_PARTITION, _KEY], join_type="full outer", use_threads=False).combine_chunks()
    yield ADDED, joined.filter(pc.is_null(joined["old"]))
    yield REMOVED, joined.filter(pc.is_null(joined["new"]))
    both = joined.filter(pc.and_(pc.is_valid(joined["old"]), pc.is_valid(joined["new"])))
    differs = np.zeros(both.num_rows, bool)
    for name in sorted({*old.column_names, *new.column_names} - {_PARTITION, _KEY}):
        differs |= _differs(_taken(old, name, both["old"]), _taken(new, name, both["new"]))
    yield CHANGED, both.filter(pa.array(differs))
    yield "", both.filter(pa.array(~differs))


def _taken(table: pa.Table, name: str, rows: pa.ChunkedArray) -> pa.Array:
    """Returns the values of these rows; null in a column that the snapshot has not."""
    if name not in table.column_names:
        return pa.nulls(len(rows))
    taken = table[name].take(rows).combine_chunks()
    return taken.cast(pa.binary()) if pa.types.is_string(taken.type) else taken


def _differs(old: pa.Array, new: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Returns which values differ; NaN is equal to NaN."""
    if _is_empty(old) and _is_empty(new):
        return np.zeros(len(old), bool)
    try:
        unequal = pc.not_equal(old, new)
        if pa.types.is_floating(old.type) and pa.types.is_floating(new.type):
            unequal = pc.and_(unequal, pc.invert(pc.and_(pc.is_nan(old), pc.is_nan(new))))
    except pa.ArrowException:  # of types that Arrow does not compare, nested ones among them
        pairs = zip(listed(old), listed(new), strict=True)
        return np.array([told_of(a) != told_of(b) for a, b in pairs], bool)
    one_is_null = pc.xor(pc.is_valid(old), pc.is_valid(new))
    return pc.or_(pc.fill_null(unequal, False), one_is_null).to_numpy(zero_copy_only=False)  # noqa: FBT003  # its name


def _is_empty(values: pa.Array) -> bool:
    """Returns whether all lists are empty, as most headers are."""
    return pa.types.is_list(values.type) and values.null_count == 0 and len(values.flatten()) == 0
