"""Takes the rows out of many change events in Avro at once: in Avro a row lies in its event as it is written alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.converters.avro.columns import AvroBytes, Places, large_array, slices_of
from connectors.converters.avro.event_columns import (
    SECOND,
    Ending,
    EventColumns,
    HeaderColumn,
    Part,
    RowColumns,
    event_columns,
)
from connectors.converters.avro.reader import AvroReader
from connectors.converters.registered import MOST_IDS
from connectors.converters.wire_format import WireFormat
from connectors.data.schema import Schema
from connectors.data.unwrapping import AFTER, BEFORE, NewHeader, Place, Rows, Unwrapped, Unwrapping
from connectors.errors import DataError
from connectors.kept_values import Kept
from connectors.registry.answers import SchemaId

_EMPTY: Final = pa.array([b""], pa.binary())
_NOTHING: Final = pa.scalar(b"", pa.binary())
_PRESENT: Final = pa.scalar(bytes((SECOND,)), pa.binary())
_ABSENT: Final = pa.scalar(b"\0", pa.binary())
"""What says in the bytes of a union that there is a value, or a null."""
_MOST_GROUPS: Final = 16
"""Schemas and topics of a batch of which the values are taken at once: each costs some 0.5 ms, and a batch has 5,000
records."""


class KnownSchemas(Protocol):
    """What a converter knows of the schemas that it has read and written before; it asks no registry for these."""

    wire: WireFormat

    def known_reader(self, schema_id: SchemaId) -> AvroReader | None:
        """Returns how data with an id is read; None if it was not read before."""

    def known_prefix(self, topic: str, schema: Schema, form: str) -> bytes | None:
        """Returns what goes before bytes of `form` that are a value of `schema`, for a record of `topic`.

        None if such a value was not written before, or is to be written otherwise. Raises DataError.
        """


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
        made = _Rows(values, may_be_done & is_null, self._unwrapping)
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
            if columns is None:
                return
            sides = (columns.changed, columns.deleted or columns.changed)
            prefixes = [self._known.known_prefix(topic, side.schema, side.form) for side in sides]
        except DataError:  # which reading a record by itself says
            return
        small = rows[made.end[rows] - made.begin[rows] <= columns.most]
        made.add(columns, small, self._known.wire.size, prefixes)

    def _columns_of(self, schema_id: SchemaId) -> EventColumns | None:
        reader = self._known.known_reader(schema_id)
        if reader is None:
            return None
        kept = self._columns.get(schema_id)
        if kept is None or kept[0] is not reader:
            kept = self._columns.put(schema_id, (reader, event_columns(reader, self._unwrapping.forms)), reader.weight)
        return kept[1]


class _Spans:
    """The begins and ends of the fields of events at some rows, and which of the events are whole."""

    def __init__(self, data: AvroBytes, at: Places, lost: Places, parts: Sequence[Part]) -> None:
        self.data = data
        # By the place of a field. A struct may be null: then its fields are nowhere, and begin and end with it.
        self.begins: dict[Place, Places] = {}
        self.ends: dict[Place, Places] = {}
        # By the name of a struct that may be null whether there is one.
        self.is_there: dict[str, Rows] = {}
        for part in parts:
            self.begins[None, part.name] = at
            end = self._fields(part, at, lost) if part.fields else at
            at = self.ends[None, part.name] = part.advance(data, at, lost) if part.is_nullable or end is at else end
        self.is_whole = at < lost

    def _fields(self, part: Part, at: Places, lost: Places) -> Places:
        """Passes over the fields of a struct; returns their end, which is that of the struct if it is not null."""
        end = at + part.is_nullable
        for name, advance in part.fields:
            self.begins[part.name, name] = end
            end = self.ends[part.name, name] = advance(self.data, end, lost)
        if part.is_nullable:
            is_there = self.is_there[part.name] = self.data.at(at) == SECOND
            for name, _ in part.fields:
                self.begins[part.name, name] = np.where(is_there, self.begins[part.name, name], at)
                self.ends[part.name, name] = np.where(is_there, self.ends[part.name, name], at)
        return end

    def has(self, name: str) -> Rows:
        """Returns which events are whole and have the row `name`."""
        if (None, name) not in self.begins:
            return np.zeros(len(self.is_whole), np.bool_)
        return self.is_whole & (self.data.at(self.begins[None, name]) == SECOND)

    def header(self, column: HeaderColumn, picked: Rows) -> list[Any]:
        """Returns the value of a header for each of the `picked` events."""
        values = self.of(column.ending, picked).to_pylist()
        return [None if data == _ABSENT.as_py() else column.read(data[1:]) for data in values]

    def of(self, ending: Ending, picked: Rows) -> pa.Array | pa.Scalar:
        """Returns the bytes of what follows each of the `picked` rows."""
        if ending.place is None:
            return pa.scalar(ending.text, pa.binary())
        begin, end = (places[ending.place][picked] for places in (self.begins, self.ends))
        made = slices_of(self.data.data, begin, end, np.ones(len(begin), np.bool_))
        if not ending.is_nullable:
            made = pc.binary_join_element_wise(_PRESENT, made, _NOTHING)
        is_there = self.is_there.get(ending.place[0] or "")
        return made if is_there is None else pc.if_else(pa.array(is_there[picked]), made, _ABSENT)


class _Rows:
    """The rows of the events of a batch, as far as they were taken out."""

    def __init__(self, values: pa.Array, nulls: Rows, unwrapping: Unwrapping) -> None:
        count = len(values)
        _, offsets, data = values.buffers()
        ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
        size = int(ends[-1] - ends[0])
        own = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if size else np.zeros(1, np.uint8)
        self.bytes = AvroBytes(own)
        ends -= ends[0]
        self.begin, self.end = ends[:-1], ends[1:]
        self._drops_deletes = unwrapping.drops_deletes
        self._dropped = nulls & unwrapping.drops_nulls
        self._done = nulls.copy()
        # The begin and the end of the bytes that become each value; nothing of a record that has none.
        self._row_begin, self._row_end = self.begin.copy(), self.begin.copy()
        self._has_row = np.zeros(count, np.bool_)
        # What is written before the bytes of some rows: these rows, and the bytes.
        self._prefixes: list[tuple[NDArray[np.intp], bytes]] = []
        self._headers: list[NewHeader] = []
        # What is written after the bytes of some rows: these rows, and the bytes of each.
        self._endings: list[tuple[NDArray[np.intp], pa.Array]] = []

    def add(self, columns: EventColumns, rows: NDArray[np.intp], size: int, prefixes: Sequence[bytes | None]) -> None:
        """Adds the events at `rows`, of one schema, after its `size` bytes.

        `prefixes`: what comes before a row of a change, and of a deletion; those with None are left.
        """
        spans = _Spans(self.bytes, self.begin[rows] + size, self.end[rows] + 1, columns.parts)
        is_change = spans.has(AFTER)
        is_delete = spans.has(BEFORE) & ~is_change
        self._add_rows(columns.changed, AFTER, rows, spans, is_change, prefixes[0])
        if columns.deleted is not None:
            self._add_rows(columns.deleted, BEFORE, rows, spans, is_delete, prefixes[1])
        else:
            self._done[rows[is_delete]] = True
            self._dropped[rows[is_delete]] = self._drops_deletes
        headed = (is_change | is_delete) & self._done[rows]
        for column in columns.headers:
            own = column.header
            self._headers.append(NewHeader(own.name, own.schema, rows[headed], spans.header(column, headed)))

    def _add_rows(
        self, columns: RowColumns, side: str, rows: NDArray[np.intp], spans: _Spans, picked: Rows, prefix: bytes | None
    ) -> None:
        """Adds the `picked` rows of one `side` of events."""
        if prefix is None:
            return
        own = rows[picked]
        self._row_begin[own], self._row_end[own] = spans.begins[None, side][picked] + 1, spans.ends[None, side][picked]
        self._has_row[own] = self._done[own] = True
        self._prefixes.append((own, prefix))
        if columns.endings and len(own):
            nothing = _EMPTY.take(pa.array(np.zeros(len(own), np.int64)))
            parts = [nothing, *(spans.of(ending, picked) for ending in columns.endings)]
            self._endings.append((own, pc.binary_join_element_wise(*parts, _NOTHING)))

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
        values = slices_of(data, begin, self._row_end, self._has_row)
        if self._endings:
            after = np.zeros(len(values), np.int64)
            endings, count = [_EMPTY], 1
            for rows, each in self._endings:
                after[rows] = np.arange(count, count + len(rows))
                endings.append(each)
                count += len(rows)
            values = pc.binary_join_element_wise(values, pa.concat_arrays(endings).take(pa.array(after)), _NOTHING)
        return Unwrapped(self._done, self._dropped, values, self._headers)


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
