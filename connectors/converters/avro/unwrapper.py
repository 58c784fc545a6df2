"""Takes the rows out of many change events in Avro at once: in Avro a row lies in its event as it is written alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from connectors.converters.avro.columns import Advance, AvroBytes, Places, columns_of, large_array
from connectors.converters.avro.reader import AvroReader
from connectors.converters.registered import MOST_IDS
from connectors.converters.wire_format import WireFormat
from connectors.data.kept import Kept
from connectors.data.schema import Schema
from connectors.data.unwrapping import AFTER, BEFORE, Rows, Unwrapped, Unwrapping
from connectors.errors import DataError
from connectors.registry.answers import SchemaId

_SECOND: Final = 2
"""The byte that says that a union's second branch follows (a zig-zag 1), which here is the row."""
_MOST_GROUPS: Final = 16
"""Schemas and topics of a batch of which the values are taken at once: each costs some 0.5 ms, and a batch has 5,000
records."""


class KnownSchemas(Protocol):
    """What a converter knows of the schemas that it has read and written before; it asks no registry for these."""

    wire: WireFormat

    def known_reader(self, schema_id: SchemaId) -> AvroReader | None:
        """Returns how data with an id is read; None if it was not read before."""
        ...

    def known_prefix(self, topic: str, schema: Schema, form: str) -> bytes | None:
        """Returns what goes before bytes of `form` that are a value of `schema`, for a record of `topic`.

        None if such a value was not written before, or is to be written otherwise. Raises DataError.
        """
        ...


class EventColumns(Struct, frozen=True):
    """How events of one schema are passed over. `parts` are the fields with their names, `row` is the row's schema.

    `most`: the bytes up to which a record takes no more memory than it may once it is read, whatever it holds.
    """

    parts: Sequence[tuple[str, Advance]]
    row: Schema
    row_form: str
    most: float


class AvroUnwrapper:
    """See `Unwrapper`."""

    def __init__(self, known: KnownSchemas, unwrapping: Unwrapping) -> None:
        self._known = known
        self._unwrapping = unwrapping
        # By the id of a schema: what read it when the columns were made, and these, None if there can be none.
        self._columns: Kept[SchemaId, tuple[AvroReader, EventColumns | None]] = Kept(MOST_IDS)

    def of(self, topics: Sequence[str], topic_of: NDArray[np.int64], values: pa.Array, may_be_done: Rows) -> Unwrapped:
        """See `Unwrapper.of`."""
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        made = _Rows(values, dropped=may_be_done & is_null)
        groups = _groups(made, self._known.wire.size, topic_of, may_be_done & ~is_null)
        for topic, rows in groups:
            self._add(made, topics[topic], rows)
        return made.unwrapped()

    def _add(self, made: _Rows, topic: str, rows: NDArray[np.intp]) -> None:
        """Adds the rows of events of one schema and topic, unless that was not met before."""
        first = int(made.begin[rows[0]])
        head = made.bytes.data[first : first + self._known.wire.size].tobytes()
        try:
            schema_id = self._known.wire.read((), head).schema_id
            columns = self._columns_of(schema_id)
            prefix = None if columns is None else self._known.known_prefix(topic, columns.row, columns.row_form)
        except DataError:  # which reading a record by itself says
            return
        if columns is not None and prefix is not None:
            small = rows[made.end[rows] - made.begin[rows] <= columns.most]
            made.add(columns, small, prefix, drops_deletes=self._unwrapping.drops_deletes)

    def _columns_of(self, schema_id: SchemaId) -> EventColumns | None:
        reader = self._known.known_reader(schema_id)
        if reader is None:
            return None
        kept = self._columns.get(schema_id)
        if kept is None or kept[0] is not reader:
            kept = self._columns.put(schema_id, (reader, self._new_columns(reader)), reader.weight)
        return kept[1]

    def _new_columns(self, reader: AvroReader) -> EventColumns | None:
        """Returns the columns of change events; None if values are others, or their row is not written as it lies."""
        if reader.some is None or reader.schema is None:
            return None
        row, form = self._unwrapping.row_schema(reader.schema), reader.some.forms.get(AFTER)
        if row is None or form is None:
            return None
        parts = [(name, columns_of(avro, is_read=is_read)) for name, avro, is_read in reader.some.fields]
        return EventColumns(parts, row, form, reader.room.safe_bytes)


