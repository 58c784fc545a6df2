"""Describes values: Connect's Schema (`org.apache.kafka.connect.data.Schema`, KIP-26).

A value and its schema go side by side; a value without one (`None`) says itself what it is, as JSON's do.

| type | value in Python |
|---|---|
| INT8 … INT64 | int |
| FLOAT32, FLOAT64 | float; of FLOAT32 one that 32 bits hold |
| BOOLEAN, STRING, BYTES | bool, str, bytes |
| ARRAY, MAP | list, dict |
| STRUCT | dict from a field's name to its value; a name that is missing is a null |

**With a schema, a value of a logical type is in its encoded form**: Decimal is the unscaled value as big-endian
two's complement bytes, with its scale among the schema's parameters, Date is days, Time and Timestamp are
milliseconds, as int. So what no step looks at passes through. **Without a schema**, such values are `decimal.Decimal`
and `connectors.data.values.Date` (Java's java.util.Date).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.errors import DataError

DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
UNION: Final = "io.confluent.connect.avro.Union"
"""The name of a STRUCT that stands for a union of several types: one of its fields is not null, and is the value."""
SCALE: Final = "scale"
"""The parameter of a Decimal's schema: how many digits follow the point."""


class Type(Enum):
    """What a schema is of (Schema.Type); the value is the name that JsonConverter writes."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


NUMBERS: Final = {
    "int8": Type.INT8,
    "int16": Type.INT16,
    "int32": Type.INT32,
    "int64": Type.INT64,
    "float32": Type.FLOAT32,
    "float64": Type.FLOAT64,
}
"""Types of numbers by the names that settings and JSON Schema's `connect.type` have for them, Schema.Type in lower
case. JsonConverter writes `float` and `double` for the last two (`Type`)."""
BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
"""How many bits the whole numbers of a type have."""


class Schema(Struct, frozen=True, kw_only=True):
    """A schema. `default` is None if there is none: Connect has no default that is null and says something.

    `fields` are a STRUCT's, in order; two of one name raise DataError, as in SchemaBuilder. `value_schema` is that of
    an ARRAY or a MAP, `key_schema` a MAP's. Equal by content, and not hashable, as parameters are not: `kept.OfSchema`
    keeps what is derived from a schema.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = None
    parameters: Mapping[str, str] | None = None
    fields: tuple[Field, ...] = ()
    key_schema: Schema | None = None
    value_schema: Schema | None = None

    def __post_init__(self) -> None:
        if len({field.name for field in self.fields}) != len(self.fields):
            double = Counter(field.name for field in self.fields).most_common(1)[0][0]
            raise DataError(
                f"Cannot create field because of field name duplication {double:.250}.",
                "Give one of the two fields another name, or leave one out.",
            )

    def field(self, name: str) -> Field | None:
        """Returns the field `name` of a STRUCT, or None. It looks through all; for many names take `by_name`."""
        return next((field for field in self.fields if field.name == name), None)

    def by_name(self) -> dict[str, Field]:
        """Returns the fields of a STRUCT by their names."""
        return {field.name: field for field in self.fields}

    def as_optional(self) -> Schema:
        """Returns the same schema, of values that may be null."""
        return self if self.optional else replace(self, optional=True)


class Field(Struct, frozen=True):
    """A field of a STRUCT (`org.apache.kafka.connect.data.Field`)."""

    name: str
    schema: Schema


INT8: Final = Schema(type=Type.INT8)
INT16: Final = Schema(type=Type.INT16)
INT32: Final = Schema(type=Type.INT32)
INT64: Final = Schema(type=Type.INT64)
FLOAT32: Final = Schema(type=Type.FLOAT32)
FLOAT64: Final = Schema(type=Type.FLOAT64)
BOOLEAN: Final = Schema(type=Type.BOOLEAN)
STRING: Final = Schema(type=Type.STRING)
BYTES: Final = Schema(type=Type.BYTES)
DATE_SCHEMA: Final = Schema(type=Type.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(type=Type.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(type=Type.INT64, name=TIMESTAMP, version=1)
