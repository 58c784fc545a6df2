"""Fills placeholders in the values of a portion from the records before them: steps 3c and 3d of docs/protocol.md.

The record before one is the last of its key at a lower offset: of the portion, or else what the log keeps. Each record
is filled before it is kept, so the one before it has all that any earlier one had. If a key has one winner over a
topic, the record before is that of any of the topic's logs that comes right before it by the order (`earlier_records`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.errors import PortionTooLargeError, StoppedError
from compactor.fold.latest_per_key import is_foldable
from compactor.ingest.appends import Batch
from compactor.ingest.earlier_records import InSequence, Sequenced, TopicOrder, by_offset, columns
from compactor.ingest.kept_records import brought, needed_of
from compactor.ingest.rewrite import parts_by_log, rewritten
from compactor.lookup.latest import VERIFIED, LookUpRoom, latest_records
from compactor.model.log import PartitionLog
from compactor.model.record import KEY_IDENTITY, RUN, TopicPartition, as_compared
from compactor.model.state import CatalogState
from compactor.ports import Fill, Headers
from compactor.runs.file_stats import FileStats
from compactor.runs.reader import read
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage

HELD_BYTES: Final = 256 << 20
"""Bytes of values that a portion may need at once: those of records with a placeholder, and of the ones before them. A
portion that needs more is read again in smaller ones, as the worker has other connectors."""

FILLED: Final = "records_filled"
LEFT: Final = "records_left_unfilled"
UNREADABLE: Final = "records_unreadable_to_fill"
"""Names of what is counted: records of which a field was filled, those that hold a placeholder still, and those that
may hold one, and cannot be read."""

_LATER: Final = "Nothing of the portion was taken; it is read again when the connector runs again."

_AT_ONCE: Final = 1_000
"""Records that are made objects of Python's at a time."""

Values = dict[int, bytes]
"""Filled values by their offsets."""


def with_filled(
    storage: Storage,
    state: CatalogState,
    batch: Batch,
    target: RunTarget,
    fill: Fill,
    *,
    stopped: Callable[[], bool] = lambda: False,
    held_bytes: int = HELD_BYTES,
) -> tuple[Batch, Counter[str]]:
    """Returns `batch` with filled values, in files of their own if there are any, and how many were filled and not.

    Files are written to `target` but with names of the batch's job. Raises PortionTooLargeError for a portion that
    needs more than `held_bytes`; StoppedError once `stopped` returns True; DamagedFileError, MissingFileError,
    StorageError; and what `fill` raises.
    """
    counts: Counter[str] = Counter({FILLED: 0, LEFT: 0, UNREADABLE: 0})
    parts = parts_by_log(batch.parts)
    filled: dict[TopicPartition, Values] = {}
    for logs in _together(state, parts):
        order = state.record_order if state.is_of_topics else None
        filled |= _Portion(storage, logs, parts, order, fill, held_bytes, counts).filled(stopped)
    offsets = {tp: np.sort(np.fromiter(values, np.int64, len(values))) for tp, values in filled.items()}
    return rewritten(storage, batch, target, "ingest.fill", offsets, partial(_with_values, filled)), counts


def _together(state: CatalogState, parts: Mapping[TopicPartition, object]) -> Iterator[Sequence[PartitionLog]]:
    """Yields the logs that `parts` are of, each alone; of topics with one winner a key all logs of each."""
    if state.is_of_topics:
        yield from (state.logs_of(topic) for topic in dict.fromkeys(tp.topic for tp in parts))
    else:
        logs = state.by_partition()
        yield from ((logs[tp],) for tp in parts if tp in logs)