class _Rows:
    """The rows of the events of a batch, as far as they were taken out."""

    def __init__(self, values: pa.Array, dropped: Rows) -> None:
        count = len(values)
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        size = int(ends[-1] - ends[0])
        own = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if size else np.zeros(1, np.uint8)
        self.bytes = AvroBytes(own)
        ends -= ends[0]
        self.begin, self.end = ends[:-1], ends[1:]
        self._dropped = dropped
        self._done = dropped.copy()
        # The begin and the end of the bytes that become each value; nothing of a record that has none.
        self._row_begin, self._row_end = self.begin.copy(), self.begin.copy()
        self._has_row = np.zeros(count, np.bool_)
        # What is written before the bytes of some rows: these rows, and the bytes.
        self._prefixes: list[tuple[NDArray[np.intp], bytes]] = []

    def add(self, columns: EventColumns, rows: NDArray[np.intp], prefix: bytes, *, drops_deletes: bool) -> None:
        """Adds the events at `rows`, of one schema, as rows with `prefix` before them."""
        at, lost = self.begin[rows] + len(prefix), self.end[rows] + 1
        begins: dict[str, Places] = {}
        ends: dict[str, Places] = {}
        for name, advance in columns.parts:
            begins[name] = at
            at = ends[name] = advance(self.bytes, at, lost)
        is_whole = at < lost
        has_after = self._has(begins, AFTER, is_whole)
        is_delete = self._has(begins, BEFORE, is_whole) & ~has_after
        changed = rows[has_after]
        self._row_begin[changed], self._row_end[changed] = begins[AFTER][has_after] + 1, ends[AFTER][has_after]
        self._has_row[changed] = True
        self._done[rows[has_after | is_delete]] = True
        if drops_deletes:
            self._dropped[rows[is_delete]] = True
        self._prefixes.append((changed, prefix))

    def _has(self, begins: Mapping[str, Places], name: str, is_whole: Rows) -> Rows:
        if name not in begins:
            return np.zeros(len(is_whole), np.bool_)
        return is_whole & (self.bytes.at(begins[name]) == _SECOND)

    def unwrapped(self) -> Unwrapped:
        """Returns what became of the events.

        A prefix is put over the bytes before its row, which are the event's own: the id of its schema, and more.
        """
        data, begin = large_array(len(self.bytes.data), np.uint8), self._row_begin.copy()
        data[:] = self.bytes.data
        for rows, prefix in self._prefixes:
            begin[rows] -= len(prefix)
            for place, byte in enumerate(prefix):
                data[begin[rows] + place] = byte
        return Unwrapped(self._done, self._dropped, _slices(data, begin, self._row_end, self._has_row))


def _groups(
    made: _Rows, size: int, topic_of: NDArray[np.int64], may_be_done: Rows
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yields topics, with the rows of which the values have the same `size` first bytes, which begin with a 0."""
    rows = np.flatnonzero(may_be_done & (made.end - made.begin >= size) & (made.bytes.at(made.begin) == 0))
    if not len(rows):
        return
    number = np.zeros(len(rows), np.int64)  # of up to 8 bytes: that of 0 is left out
    for place in range(1, size):
        number = number << 8 | made.bytes.at(made.begin[rows] + place)
    topics = topic_of[rows]
    pairs = {(int(number[0]), int(topics[0]))}
    if (number != number[0]).any() or (topics != topics[0]).any():
        pairs = set(zip(number.tolist(), topics.tolist(), strict=True))
    for own, topic in sorted(pairs)[:_MOST_GROUPS]:
        yield topic, rows[(number == own) & (topics == topic)]


def _slices(data: NDArray[np.uint8], begin: Places, end: Places, is_there: Rows) -> pa.Array:
    """Returns the bytes from `begin` to `end` as an array, with null in place of those that are not there.

    Every second element of the array that Arrow takes them from is what lies between two of them.
    """
    count = len(begin)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = begin, end
    offsets[-1] = end[-1] if count else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, 2 * count, 2), mask=~is_there))
