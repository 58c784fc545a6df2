"""Takes the rows out of many change events in JSON with their schema: the text of the schema is looked at once.

A message begins with its schema, which is longer than its event, and which all messages of a table share byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.converters.json.typed_events import EventType, UntypedError, event_type
from connectors.converters.json.values import JsonValues
from connectors.data.schema import Schema
from connectors.data.unwrapping import NewHeader, Rows, Unwrapped, Unwrapping
from connectors.errors import DataError
from connectors.kept_values import Kept

_SPACES: Final = b" \t\r\n"
_MOST_GROUPS: Final = 16
"""Schemas of a batch of which the values are looked at: each costs some 0.2 ms, and a batch has 5,000 records."""
_MOST_KEPT: Final = 1_000
_TYPED: Final = 20
"""About how many bytes a character of a schema takes once it is a type of msgspec."""

_TINY: Final = re.compile(rb"[eE]-0*[1-9]\d{3}")
"""A number that is 0 as a double; as a Decimal, which numbers are first if any field is one, it may be refused."""


class KnownEnvelopes(Protocol):
    """What a converter knows of the schemas that it has read before, and what it writes before a value."""

    values: JsonValues

    def parts(self, data: bytes) -> tuple[bytes, bytes]:
        """Returns the texts of the schema and the payload of a message.

        Raises DataError, MsgspecError, UnicodeError.
        """

    def known_schema(self, text: bytes) -> Schema | None:
        """Returns the schema of a text; None if it was not read before, or is null."""

    def before_payload(self, schema: Schema) -> bytes:
        """Returns what is written before a value of `schema`, after which a bracket follows; nothing without schemas.

        Raises DataError.
        """


class _Events(msgspec.Struct, frozen=True):
    """How messages of one schema are read, and what is written before the rows of changes and of deletes."""

    type: EventType
    before_changed: bytes
    before_deleted: bytes


class JsonUnwrapper:
    """See `Unwrapper`."""

    def __init__(self, known: KnownEnvelopes, writer: KnownEnvelopes, unwrapping: Unwrapping) -> None:
        self._known = known
        self._writer = writer
        self._unwrapping = unwrapping
        # By the text of a schema; None: there is no type for its events.
        self._events: Kept[bytes, tuple[Schema, _Events | None]] = Kept(_MOST_KEPT)

    def of(self, topics: Sequence[str], topic_of: NDArray[np.int64], values: pa.Array, may_be_done: Rows) -> Unwrapped:  # noqa: ARG002
        """See `Unwrapper.of`."""
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        made = _Payloads(may_be_done & is_null, drops_nulls=self._unwrapping.drops_nulls)
        left = np.flatnonzero(may_be_done & ~is_null)
        ends = pc.ends_with(values, b"}").fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        for _ in range(_MOST_GROUPS):
            if not len(left):
                break
            prefix, events = self._events_of(values[int(left[0])].as_py())
            if not prefix:
                left = left[1:]
                continue
            begins = pc.starts_with(values, prefix).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
            if events is not None:
                rows = left[(begins & ends)[left]]
                texts = pc.binary_slice(values.take(pa.array(rows)), len(prefix), -1).to_pylist()
                self._add(made, events, rows, texts)
            left = left[~begins[left]]
        return made.unwrapped()

    def _add(self, made: _Payloads, events: _Events, rows: NDArray[np.intp], texts: list[bytes]) -> None:
        changes: _Written = [], []
        deletes: _Written = [], []
        picks = [pick for _, pick in events.type.headers]
        # Of each event that is done its place, and the values of its headers.
        headed: list[int] = []
        values: list[list[Any]] = []
        for at, text in enumerate(texts):
            read = _read(events.type, text)
            if read is None:
                continue
            event, payload = read
            places, payloads = deletes if event.after is None else changes
            places.append(at)
            payloads.append(payload)
            if picks:
                headed.append(at)
                values.append([pick(event) for pick in picks])
        for (places, payloads), before in ((changes, events.before_changed), (deletes, events.before_deleted)):
            made.add(rows[places], payloads, before)
        for (header, _), column in zip(events.type.headers, zip(*values, strict=True), strict=False):
            made.headers.append(NewHeader(header.name, header.schema, rows[headed], column))
        if self._unwrapping.drops_deletes:
            made.dropped[rows[deletes[0]]] = True

    def _events_of(self, data: bytes) -> tuple[bytes, _Events | None]:
        """Returns what messages with the schema of `data` begin with, nothing if it is none; and how they are read."""
        try:
            text, payload = self._known.parts(data)
        except (DataError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return b"", None
        prefix = data[: -(len(payload) + 1)]
        if not data.endswith(payload + b"}") or not ends_with_payload(prefix):
            return b"", None
        schema = self._known.known_schema(text)
        if schema is None:
            return prefix, None
        kept = self._events.get(text)
        if kept is None or kept[0] is not schema:
            kept = self._events.put(text, (schema, self._new_events(schema)), _TYPED * len(text))
        return prefix, kept[1]

    def _new_events(self, schema: Schema) -> _Events | None:
        before = self._writer.before_payload
        try:
            forms = self._unwrapping.forms(schema)
            if forms is None:
                return None
            type_ = event_type(schema, forms, self._known.values, self._writer.values)
            return _Events(type_, before(forms.changed.schema), before((forms.deleted or forms.changed).schema))
        except (DataError, UntypedError, ValueError):
            return None


def _read(type_: EventType, text: bytes) -> tuple[Any, bytes | None] | None:
    """Returns an event and what its row is written as, None for a deletion; None if it is to be read by itself."""
    if (b"e-" in text or b"E-" in text) and _TINY.search(text):
        return None
    try:
        event = type_.decode(text)
        if event.after is not None:
            return event, type_.changed.write(event, event.after)
        if event.before is not None:
            return event, None if type_.deleted is None else type_.deleted.write(event, event.before)
    except (msgspec.MsgspecError, DataError, UnicodeError, RecursionError):
        pass  # which reading it by itself says
    return None


_Written = tuple[list[int], list[bytes | None]]
"""Places of messages, and what each becomes."""


class _Payloads:
    """The rows of a batch that were taken out so far."""

    def __init__(self, nulls: Rows, *, drops_nulls: bool) -> None:
        self.dropped = nulls & drops_nulls
        self._done = nulls.copy()
        # What each row is written as, and the number of what stands before it.
        self._payloads: NDArray[Any] = np.full(len(nulls), None, object)
        self._before = np.zeros(len(nulls), np.int64)
        self._befores: list[bytes] = []
        self.headers: list[NewHeader] = []

    def add(self, rows: NDArray[np.intp], payloads: list[bytes | None], before: bytes) -> None:
        """Adds rows of one schema, or deletes, which have no payload."""
        self._payloads[rows] = np.array([*payloads, None], object)[:-1]
        self._done[rows] = True
        if before not in self._befores[-1:]:
            self._befores.append(before)
        self._before[rows] = len(self._befores) - 1

    def unwrapped(self) -> Unwrapped:
        """Returns what became of the events."""
        values = pa.array(self._payloads, pa.binary())
        if any(self._befores):
            befores = pa.array(self._befores, pa.binary())
            before = befores[0] if len(befores) == 1 else befores.take(pa.array(self._before))
            end, nothing = pa.scalar(b"}", pa.binary()), pa.scalar(b"", pa.binary())
            values = pc.binary_join_element_wise(before, values, end, nothing)
        return Unwrapped(self._done, self.dropped, values, self.headers)


def ends_with_payload(prefix: bytes) -> bool:
    """Returns whether the name before the last value is `payload`: a schema may be as long, and equal to it."""
    name = prefix.rstrip(_SPACES)
    return name.endswith(b":") and name[:-1].rstrip(_SPACES).endswith(b'"payload"')
