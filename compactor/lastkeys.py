"""Which of many rows are the last of their key, with no more in memory than the keys that differ."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from compactor.fold import LOG

_ROWS: Final = 1_000_000
"""So many rows wait at least before they are folded into the keys that are known."""

_ROW: Final = "row"


class LastKeys:
    """The last row of every key of rows that come in order, by slice (`fold.LOG`). Rows are counted from 0.

    Left out are rows without a key and those that were rejected, as in `fold.survivors`.
    """

    def __init__(self, most_keys: int, most_bytes: int) -> None:
        self.rows = 0
        self._most_keys = most_keys
        self._most_bytes = most_bytes
        self._held: list[pa.RecordBatch] = []
        self._waiting = 0
        self._known = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Takes the next rows (columns LOG, key, rejected); False where there are more keys than may be held."""
        rows = pa.array(np.arange(self.rows, self.rows + batch.num_rows))
        self.rows += batch.num_rows
        found = pa.RecordBatch.from_arrays([batch[LOG], batch["key"], rows], names=[LOG, "key", _ROW])
        folds = pc.and_(pc.is_null(batch["rejected"]), pc.is_valid(batch["key"]))
        self._held.append(found if pc.all(folds, min_count=0).as_py() else found.filter(folds))
        self._waiting += batch.num_rows
        if self._waiting < max(min(_ROWS, self._most_keys), self._known):
            return True
        keys = self._fold()
        return keys.num_rows <= self._most_keys and keys["key"].nbytes <= self._most_bytes

    def last(self) -> NDArray[np.bool_]:
        """Of every row whether it is the last of its key."""
        kept = np.zeros(self.rows, np.bool_)
        kept[self._fold()[_ROW].to_numpy()] = True
        return kept

    def _fold(self) -> pa.Table:
        """One row for each key, the last; that is what is held from now on."""
        if not self._held:
            return pa.table({LOG: pa.array([], pa.int32()), "key": pa.array([], pa.binary()), _ROW: _NO_ROWS})
        table = pa.Table.from_batches(self._held)
        self._held.clear()
        # One thread: several do not make it sooner, and beside other tasks they take the processor from them.
        folded = table.group_by([LOG, "key"], use_threads=False).aggregate([(_ROW, "max")])
        keys = folded.rename_columns([LOG, "key", _ROW]).combine_chunks()
        self._held = keys.to_batches()
        self._known, self._waiting = keys.num_rows, 0
        return keys


_NO_ROWS: Final = pa.array([], pa.int64())
