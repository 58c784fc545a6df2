"""Fills placeholders in the values of a portion from the records before them: steps 3c and 3d of docs/protocol.md.

The record before one is the last of its key at a lower offset: of the portion, or else what the log keeps. Each record
is filled before it is kept, so the one before it has all that any earlier one had.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from compactor.errors import PortionTooLargeError, StoppedError
from compactor.fold.latest_per_key import is_foldable
from compactor.ingest.appends import Batch
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

_NEEDED: Final = ("offset", "key", KEY_IDENTITY, "rejected", "value", "headers")

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
    logs = state.by_partition()
    filled = {
        tp: _Portion(storage, logs[tp], parts, fill, held_bytes, counts).filled(stopped)
        for tp, parts in parts_by_log(batch.parts).items()
        if tp in logs
    }
    offsets = {tp: np.sort(np.fromiter(values, np.int64, len(values))) for tp, values in filled.items()}
    return rewritten(storage, batch, target, "ingest.fill", offsets, partial(_with_values, filled)), counts


class _Portion:
    """What a portion brings to one log: `parts`, of which what lies below the end of `log` is ingested already."""

    def __init__(
        self,
        storage: Storage,
        log: PartitionLog,
        parts: Sequence[FileStats],
        fill: Fill,
        held_bytes: int,
        counts: Counter[str],
    ) -> None:
        self._storage = storage
        self._log = log
        self._range = brought(log, parts)
        self._fill = fill
        self._counts = counts
        # How many more bytes of values may be held.
        self._room = held_bytes
        self._held_bytes = held_bytes

    def filled(self, stopped: Callable[[], bool]) -> Values:
        """Returns the values that were filled, by offset. Raises StoppedError once `stopped` returns True."""
        keys = self._keys()
        if not len(keys):
            return {}
        before = self._kept(keys)
        values: Values = {}
        for batch in self._read():
            rows = batch.filter(pc.is_in(as_compared(batch)["key"], keys))
            may_need = self._fill.may_need(rows["value"]).to_pylist()
            columns = (rows["offset"], as_compared(rows)["key"], rows["value"], rows["headers"])
            lists = (column.to_pylist() for column in columns)
            for may, offset, key, value, pairs in zip(may_need, *lists, strict=True):
                headers = _pairs(pairs)
                if may and stopped():
                    raise StoppedError(f"{self._log.tp}: a stop came while values were filled.", _LATER)
                if may:
                    before[key] = self._after(offset, value, headers, before.get(key), values)
                else:
                    before[key] = self._hold(value), headers
        return values

    def _after(
        self, offset: int, value: bytes, headers: Headers, before: tuple[bytes | None, Headers] | None, values: Values
    ) -> tuple[bytes, Headers]:
        """Fills one value from the one before it; returns what comes before the next record of the key."""
        made = self._fill.fill(value, headers, *(before or (None, ())))
        self._counts[LEFT] += made.left > 0
        self._counts[UNREADABLE] += made.is_unreadable
        if made.value != value:
            self._counts[FILLED] += 1
            values[offset] = made.value
        self._hold(made.value)
        return made.value, headers

    def _hold(self, value: bytes | None) -> bytes | None:
        self._room -= len(value or b"")
        if self._room < 0:
            raise PortionTooLargeError(
                f"{self._log.tp}: filling the records from offset {self._log.end} on takes more than "
                f"{self._held_bytes:,} bytes of their values at once.",
                "Set max.offsets.per.trigger, so that fewer records are taken at a time.",
            )
        return value

    def _keys(self) -> pa.Array:
        """Returns the keys, as compared, of records that may hold a placeholder."""
        keys = [
            as_compared(batch)["key"].filter(self._fill.may_need(batch["value"])).unique() for batch in self._read()
        ]
        return pa.chunked_array(keys, pa.binary()).unique()

    def _read(self) -> Iterator[pa.RecordBatch]:
        """Yields the records that may be the latest of a key, by offset."""
        for piece in self._range.file_ranges:
            VERIFIED.of(self._storage, piece.file)
        for batch in read(self._storage, self._range, _NEEDED):
            yield batch.filter(is_foldable(batch))

    def _kept(self, keys: pa.Array) -> dict[bytes, tuple[bytes | None, Headers]]:
        """Returns value and headers of what the log keeps of `keys`."""
        with needed_of(self._log):
            kept = latest_records(self._storage, self._log, keys, VERIFIED, LookUpRoom(None, self._check))
        rows = zip(*(as_compared(kept)[name].to_pylist() for name in ("key", "value", "headers")), strict=True)
        return {key: (self._hold(value), _pairs(headers)) for key, value, headers in rows}

    def _check(self, held: int) -> None:
        """Raises IngestError before more than there is room for is read."""
        if held > self._room:
            self._room = 0
            self._hold(b" ")


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
