"""Collects the types of the keys or values of one task's records (`compactor.ports.Survey`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from connectors.data.kept import OfSchema
from connectors.data.record import Header
from connectors.data.schema import Schema
from connectors.errors import RegistryError
from connectors.machine_errors import refuse_machine
from connectors.typed import kept_schemas
from connectors.typed.arrow_types import type_of
from connectors.typed.kinds import SurveyedType, text_of
from connectors.typed.record_reader import CHUNK_ROWS, HeadersOf, RecordReader, chunks, waiting
from connectors.typed.shape import Shapes

_MOST_KINDS: Final = 1_000
"""Types that one task collects: each record may bring one of its own. Of a further one the records are in `_rest`,
unless they fit by chance."""
_MOST_HEADS: Final = 10_000
"""Schemas, known or not, of which a task remembers by what stands before the data what it counts: a converter would
parse them, and a registry be asked for those that it does not know, once for each batch."""
_KINDS_BYTES: Final = 4 << 20
"""Bytes of those types, as they are sent to the worker by each task: some hundred types of a hundred columns."""


class _Count(Struct):
    """How many records of one type there are so far.

    `schemas` are the texts of some of the schemas that have it, `more`: there are others.
    """

    records: int = 0
    schemas: list[str] = []
    more: bool = False


class TypeSurvey:
    """See `Survey`."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        # What counts the records of a schema: the same for all schemas of one type, which is slow to be looked up.
        self._count_of = OfSchema(self._new_count)
        self._counts: dict[pa.DataType, _Count] = {}
        # What counts the records that begin with the same bytes; None if these name no schema that can be read.
        self._of_head: dict[bytes, _Count | None] = {}
        # How many more bytes of types may be sent.
        self._left = _KINDS_BYTES
        # How many more bytes of schemas: a manifest has no more.
        self._left_of_schemas = kept_schemas.MOST_BYTES
        self._shapes = Shapes()
        # Records without a schema so far.
        self._plain = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """See `Survey`."""
        data, size = batch[self._reader.side], self._reader.converter.schema_bytes
        try:
            if not size:
                self._add_read(batch, data)
            elif self._reader.names_schemas(batch):
                headers_of = self._reader.headers_of(batch)
                for row, value in enumerate(data.to_pylist()):
                    if value is not None and (counted := self._counted(partial(headers_of, row), value)) is not None:
                        counted.records += 1
            else:
                heads = pc.value_counts(pc.binary_slice(data, 0, size))
                for head, count in zip(heads.field(0).to_pylist(), heads.field(1).to_pylist(), strict=True):
                    if head is not None and (counted := self._of(head)) is not None:
                        counted.records += count
        except RegistryError as error:
            raise waiting(error) from error

    def _of(self, head: bytes) -> _Count | None:
        """Returns what counts the records that begin with `head`, as `_counted`."""
        if head in self._of_head:
            return self._of_head[head]
        counted = self._counted(tuple, head)
        if len(self._of_head) < _MOST_HEADS:
            self._of_head[head] = counted
        return counted

    def _counted(self, headers: Callable[[], Sequence[Header]], data: bytes) -> _Count | None:
        """Returns what counts the records that say their schema as `data` does; None if that cannot be read."""
        try:
            schema = self._reader.converter.schema_of(list(headers()), data)
            return None if schema is None else self._count_of(schema)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)
            return None

    def _new_count(self, schema: Schema) -> _Count:
        kind = type_of(schema)
        if kind not in self._counts and not self._has_room(kind):
            return _Count()
        count = self._counts.setdefault(kind, _Count())
        text = kept_schemas.text_of(schema)
        if text is not None and text in count.schemas:
            return count
        if text is None or len(count.schemas) >= kept_schemas.MOST_OF_TYPE or len(text) > self._left_of_schemas:
            count.more = True
        else:
            self._left_of_schemas -= len(text)
            count.schemas.append(text)
        return count

    def _has_room(self, kind: pa.DataType) -> bool:
        """Returns whether a new type may be sent to the worker, and takes its room."""
        size = len(text_of(kind))
        if len(self._counts) >= _MOST_KINDS or size > self._left:
            return False
        self._left -= size
        return True

    def _add_read(self, batch: pa.RecordBatch, data: pa.Array) -> None:
        """Adds records of which each has to be read: it says its schema itself, or has none."""
        headers_of = self._reader.headers_of(batch)
        for rows in chunks(data, CHUNK_ROWS):
            values: list[Any] = []
            for row, value in enumerate(data[rows].to_pylist(), start=rows.start):
                if value is not None:
                    self._read(headers_of, row, value, values)
            self._plain += len(values)
            self._shapes.add(values)

    def _read(self, headers_of: HeadersOf, row: int, data: bytes, values: list[Any]) -> None:
        """Counts the type of a record, or adds it to `values` if it has no schema; what cannot be read has no type."""
        try:
            schema, value = self._reader.read(headers_of(row), data)
            if schema is None and value is not None:
                values.append(value)
            if schema is not None:
                self._count_of(schema).records += 1
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)

    def kinds(self) -> Mapping[bytes, int]:
        """See `Survey`."""
        kinds = {
            msgspec.json.encode(SurveyedType(text_of(kind), schemas=tuple(each.schemas), more=each.more)): each.records
            for kind, each in self._counts.items()
        }
        if self._plain:
            kinds[msgspec.json.encode(SurveyedType(shape=self._shapes.whole))] = self._plain
        return kinds

    def close(self) -> None:
        """See `Survey`."""
        self._reader.converter.close()
