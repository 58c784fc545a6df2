"""Says which type of Arrow values of a schema get in a typed snapshot. Pure.

Logical types are Connect's (`org.apache.kafka.connect.data`), Debezium's semantic types (`io.debezium.time`,
`io.debezium.data`), and those of Avro that Connect has no name for (`Converter.name_logical_types`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa

from connectors.data.growth import written_length
from connectors.data.schema import DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from connectors.data.values import scale_of
from connectors.errors import DataError
from connectors.typed import leaves

MOST_COLUMNS: Final = 5_000
"""Leaf columns of a layout: MySQL's widest table has 4,096. A writer holds a buffer for each, some 10 KB."""
DEEPEST: Final = 32
"""Levels of a layout. Readers of Parquet take some calls a level; databases and events have five."""
LONGEST_TEXT: Final = 1_024
"""Characters of an enum's symbol, or of a default, for which a byte of a record stands, or none. MySQL's have 255."""
MOST_NAMES: Final = 1 << 20
"""Bytes of the names of all leaf columns, each with those of the structs around it: Parquet writes them with each row
group. That is 200 for each of MOST_COLUMNS; databases allow 64 to 128."""
MOST_DIGITS: Final = 38
"""Digits of a decimal column: DuckDB, Spark and Iceberg have no more."""
_PRECISION: Final = "connect.decimal.precision"
_DEBEZIUM: Final = "io.debezium."
_UTC: Final = "UTC"
_SYMBOL: Final = ".Enum."
"""What the parameter of each symbol of an enum has in its name, of whatever converter."""

ToArray = Callable[[leaves.Values], pa.Array]
"""Makes an array of values. Raises what a value that does not fit raises."""


class Leaf(NamedTuple):
    """A type without parts, and what makes arrays of it."""

    type: pa.DataType
    to_array: ToArray


class Place(NamedTuple):
    """The place of a type in a layout: its level, and how many bytes the names of the structs' fields around it take.

    Places of what lists and maps hold have no name of their own.
    """

    depth: int = 1
    names: int = 0

    def inside(self, name: str) -> Place:
        """Returns the place of a part."""
        return Place(self.depth + 1, self.names + len(name.encode()))


_PLAIN: Final = {
    Type.INT8: pa.int8(),
    Type.INT16: pa.int16(),
    Type.INT32: pa.int32(),
    Type.INT64: pa.int64(),
    Type.FLOAT32: pa.float32(),
    Type.FLOAT64: pa.float64(),
    Type.BOOLEAN: pa.bool_(),
    Type.STRING: pa.string(),
    Type.BYTES: pa.binary(),
}
_TIMES: Final[dict[str, tuple[Type, pa.DataType]]] = {
    DATE: (Type.INT32, pa.date32()),
    TIME: (Type.INT32, pa.time32("ms")),
    TIMESTAMP: (Type.INT64, pa.timestamp("ms", _UTC)),
    f"{_DEBEZIUM}time.Date": (Type.INT32, pa.date32()),
    f"{_DEBEZIUM}time.Time": (Type.INT32, pa.time32("ms")),
    f"{_DEBEZIUM}time.MicroTime": (Type.INT64, pa.time64("us")),
    f"{_DEBEZIUM}time.NanoTime": (Type.INT64, pa.time64("ns")),
    f"{_DEBEZIUM}time.Timestamp": (Type.INT64, pa.timestamp("ms")),
    f"{_DEBEZIUM}time.MicroTimestamp": (Type.INT64, pa.timestamp("us")),
    f"{_DEBEZIUM}time.NanoTimestamp": (Type.INT64, pa.timestamp("ns")),
    "avro.time-micros": (Type.INT64, pa.time64("us")),
    "avro.timestamp-micros": (Type.INT64, pa.timestamp("us", _UTC)),
    "avro.timestamp-nanos": (Type.INT64, pa.timestamp("ns", _UTC)),
    "avro.local-timestamp-millis": (Type.INT64, pa.timestamp("ms")),
    "avro.local-timestamp-micros": (Type.INT64, pa.timestamp("us")),
    "avro.local-timestamp-nanos": (Type.INT64, pa.timestamp("ns")),
}
"""Dates and times that are numbers. Connect's Timestamp is a moment; Debezium's is the time on a wall (SQL's TIMESTAMP
WITHOUT TIME ZONE), as Avro's local ones are."""
_ZONED: Final = f"{_DEBEZIUM}time.ZonedTimestamp"
_VARIABLE: Final = f"{_DEBEZIUM}data.VariableScaleDecimal"


