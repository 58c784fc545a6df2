"""What keys are compared by (`compaction.key.identity`), of one key and of many at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.data.unwrapping import Rows

LONGEST_AT_ONCE: Final = 1_024
"""Bytes of a key, and of its identity, up to which it is compared with many others at once. An identity may be far
longer than its key, and those of a whole batch are in memory together. Longer ones are counted as they are made."""

Places = NDArray[np.intp]
"""Rows of a batch."""


class Compared(NamedTuple):
    """What a key is compared by, None if that is the key itself; and its `key_encoding` (`record.RUN`)."""

    identity: bytes | None
    encoding: str | None


PlainCompared = tuple[bytes | None, str | None]
"""The fields of a `Compared`, as they are kept. Python's collector passes over such tuples once it has seen them, and
not over those of a class: 65,536 took it 30 ms each time, in which no other thread runs."""


class ComparedKeys(NamedTuple):
    """What many keys are compared by: a `Compared` by columns for each key that `is_known`."""

    identity: pa.BinaryArray
    encoding: pa.StringArray
    is_known: Rows

    def each(self) -> list[Compared | None]:
        """Returns what each key is compared by; None if that is not known."""
        rows = zip(self.identity.to_pylist(), self.encoding.to_pylist(), self.is_known.tolist(), strict=True)
        return [Compared(identity, encoding) if is_known else None for identity, encoding, is_known in rows]


class ComparedParts:
    """Puts together what `count` keys are compared by, of parts that were found in different ways."""

    def __init__(self, count: int) -> None:
        self._is_known = np.zeros(count, np.bool_)
        # The rows of each part, and its columns.
        self._rows: list[Places] = []
        self._identities: list[pa.Array] = []
        self._encodings: list[pa.Array] = []

    @property
    def rest(self) -> Places:
        """The rows that are in no part yet."""
        return np.flatnonzero(~self._is_known)

    def add_column(self, rows: Places, identities: pa.Array | None, encoding: str | None) -> None:
        """Adds keys of one encoding. None as `identities`: they are compared by themselves.

        A key with an identity that is null (no such key may be added with None), or too long, stays unknown.
        """
        if identities is None:
            identities = pa.nulls(len(rows), pa.binary())
        else:
            is_short = pc.less_equal(pc.binary_length(identities), LONGEST_AT_ONCE).fill_null(fill_value=False)
            if is_short.true_count < len(rows):
                rows, identities = rows[is_short.to_numpy(zero_copy_only=False)], identities.filter(is_short)
        self._add(rows, identities, pa.repeat(pa.scalar(encoding, pa.string()), len(rows)))

    def add_each(self, rows: Places, compared: Sequence[PlainCompared | None]) -> None:
        """Adds what was found for each key by itself, which is short; those with None stay unknown."""
        own = [each for each in compared if each is not None]
        identities = pa.array([identity for identity, _ in own], pa.binary())
        encodings = pa.array([encoding for _, encoding in own], pa.string())
        self._add(rows[np.array([each is not None for each in compared], np.bool_)], identities, encodings)

    def _add(self, rows: Places, identities: pa.Array, encodings: pa.Array) -> None:
        if len(rows):
            self._is_known[rows] = True
            self._rows.append(rows)
            self._identities.append(identities)
            self._encodings.append(encodings)

    def whole(self) -> ComparedKeys:
        """Returns what all keys are compared by."""
        count = len(self._is_known)
        if not self._rows:
            return ComparedKeys(pa.nulls(count, pa.binary()), pa.nulls(count, pa.string()), self._is_known)
        rows = self._rows[0] if len(self._rows) == 1 else np.concatenate(self._rows)
        identities, encodings = pa.concat_arrays(self._identities), pa.concat_arrays(self._encodings)
        if len(self._rows) > 1 or len(rows) < count:
            at = np.zeros(count, np.int64)
            at[rows] = np.arange(len(rows))
            places = pa.array(at, mask=~self._is_known)
            identities, encodings = identities.take(places), encodings.take(places)
        return ComparedKeys(identities, encodings, self._is_known)
