"""What takes the row out of each change event, as far as columns of events can be taken through it at once.

Kafka Connect hands a transform one record at a time. `ExtractNewRecordState` without added fields does so little with
each that a converter can do it for a whole batch (`Converter.unwrapper`), with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from connectors.data.schema import Schema

ENVELOPE: Final = ".Envelope"
"""What the name of an event's schema ends with."""
BEFORE: Final = "before"
AFTER: Final = "after"
"""The fields of an event that hold the row before and after the change."""
Rows = NDArray[np.bool_]
"""Of each record of a batch, whether something is true."""


class Unwrapping(Struct, frozen=True):
    """Takes the field `after` out of an event, which becomes the value.

    An event with `before` alone is a delete: it becomes null, or is dropped (`drops_deletes`). A null is dropped.
    `row_schema` returns the schema of the value that events of a schema become; None: they are no change events.
    """

    drops_deletes: bool
    row_schema: Callable[[Schema], Schema | None]


class Unwrapped(NamedTuple):
    """What records became: `values` of those that are `done` and not `dropped`. The others are left as they are."""

    done: Rows
    dropped: Rows
    values: pa.Array


class Unwrapper(Protocol):
    """Takes the rows out of many change events at once; used by one thread."""

    def of(self, topics: Sequence[str], topic_of: NDArray[np.int64], values: pa.Array, may_be_done: Rows) -> Unwrapped:
        """Returns what becomes of `values` (binary), of which only those that `may_be_done` are looked at.

        Each value is written for the topic at its place of `topic_of` in `topics`. A value with which anything is
        unusual, or of a schema that was not met before, is not done: it is read by itself. No registry is asked.
        """
        ...
