"""The fields of an Avro record, as fastavro reads and writes them (`connectors.converters.written_fields`)."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, Self

from msgspec.structs import replace

from connectors.converters.avro import large_values
from connectors.converters.written_fields import ENVELOPE, WrittenFields
from connectors.data.schema import Schema, Type
from connectors.errors import DataError
from connectors.rejection import reason_of


class AvroFields(WrittenFields):
    """The fields of `value`, of the parsed schema `avro`, which is `schema` as Connect has it.

    `head` is what stands before the data; `branches` names those of unions in a value before it is written.
    """

    def __init__(
        self, head: bytes, avro: Any, value: Any, schema: Schema, branches: Callable[[Any], Any] | None
    ) -> None:
        self._head = head
        self._avro = avro
        self._branches = branches
        self._value = value
        # The row, which is the value itself or a part of it, and its schema; None: there is none.
        self._row: dict[str, Any] | None = value if isinstance(value, dict) else None
        self._schema = schema
        if self._row is not None and all(name in self._row for name in ENVELOPE):
            after, field = self._row["after"], schema.field("after")
            row = after[1] if isinstance(after, tuple) else after
            self._row = row if isinstance(row, dict) and field is not None else None
            self._schema = schema if field is None else field.schema
        self._fields = self._schema.by_name() if self._schema.type is Type.STRUCT else {}

    def names(self) -> Iterable[str]:
        """See WrittenFields."""
        return tuple(self._row or ())

    def get(self, name: str, longest: int) -> Any:
        """See WrittenFields."""
        value = None if self._row is None else self._row.get(name)
        return value if isinstance(value, str | bytes | list | dict) and len(value) <= longest else None

    def take(self, name: str, other: Self) -> bool:
        """See WrittenFields."""
        if self._row is None or other._row is None or name not in other._row or name not in other._fields:
            return False
        mine, theirs = self._fields[name].schema, other._fields[name].schema
        value = other._row[name]
        if (mine is not theirs and _of_value(mine) != _of_value(theirs)) or (value is None and not mine.optional):
            return False
        self._row[name] = value
        return True

    def data(self) -> bytes:
        """See WrittenFields."""
        written = io.BytesIO()
        written.write(self._head)
        try:
            value = self._value if self._branches is None else self._branches(self._value)
            large_values.write(written, self._avro, value)
        except Exception as error:  # noqa: BLE001  # fastavro raises what it stumbles over
            raise DataError(f"The value does not fit its schema: {reason_of(error)}.") from None
        return written.getvalue()


def _of_value(schema: Schema) -> Schema:
    """Returns what a schema says of values that are there."""
    return replace(schema, optional=True, default=None, doc=None)
