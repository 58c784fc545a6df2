"""A fill for histories: values are fields with bars between them, a question mark is one that is unavailable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from compactor.ports import Filled, Headers

NAME: Final = "unavailable"
"""What the catalog of such a history calls it."""
_MARK: Final = b"?"


def filled(value: bytes | None, earlier: bytes | None) -> bytes | None:
    """Returns `value` with what `earlier` has in place of question marks."""
    if value is None or earlier is None:
        return value
    before = dict(enumerate(earlier.split(b"|")))
    fields = enumerate(value.split(b"|"))
    return b"|".join(before.get(place, _MARK) if field == _MARK else field for place, field in fields)


class FillOfBars:
    """Fills such values (`compactor.ports.Fill`)."""

    def stop_with(self, stopped: Callable[[], bool]) -> None:
        """See Fill: it waits for nothing."""

    def close(self) -> None:
        """See Fill: it has no connections."""

    def may_need(self, values: pa.Array) -> pa.Array:
        """See Fill."""
        return pc.fill_null(pc.match_substring(values, _MARK), fill_value=False)

    def fill(self, value: bytes, headers: Headers, earlier: bytes | None, earlier_headers: Headers) -> Filled:
        """See Fill."""
        made = filled(value, earlier)
        assert made is not None
        return Filled(made, made.split(b"|").count(_MARK))
