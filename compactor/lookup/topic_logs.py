"""Finds the best kept record of each of some keys over the logs of a topic (compaction.scope=topic).

Of two records the one with the higher value of the order wins, then that of the higher partition: within a log the last
one is the best, as `ingest.admission` has let no other in. What a generation begins with, below offset 0, loses to
every record of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from numpy.typing import NDArray

from compactor.errors import LookUpError
from compactor.fold.latest_per_key import is_foldable
from compactor.lookup.latest import FOUND_BY, VERIFIED, LookUpRoom, latest_records
from compactor.model.log import PartitionLog
from compactor.model.order import columns_of, ranks_of, values_of
from compactor.model.record import RUN, TopicPartition, as_compared
from compactor.storage.base import Storage

HELD_BYTES: Final = 64 << 20
"""Bytes of one log's records that are held while keys are looked up: as many as of the records that ask. If they have
more, as their headers are large, fewer keys are looked up at a time."""

NOWHERE: Final = -1
"""Stands for no log."""

# Not by `from_pylist`, which would load pandas: 0.2 s of each command's start.
_NO_ROWS: Final = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in RUN], schema=RUN)


class Best(NamedTuple):
    """The best record of each of some keys: the value of its order, its log's place (NOWHERE: none), its offset."""

    value: pa.Array
    log: NDArray[np.int64]
    offset: NDArray[np.int64]


class TopicLogs(Struct, frozen=True, kw_only=True):
    """The `logs` of topics, by name, each as far as its records count; `order` says which of two wins.

    It is pickled into tasks.
    """

    storage: Storage
    order: str
    logs: Mapping[str, tuple[PartitionLog, ...]]

    def best(self, topic: str, keys: pa.Array, *, but: int | None = None) -> Best:
        """Returns the best record that the logs of `topic` have of each of `keys`, as compared.

        `but`: the partition of a log that is not asked. Raises StorageError, DamagedFileError, and MissingFileError if
        a file is gone.
        """
        logs = self.logs[topic]
        best = _none(len(keys), self.order)
        for place in sorted(range(len(logs)), key=lambda place: logs[place].partition):
            if logs[place].partition != but and logs[place].kept:
                best = _better(best, self._of_log(logs[place], place, keys))
        return best

    def are_late(self, tp: TopicPartition, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Returns which of `rows`, survivors of the log of `tp`, lose to a record of their key in another log.

        `rows` have the columns by which keys are compared, `columns_of` the order, and `rejected`: what was rejected
        is never late. Raises as `best`.
        """
        late = np.zeros(rows.num_rows, np.bool_)
        asked = np.flatnonzero(is_foldable(rows).to_numpy(zero_copy_only=False))
        if not len(asked) or len(self.logs.get(tp.topic, ())) < 2:
            return late
        own = rows if len(asked) == rows.num_rows else rows.take(pa.array(asked))
        best = self.best(tp.topic, as_compared(own)["key"], but=tp.partition)
        partitions = np.array([log.partition for log in self.logs[tp.topic]])[best.log]
        own_ranks, best_ranks = _ranked(values_of(own, self.order), own["offset"].to_numpy(), best)
        wins = (best_ranks > own_ranks) | ((best_ranks == own_ranks) & (partitions > tp.partition))
        late[asked] = (best.log != NOWHERE) & wins
        return late

    def _of_log(self, log: PartitionLog, place: int, keys: pa.Array) -> Best:
        names = tuple(dict.fromkeys((*FOUND_BY, *columns_of(self.order))))
        room = LookUpRoom(HELD_BYTES if len(keys) > 1 else None)
        try:
            kept = latest_records(self.storage, log, keys, VERIFIED, room, names).combine_chunks()
        except LookUpError:
            middle = len(keys) // 2
            return _joined(self._of_log(log, place, part) for part in (keys[:middle], keys[middle:]))
        batches = kept.to_batches()
        if not batches:
            return _none(len(keys), self.order)
        (rows,) = batches
        at = pc.index_in(keys, as_compared(rows)["key"])
        is_there = at.is_valid().to_numpy(zero_copy_only=False)
        offsets = pc.fill_null(rows["offset"].take(at), 0).to_numpy()
        return Best(values_of(rows, self.order).take(at), np.where(is_there, place, NOWHERE), offsets)


def _none(count: int, order: str) -> Best:
    nothing = values_of(_NO_ROWS.select(list(columns_of(order))), order)
    return Best(pa.nulls(count, nothing.type), np.full(count, NOWHERE), np.zeros(count, np.int64))


def _joined(parts: Iterable[Best]) -> Best:
    values, logs, offsets = zip(*parts, strict=True)
    return Best(pa.concat_arrays(values), np.concatenate(logs), np.concatenate(offsets))


def _better(best: Best, other: Best) -> Best:
    """Returns for each key the better of two records, that of `other`, a higher partition, if they are equal."""
    if (other.log == NOWHERE).all():
        return best
    best_ranks, other_ranks = _ranked(best.value, best.offset, other)
    wins = (other.log != NOWHERE) & ((best.log == NOWHERE) | (other_ranks >= best_ranks))
    return Best(
        pc.if_else(pa.array(wins), other.value, best.value),
        np.where(wins, other.log, best.log),
        np.where(wins, other.offset, best.offset),
    )


def _ranked(values: pa.Array, offsets: NDArray[np.int64], other: Best) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the ranks of some records and of `other`, with those of what a generation begins with below all."""
    own_ranks, other_ranks, _ = ranks_of(values, other.value)
    return np.where(offsets < 0, -1, own_ranks), np.where(other.offset < 0, -1, other_ranks)
