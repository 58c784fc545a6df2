"""Finds what comes before each record of a portion: of the portion itself, and of what logs keep (step 3c).

In one log that goes by offset. If a key has one winner over a topic it goes by the order, over all logs of the topic:
then what a log keeps of a key may come after a record of the portion, and an earlier one that waits to be published
may come before it. Of what the logs have below `published` the winner alone counts: a clean may take the others at any
moment, and a record of the portion that loses to it is never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold.latest_per_key import is_foldable
from compactor.ingest.kept_records import needed_of
from compactor.lookup.latest import VERIFIED, LookUpRoom, latest_records
from compactor.model.log import PartitionLog, below
from compactor.model.order import columns_of, ranks_of, values_of
from compactor.model.record import KEY_IDENTITY, RUN, as_compared
from compactor.runs.reader import read
from compactor.runs.scan import between
from compactor.storage.base import Storage

NEEDED: Final = ("offset", "key", KEY_IDENTITY, "rejected", "value", "headers")


def columns(order: str | None) -> tuple[str, ...]:
    """Returns the columns of record.RUN that are read; `order` None: by offset, of one log."""
    return tuple(dict.fromkeys((*NEEDED, *(columns_of(order) if order else ()))))


class Sequenced(NamedTuple):
    """Records (`columns`) with the place of the log of each, and whether it was kept before the portion."""

    rows: pa.Table
    log: NDArray[np.int64]
    is_kept: NDArray[np.bool_]

    @classmethod
    def of(cls, parts: Sequence[tuple[pa.Table, int, bool]], names: Sequence[str]) -> Sequenced:
        """Joins tables with `names`, each of one log."""
        schema = pa.schema([RUN.field(name) for name in names])
        tables = [table.select(names) for table, _, _ in parts]
        counts = [table.num_rows for table in tables]
        return cls(
            pa.concat_tables([pa.Table.from_batches([], schema), *tables]).combine_chunks(),
            np.repeat(np.array([log for _, log, _ in parts], np.int64), counts),
            np.repeat(np.array([is_kept for _, _, is_kept in parts], np.bool_), counts),
        )

    def filter(self, wanted: NDArray[np.bool_]) -> Sequenced:
        """Returns the `wanted` of them."""
        return Sequenced(self.rows.filter(pa.array(wanted)), self.log[wanted], self.is_kept[wanted])

    def with_others(self, others: Sequenced) -> Sequenced:
        """Returns both."""
        rows = pa.concat_tables([self.rows, others.rows]).combine_chunks()
        return Sequenced(rows, np.append(self.log, others.log), np.append(self.is_kept, others.is_kept))


class InSequence(NamedTuple):
    """The records of a portion that have the keys of those to be filled, and what the logs keep of these keys.

    `places` are those of all of them in their sequence.
    """

    records: Sequenced
    places: NDArray[np.int64]


def by_offset(records: Sequenced) -> InSequence:
    """Returns the sequence of one log: what is kept comes before all of the portion."""
    places = np.empty(len(records.log), np.int64)
    places[np.lexsort((records.rows["offset"].to_numpy(), ~records.is_kept))] = np.arange(len(places))
    return InSequence(records, places)


class TopicOrder:
    """The sequence of the records of `logs`, all of one topic, by `order`; `holding` is told of bytes that are held."""

    def __init__(
        self, storage: Storage, logs: Sequence[PartitionLog], order: str, holding: Callable[[int], None]
    ) -> None:
        self._storage = storage
        self._logs = logs
        self._order = order
        self._holding = holding
        self._published = np.array([log.published for log in logs], np.int64)
        self._partitions = np.array([log.partition for log in logs], np.int64)

    def sequence(self, records: Sequenced, may_need: NDArray[np.bool_]) -> InSequence:
        """Returns the sequence of `records`, with what else of their keys waits to be published.

        `may_need`: which of them may hold a placeholder. Raises DamagedFileError, MissingFileError, StorageError.
        """
        places, keys = self._places(records), self._keys(records)
        first = np.full(keys.max(initial=-1) + 1, len(places))
        np.minimum.at(first, keys[may_need], places[may_need])
        offsets = records.rows["offset"].to_numpy()
        comes_later = records.is_kept & (places > first[keys]) & (offsets >= self._published[records.log])
        if comes_later.any():
            older = self._older(records, comes_later)
            records = records.filter(~comes_later).with_others(older)
            places, keys = self._places(records), self._keys(records)
            offsets = records.rows["offset"].to_numpy()
        published = records.is_kept & (offsets < self._published[records.log])
        last = np.full(keys.max(initial=-1) + 1, -1)
        np.maximum.at(last, keys[published], places[published])
        counts = ~published | (places == last[keys])
        return InSequence(records.filter(counts), places[counts])

    def _places(self, records: Sequenced) -> NDArray[np.int64]:
        rows = records.rows.to_batches()[0] if records.rows.num_rows else None
        places = np.empty(len(records.log), np.int64)
        if rows is None:
            return places
        values, offsets = values_of(rows, self._order), rows["offset"].to_numpy()
        ranks, _, _ = ranks_of(values, pa.nulls(0, values.type))
        ranks = np.where(offsets < 0, -1, ranks)
        places[np.lexsort((offsets, self._partitions[records.log], ranks))] = np.arange(len(places))
        return places

    @staticmethod
    def _keys(records: Sequenced) -> NDArray[np.int64]:
        """Returns a number for the key of each record, the same for equal ones."""
        compared = as_compared(records.rows)["key"].combine_chunks()
        codes = compared.dictionary_encode().indices
        return np.asarray(codes.to_numpy(zero_copy_only=False), np.int64)

    def _older(self, records: Sequenced, comes_later: NDArray[np.bool_]) -> Sequenced:
        """Returns what the logs keep of the keys of the records that come later, those above `published` each."""
        compared = as_compared(records.rows)["key"].combine_chunks()
        parts: list[tuple[pa.Table, int, bool]] = []
        names = columns(self._order)
        for place in np.unique(records.log[comes_later]).tolist():
            log, wanted = self._logs[place], comes_later & (records.log == place)
            keys = compared.filter(pa.array(wanted)).unique()
            with needed_of(log):
                waiting = list(self._waiting(log, keys, names))
                kept = latest_records(
                    self._storage, below(log, log.published), keys, VERIFIED, LookUpRoom(None, self._holding), names
                )
            schema = pa.schema([RUN.field(name) for name in names])
            parts += [(pa.Table.from_batches(waiting, schema), place, True), (kept, place, True)]
        return Sequenced.of(parts, names)

    def _waiting(self, log: PartitionLog, keys: pa.Array, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the records of `keys` that wait to be published."""
        offset_range = between(log, log.published, log.end)
        for piece in offset_range.file_ranges:
            VERIFIED.check_file(self._storage, piece.file)
        room = LookUpRoom(None, self._holding)
        batches = read(self._storage, offset_range, names)
        yield from room.counted(
            batch.filter(pc.and_(is_foldable(batch), pc.is_in(as_compared(batch)["key"], keys))) for batch in batches
        )
