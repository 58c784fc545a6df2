"""What a converter is (`org.apache.kafka.connect.storage.Converter`, KIP-26, KIP-440), and the default one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import pyarrow as pa

from connectors.converters.written_fields import WrittenFields
from connectors.data.column_reader import ColumnReader
from connectors.data.record import Header
from connectors.data.schema import Schema, Type
from connectors.data.unwrapping import Unwrapper, Unwrapping
from connectors.errors import DataError
from connectors.options import Option
from connectors.registry.patience import Patience

Headers = list[Header]


class Converter(ABC):
    """Converts the keys or the values of a connector's records. One is made per reading task, and used by one thread.

    `options` are the values of OPTIONS (`options.read`), placeholders resolved; `is_key`: it converts keys.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    HAS_NULLS: ClassVar[bool] = False
    """Whether any bytes are read as null; if none are, only a value without bytes is."""
    READS_HEADERS: ClassVar[bool] = False
    """Whether what a value is depends on the record's headers."""
    HAS_FIELDS: ClassVar[bool] = False
    """Whether what it reads may have fields (`fields_of`)."""

    def __init__(self, options: Mapping[str, Any], *, is_key: bool) -> None:
        self.options = options
        self.is_key = is_key

    def maybe_null(self, values: pa.Array) -> pa.BooleanArray | None:  # noqa: ARG002  # most read no bytes as null
        """Returns which of `values` (binary) may be read as null: all that are, and few others; None if none may.

        It looks at all values of a connector, so it takes Arrow's comparisons alone, and asks no registry.
        """
        return None

    def ask_only(self, fields: Callable[[Schema], frozenset[str] | None]) -> None:  # noqa: B027  # most read all
        """Allows the converter to leave out fields that no step looks at, if the value has a schema.

        `fields` returns the fields of a schema that are needed; None stands for all of them.
        """

    @property
    def schema_bytes(self) -> int:
        """How many first bytes of data say its schema, if no header does; 0: it takes all of them."""
        return 0

    def schema_of(self, headers: Headers, data: bytes) -> Schema | None:
        """Returns the schema of `data`; None if it has none, or is null. Raises as `to_connect_data`."""
        return self.to_connect_data("", headers, data)[0]

    def column_reader(self, data: bytes) -> ColumnReader | None:  # noqa: ARG002  # most read one by one
        """Returns what reads values that begin with the `schema_bytes` of `data` at once; None if nothing can.

        Raises as `to_connect_data`.
        """
        return None

    def name_logical_types(self) -> None:  # noqa: B027  # most have those of Connect alone
        """Has schemas name logical types that Connect has no name for. Such a value is not written again."""

    def unwrapper(self, unwrapping: Unwrapping, writer: Converter) -> Unwrapper | None:  # noqa: ARG002  # most have none
        """Returns what does with many values at once what `unwrapping` does with each; None if nothing can.

        `writer` is what writes the rows: this converter itself, or that of the output.
        """
        return None

    def wait_with(self, patience: Patience) -> None:  # noqa: B027  # most wait for nothing
        """Sets the limit of all waits from now on to `patience`."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Closes what the converter holds open, such as connections."""

    def fields_of(self, headers: Headers, data: bytes) -> WrittenFields | None:  # noqa: ARG002  # most have none
        """Returns the fields of `data` as they are written; None if it has none. Raises as `to_connect_data`."""
        return None

    def written_like(self, data: bytes, value: Any) -> bytes | None:
        """Returns `value`, as JSON has it, written under the schema of `data`, which this converter reads.

        None if it cannot. No schema is registered. Raises as `to_connect_data`, and whatever a wrong `value` makes.
        """
        schema, _ = self.to_connect_data("", [], data)
        return self.from_connect_data("", [], schema, value)

    @abstractmethod
    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:
        """Returns schema and value of `data`.

        Raises DataError for data that is not what the converter reads; RegistryError if the registry does not
        answer, which says nothing of the record, or PortionLateError if it was waited for too long.
        """

    @abstractmethod
    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:
        """Returns the bytes of `value`; may add to `headers`, or take from them, what its reader looks for there.

        Raises DataError for a value that it cannot write; RegistryError as above.
        """


OPTIONAL_BYTES: Final = Schema(type=Type.BYTES, optional=True)


class BytesConverter(Converter):
    """The default: values are bytes, with a schema that says so."""

    def to_connect_data(self, topic: str, headers: Headers, data: bytes | None) -> tuple[Schema | None, Any]:  # noqa: ARG002
        """See `Converter`; it raises nothing."""
        return OPTIONAL_BYTES, data

    def from_connect_data(self, topic: str, headers: Headers, schema: Schema | None, value: Any) -> bytes | None:  # noqa: ARG002
        """See `Converter`."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataError(
                f"keyfold.Bytes cannot write a value of type {schema.type.value}.",
                "Set the converter that its reader expects, for example keyfold.Json.",
            )
        if value is None or isinstance(value, bytes):
            return value
        raise DataError(
            f"keyfold.Bytes cannot write a {type(value).__name__}.",
            "Set the converter that its reader expects, for example keyfold.Json.",
        )
