"""Passes many values of JSON without schemas at once: without one no event can be told from a row.

Each is read, so that what is no JSON is left, and is rejected by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.data.bounds import DEEPEST
from connectors.data.unwrapping import Rows, Unwrapped, Unwrapping

_LONG_NUMBER: Final = r"[0-9]{19}"
"""What a whole number of more than 64 bits has in it, which is no value."""
_PLAIN: Final = r"^[\x01-\x7f]"
"""How a text begins that has no mark of its encoding."""


class PlainEvents:
    """See `Unwrapper`; `nulls` is `Converter.maybe_null` of what reads the values."""

    def __init__(self, nulls: Callable[[pa.Array], pa.BooleanArray | None], unwrapping: Unwrapping) -> None:
        self._nulls = nulls
        self._unwrapping = unwrapping
        self._decoder = msgspec.json.Decoder()

    def of(self, topics: Sequence[str], topic_of: NDArray[np.int64], values: pa.Array, may_be_done: Rows) -> Unwrapped:
        """See `Unwrapper.of`."""
        is_null = may_be_done & values.is_null().to_numpy(zero_copy_only=False)
        is_usual = pc.and_not(pc.match_substring_regex(values, _PLAIN), pc.match_substring_regex(values, _LONG_NUMBER))
        maybe_null = self._nulls(values)
        if maybe_null is not None:
            is_usual = pc.and_not(is_usual, maybe_null)
        done = may_be_done & is_usual.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(done):
            done[row] = self._is_read(values[row].as_py())
        for topic in np.unique(topic_of[done])[:1]:
            self._unwrapping.passes(topics[topic])
        return Unwrapped(done | is_null, is_null & self._unwrapping.drops_nulls, values)

    def _is_read(self, data: bytes) -> bool:
        if data.count(b"{") + data.count(b"[") > DEEPEST:
            return False
        try:
            self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return False
        return True
