"""Makes delete events of Debezium's change events, and source keys of keys in the output's form.

A connector that unwraps change events drops tombstones, and makes one of each delete event. The event that is made here
has the schema and the source of another of its topic; it has no value of a row, which an erasure would spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from connectors.chain.spec import ChainSpec, Resolve, made_converter
from connectors.converters.converter import Converter
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.bounds import check_size
from connectors.data.record import Header
from connectors.data.schema import DECIMAL, Schema, Type
from connectors.data.unwrapping import AFTER, BEFORE, ENVELOPE
from connectors.errors import RegistryError
from connectors.machine_errors import refuse_machine
from connectors.operations.topic_samples import Sample

_OP: Final = "op"
_DELETE: Final = "d"
_SOURCE: Final = "source"
_QUERY: Final = "query"
"""Of `source`: the statement that made the change, which may quote the row."""
_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
_NOTHING: Final[Mapping[Type, Any]] = {
    Type.FLOAT32: 0.0,
    Type.FLOAT64: 0.0,
    Type.BOOLEAN: False,
    Type.STRING: "",
    Type.BYTES: b"",
    Type.ARRAY: [],
    Type.MAP: {},
}

Pairs = tuple[tuple[str, bytes | None], ...]


class SourceForms:
    """Writes in the forms that the source of a chain has; its converters are made once, and closed with it."""

    def __init__(self, chain: ChainSpec, resolve: Resolve) -> None:
        self._most = chain.most_read
        self._key = made_converter(chain.key, resolve, is_key=True)
        self._value = made_converter(chain.value, resolve, is_key=False)
        self._written_key = made_converter(chain.written_key, resolve, is_key=True)

    def close(self) -> None:
        """Closes the converters."""
        for each in (self._key, self._value, self._written_key):
            each.close()

    def source_key(self, topic: str, key: bytes) -> bytes | None:
        """Returns a kept key as the source's converter writes it; None if it does not. Raises RegistryError."""
        headers: list[Header] = []
        try:
            schema, value = self._read(self._written_key, topic, headers, key)
            data = self._key.from_connect_data(topic, headers, schema, value)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)
            return None
        return None if headers else data

    def delete_event(self, topic: str, like: Sample) -> tuple[bytes, Pairs] | None:
        """Returns a delete event like a change event, and the headers that name its schema; None if `like` is none.

        Raises RegistryError.
        """
        named = [Header(name, value) for name, value in like.headers if name in NAMING_HEADERS["value"]]
        try:
            schema, value = self._read(self._value, topic, named, like.value)
            if schema is None or not (schema.name or "").endswith(ENVELOPE) or not isinstance(value, dict):
                return None
            data = self._value.from_connect_data(topic, named, schema, _deleted(schema, value))
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001  # a schema may hold anything
            refuse_machine(error)
            return None
        return None if data is None else (data, tuple((header.key, header.value) for header in named))

    def _read(
        self, converter: Converter, topic: str, headers: list[Header], data: bytes | None
    ) -> tuple[Schema | None, Any]:
        check_size(len(data or b""), self._most)
        return converter.to_connect_data(topic, headers, data)


def _deleted(envelope: Schema, event: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a delete event: `before` has a row that says nothing."""
    fields = {field.name: _nothing(field.schema) for field in envelope.fields}
    fields |= {name: event.get(name) for name in _TIMES if name in fields}
    if (before := envelope.field(BEFORE)) is not None and before.schema.type is Type.STRUCT:
        fields[BEFORE] = _nothing(replace(before.schema, optional=False, default=None))
    if isinstance(source := event.get(_SOURCE), dict):
        fields[_SOURCE] = {name: value for name, value in source.items() if name != _QUERY}
    return {**fields, _OP: _DELETE, AFTER: None}


def _nothing(schema: Schema) -> Any:
    """Returns a value of `schema` that says nothing: null if it may be."""
    if schema.optional:
        return None
    if schema.default is not None:
        return schema.default
    if schema.type is Type.STRUCT:
        return {field.name: _nothing(field.schema) for field in schema.fields}
    return b"\0" if schema.name == DECIMAL else _NOTHING.get(schema.type, 0)