def is_leaf(schema: Schema) -> bool:
    """Returns whether values of `schema` become a column without parts; one of no fields is text, as `{}`."""
    if schema.type is Type.STRUCT:
        return not schema.fields or _is_variable(schema)
    return schema.type not in {Type.ARRAY, Type.MAP}


def leaf_of(schema: Schema) -> Leaf:
    """Returns what values of `schema`, which has no parts, become."""
    if schema.type is Type.STRUCT:
        return Leaf(pa.string(), leaves.variable_decimals if schema.fields else leaves.empty_structs)
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        return _decimal(schema)
    kind, arrow = _TIMES.get(schema.name or "", (None, pa.null()))
    if schema.type is kind:
        return Leaf(arrow, leaves.times(arrow))
    if schema.name == _ZONED and schema.type is Type.STRING:
        return Leaf(leaves.MOMENT, leaves.moments)
    plain = _PLAIN[schema.type]
    return Leaf(plain, lambda values: leaves.plain(values, plain))


def type_of(schema: Schema) -> pa.DataType:
    """Returns the type of a column of `schema`. Raises DataError for one that is too deep or has too many columns."""
    made = _type_of(schema, 1)
    check_size(made)
    return made


def check_size(made: pa.DataType) -> None:
    """Raises DataError for a type with more than MOST_COLUMNS leaf columns or MOST_NAMES, or deeper than DEEPEST."""
    names = 0
    for count, leaf in enumerate(_places(made, Place()), start=1):
        names += leaf.names
        if count > MOST_COLUMNS or leaf.depth > DEEPEST or names > MOST_NAMES:
            raise DataError(
                f"The schema has more than {MOST_COLUMNS} columns, more than {DEEPEST} levels, or more than "
                f"{MOST_NAMES >> 20} MiB of names.",
                "Make it smaller.",
            )


def leaf_count(made: pa.DataType) -> int:
    """Returns how many leaf columns a type has."""
    return sum(1 for _ in _places(made, Place()))


def name_bytes(made: pa.DataType) -> int:
    """Returns how many bytes of MOST_NAMES a type has."""
    return sum(place.names for place in _places(made, Place()))


def parts_of(made: pa.DataType) -> list[pa.Field]:
    """Returns what a type consists of: a struct's fields, the items of a list, the keys and values of a map."""
    return [made.field(place) for place in range(made.num_fields)]


def _places(made: pa.DataType, place: Place) -> Iterator[Place]:
    """Yields the places of all leaf columns, and of what is deeper than DEEPEST."""
    if not made.num_fields or place.depth > DEEPEST:
        yield place
        return
    is_struct = pa.types.is_struct(made)
    for part in parts_of(made):
        yield from _places(part.type, place.inside(part.name if is_struct else ""))


def _type_of(schema: Schema, depth: int) -> pa.DataType:
    _check_texts(schema)
    if is_leaf(schema):
        return leaf_of(schema).type
    if depth > DEEPEST:
        raise DataError(f"The schema has more than {DEEPEST} levels.", "Make it smaller.")
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(field.name, _type_of(field.schema, depth + 1)) for field in schema.fields])
    assert schema.value_schema is not None
    items = _type_of(schema.value_schema, depth + 1)
    return pa.list_(items) if schema.key_schema is None else pa.map_(_type_of(schema.key_schema, depth + 1), items)


def _check_texts(schema: Schema) -> None:
    """Raises DataError for a symbol or a default by which small records would become large columns."""
    symbols = (len(name) for name in schema.parameters or () if _SYMBOL in name)
    most = 2 * LONGEST_TEXT  # with the name of the parameter
    if max(symbols, default=0) > most or written_length(schema, schema.default, most) > most:
        raise DataError(f"The schema has a symbol or a default of more than {LONGEST_TEXT} characters.", "Shorten it.")


def _decimal(schema: Schema) -> Leaf:
    """Returns a decimal of the schema's precision and scale; text if no decimal column can have that scale."""
    scale, precision = scale_of(schema), MOST_DIGITS
    with suppress(ValueError):
        precision = min(MOST_DIGITS, int((schema.parameters or {}).get(_PRECISION, MOST_DIGITS)))
    if not 0 <= scale <= MOST_DIGITS:
        return Leaf(pa.string(), leaves.decimal_texts(scale))
    arrow = pa.decimal128(max(1, scale, precision), scale)
    return Leaf(arrow, leaves.decimals(arrow))


def _is_variable(schema: Schema) -> bool:
    return schema.name == _VARIABLE and {field.name for field in schema.fields} == {"scale", "value"}
