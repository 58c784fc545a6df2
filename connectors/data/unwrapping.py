"""What takes the row out of each change event, as far as columns of events can be taken through it at once.

Kafka Connect hands a transform one record at a time. `ExtractNewRecordState` does so little with each that a converter
can do it for a whole batch (`Converter.unwrapper`), with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from connectors.data.schema import BITS, Field, Schema, Type

ENVELOPE: Final = ".Envelope"
"""What the name of an event's schema ends with."""
BEFORE: Final = "before"
AFTER: Final = "after"
"""The fields of an event that hold the row before and after the change."""
Rows = NDArray[np.bool_]
"""Of each record of a batch, whether something is true."""
Place = tuple[str | None, str]
"""The struct that a field of an event lies in, None for the event itself, and the name of the field."""


PLAIN_TYPES: Final = frozenset({Type.STRING, Type.BOOLEAN, *BITS})
"""The types of values that headers get by columns."""


class RowAddition(NamedTuple):
    """A field or a header that a row gets, of this `schema`. It has `text`, or what lies at `place` in the event."""

    name: str
    schema: Schema
    place: Place | None = None
    text: str = ""


class RowForm(Struct, frozen=True):
    """What a row is written as: `schema` has the fields of the row, then those that are `added`.

    `replaces_nulls`: a null in a field of the row stands for the default of its schema.
    """

    schema: Schema
    added: Sequence[RowAddition] = ()
    replaces_nulls: bool = False

    @property
    def own(self) -> Sequence[Field]:
        """The fields of the row itself."""
        return self.schema.fields[: len(self.schema.fields) - len(self.added)]


class EventForms(NamedTuple):
    """What the rows after a change, and before a deletion, are written as; None: a deletion has no row.

    `headers` are added to the records of both.
    """

    changed: RowForm
    deleted: RowForm | None
    headers: Sequence[RowAddition] = ()


class Unwrapping(Struct, frozen=True):
    """Takes the field `after` out of an event, which becomes the value.

    An event with `before` alone is a delete, and becomes what `forms` says: a row, or null, which `drops_deletes`
    drops. `drops_nulls`: a null is dropped. `forms` returns what events of a schema become; None: they are no change
    events. `passes` is called with the topic of a record without a schema, which stays as it is.
    """

    drops_deletes: bool
    drops_nulls: bool
    forms: Callable[[Schema], EventForms | None]
    passes: Callable[[str], None]


class NewHeader(NamedTuple):
    """A header that is added to the records at `rows`, and its value for each, as a schema has it."""

    name: str
    schema: Schema
    rows: NDArray[np.intp]
    values: Sequence[Any]


class Unwrapped(NamedTuple):
    """What records became: `values` of those that are `done` and not `dropped`. The others are left as they are.

    Of the new headers of one record the first comes first in `headers`.
    """

    done: Rows
    dropped: Rows
    values: pa.Array
    headers: Sequence[NewHeader] = ()


class Unwrapper(Protocol):
    """Takes the rows out of many change events at once; used by one thread."""

    def of(self, topics: Sequence[str], topic_of: NDArray[np.int64], values: pa.Array, may_be_done: Rows) -> Unwrapped:
        """Returns what becomes of `values` (binary), of which only those that `may_be_done` are looked at.

        Each value is written for the topic at its place of `topic_of` in `topics`. A value with which anything is
        unusual, or of a schema that was not met before, is not done: it is read by itself. No registry is asked.
        """