class _Portion:
    """What a portion brings to `logs`: `parts`, of which what lies below the ends of the logs is ingested already.

    `order` is that of the topic that they are all logs of; None: one log, by offset.
    """

    def __init__(
        self,
        storage: Storage,
        logs: Sequence[PartitionLog],
        parts: Mapping[TopicPartition, Sequence[FileStats]],
        order: str | None,
        fill: Fill,
        held_bytes: int,
        counts: Counter[str],
    ) -> None:
        self._storage = storage
        self._logs = logs
        self._ranges = [brought(log, parts.get(log.tp, ())) for log in logs]
        self._order = order
        self._fill = fill
        self._counts = counts
        # How many more bytes of values may be held.
        self._room = held_bytes
        self._held_bytes = held_bytes

    def filled(self, stopped: Callable[[], bool]) -> dict[TopicPartition, Values]:
        """Returns the values that were filled, by offset. Raises StoppedError once `stopped` returns True."""
        keys = self._keys()
        values: dict[TopicPartition, Values] = {}
        if not len(keys):
            return values
        portion = self._sequence(keys)
        before: dict[bytes, tuple[bytes | None, Headers]] = {}
        for log, fills, offset, key, value, pairs in self._one_by_one(portion):
            earlier = before.get(key, (None, ()))
            if fills and stopped():
                raise StoppedError(f"{self._logs[log].tp}: a stop came while values were filled.", _LATER)
            own = values.setdefault(self._logs[log].tp, {})
            before[key] = self._after(offset, value, pairs, earlier, own) if fills else value, pairs
        return values

    def _after(
        self, offset: int, value: bytes, headers: Headers, before: tuple[bytes | None, Headers], values: Values
    ) -> bytes:
        """Fills one value from the one before it; returns what comes before the next record of the key."""
        made = self._fill.fill(value, headers, *before)
        self._counts[LEFT] += made.left > 0
        self._counts[UNREADABLE] += made.is_unreadable
        if made.value != value:
            self._counts[FILLED] += 1
            values[offset] = made.value
            self._hold(len(made.value))
        return made.value

    def _hold(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            ends = ", ".join(f"{log.tp} from offset {log.end}" for log in self._logs[:3])
            raise PortionTooLargeError(
                f"{ends}: filling the records from there on takes more than {self._held_bytes:,} bytes of their values "
                "at once.",
                "Set max.offsets.per.trigger, so that fewer records are taken at a time.",
            )

    def _keys(self) -> pa.Array:
        """Returns the keys, as compared, of records that may hold a placeholder."""
        names = ("offset", "key", KEY_IDENTITY, "rejected", "value")
        keys = [
            as_compared(batch)["key"].filter(self._fill.may_need(batch["value"])).unique()
            for place in range(len(self._logs))
            for batch in self._read(place, names)
        ]
        return pa.chunked_array(keys, pa.binary()).unique()

    def _read(self, place: int, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the records of a log that may be the latest of a key, by offset."""
        for piece in self._ranges[place].file_ranges:
            VERIFIED.check_file(self._storage, piece.file)
        for batch in read(self._storage, self._ranges[place], names):
            yield batch.filter(is_foldable(batch))

    def _sequence(self, keys: pa.Array) -> InSequence:
        """Returns the records of `keys`, with what the logs keep of them, in the order in which they are filled."""
        names = columns(self._order)
        schema = pa.schema([RUN.field(name) for name in names])
        parts: list[tuple[pa.Table, int, bool]] = []
        for place, log in enumerate(self._logs):
            own = [batch.filter(pc.is_in(as_compared(batch)["key"], keys)) for batch in self._read(place, names)]
            table = pa.Table.from_batches(own, schema)
            self._hold(pc.sum(pc.binary_length(table["value"])).as_py() or 0)
            parts += [(table, place, False), (self._kept(log, keys, names), place, True)]
        records = Sequenced.of(parts, names)
        if self._order is None:
            return by_offset(records)
        order = TopicOrder(self._storage, self._logs, self._order, self._check)
        return order.sequence(records, self._may_need(records))

    def _may_need(self, records: Sequenced) -> NDArray[np.bool_]:
        """Returns which of `records` are of the portion, and may hold a placeholder."""
        may = self._fill.may_need(records.rows["value"].combine_chunks())
        return ~records.is_kept & np.asarray(may.to_numpy(zero_copy_only=False), np.bool_)

    def _one_by_one(self, portion: InSequence) -> Iterator[tuple[int, bool, int, bytes, Any, Headers]]:
        """Yields for each record of the sequence its log, whether it is filled, offset, key, value and headers."""
        records = portion.records
        fills = self._may_need(records)
        order = np.argsort(portion.places)
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            rows = records.rows.take(pa.array(some))
            columns_of_rows = (as_compared(rows)["key"], rows["value"], rows["headers"])
            lists = (column.to_pylist() for column in columns_of_rows)
            numbers = (each[some].tolist() for each in (records.log, fills))
            for log, is_filled, offset, key, value, pairs in zip(
                *numbers, rows["offset"].to_pylist(), *lists, strict=True
            ):
                yield log, is_filled, offset, key, value, _pairs(pairs)

    def _kept(self, log: PartitionLog, keys: pa.Array, names: Sequence[str]) -> pa.Table:
        """Returns what a log keeps of `keys`."""
        with needed_of(log):
            kept = latest_records(self._storage, log, keys, VERIFIED, LookUpRoom(None, self._check), names)
        self._hold(pc.sum(pc.binary_length(kept["value"])).as_py() or 0)
        return kept

    def _check(self, held: int) -> None:
        """Raises PortionTooLargeError before more than there is room for is read."""
        if held > self._room:
            self._hold(self._room + 1)


def _pairs(headers: list[Mapping[str, Any]] | None) -> Headers:
    return tuple((header["key"], header["value"]) for header in headers or ())


def _with_values(
    filled: Mapping[TopicPartition, Values], tp: TopicPartition, records: pa.RecordBatch
) -> pa.RecordBatch:
    """Returns `records` with the values that were filled."""
    values = filled[tp]
    is_filled = pc.is_in(records["offset"], pa.array(values, pa.int64()))
    own = [values[offset] for offset in records["offset"].filter(is_filled).to_pylist()]
    replaced = pc.replace_with_mask(records["value"], is_filled, pa.array(own, pa.binary()))
    return records.set_column(records.schema.get_field_index("value"), RUN.field("value"), replaced)
