"""Writes the rows of a typed snapshot as keys and values of records again, by the connector's converters.

The schemas are those that the snapshot's manifest has. A column of which they say nothing gets the schema of its type,
so that a snapshot of what is written has the same columns. What fitted no column is written as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from compactor.model.record import HEADERS
from compactor.ports import WHOLE
from compactor.snapshot.manifest import Typed
from compactor.snapshot.typed_table import KEY, REST, layouts_of
from connectors.chain.spec import ChainSpec, made_converter
from connectors.converters.json.converter import JsonConverter
from connectors.converters.wire_format import NAMING_HEADERS
from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import bytes_of_decimal, scale_of
from connectors.errors import DataError, UsageError
from connectors.placeholders import resolve
from connectors.rejection import reason_of
from connectors.typed import arrow_types
from connectors.typed.converter_settings import GIVE, stored_chain
from connectors.typed.kept_schemas import schema_from
from connectors.typed.unite import source_of

_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_]")
"""What a name of Avro or Protobuf does not have."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEBEZIUM: Final = "io.debezium."
_PRECISION: Final = "connect.decimal.precision"
_UTC: Final = "UTC"
_LEAVES: Final[dict[pa.DataType, Schema]] = {
    pa.int8(): Schema(type=Type.INT8),
    pa.int16(): Schema(type=Type.INT16),
    pa.int32(): Schema(type=Type.INT32),
    pa.int64(): Schema(type=Type.INT64),
    pa.float32(): Schema(type=Type.FLOAT32),
    pa.float64(): Schema(type=Type.FLOAT64),
    pa.bool_(): Schema(type=Type.BOOLEAN),
    pa.string(): Schema(type=Type.STRING),
    pa.binary(): Schema(type=Type.BYTES),
    pa.date32(): Schema(type=Type.INT32, name=DATE, version=1),
    pa.time32("ms"): Schema(type=Type.INT32, name=TIME, version=1),
    pa.time64("us"): Schema(type=Type.INT64, name=f"{_DEBEZIUM}time.MicroTime", version=1),
    pa.time64("ns"): Schema(type=Type.INT64, name=f"{_DEBEZIUM}time.NanoTime", version=1),
    pa.timestamp("ms", _UTC): Schema(type=Type.INT64, name=TIMESTAMP, version=1),
    pa.timestamp("us", _UTC): Schema(type=Type.STRING, name=f"{_DEBEZIUM}time.ZonedTimestamp", version=1),
    pa.timestamp("ns", _UTC): Schema(type=Type.INT64, name="avro.timestamp-nanos"),
    pa.timestamp("ms"): Schema(type=Type.INT64, name=f"{_DEBEZIUM}time.Timestamp", version=1),
    pa.timestamp("us"): Schema(type=Type.INT64, name=f"{_DEBEZIUM}time.MicroTimestamp", version=1),
    pa.timestamp("ns"): Schema(type=Type.INT64, name=f"{_DEBEZIUM}time.NanoTimestamp", version=1),
}
"""The schema of a column of which no schema is known: one that becomes this type."""


class SideWriter:
    """Writes the keys, or the values, of rows for `topic`: of `columns`, by `schemas`. Used by one thread.

    `is_plain`: what was read had no schema, as plain JSON. Raises ConfigError, and DataError for schemas that are none.
    """

    def __init__(
        self, side: str, columns: pa.StructType, schemas: Sequence[str], chain: ChainSpec, topic: str, *, is_plain: bool
    ) -> None:
        spec = chain.written_key if side == "key" else chain.written_value
        self.name = spec.name
        self.naming = NAMING_HEADERS[side]
        self._topic = topic
        self._converter = made_converter(spec, resolve, is_key=side == "key")
        known = list(map(schema_from, schemas))
        # The only column may be the value itself, and no field of it.
        self._is_whole = [field.name for field in columns] == [WHOLE] and not _has_field(known, WHOLE)
        kind = columns.field(0).type if self._is_whole else columns
        # JSON without schemas writes what had none; whatever else writes it needs one.
        self._is_plain = is_plain and not known and isinstance(self._converter, JsonConverter)
        # A decimal without a schema is a text: its bytes would be Base64.
        self._kind = _without_decimals(kind) if self._is_plain else kind
        self._schema = written_schema(self._kind, [each for each in known if _is_struct(each) != self._is_whole], ())

    def data(self, rows: pa.StructArray) -> Iterator[bytes | None]:
        """Yields the bytes of rows in turn. Raises DataError for one that the converter cannot write, RegistryError."""
        try:
            columns = rows.field(0) if self._is_whole else rows
            values = values_of(columns.cast(self._kind) if self._is_plain else columns, self._schema)
        except (ArithmeticError, ValueError, TypeError) as error:  # of files that no snapshot wrote
            raise DataError(f"The columns do not fit their schema: {reason_of(error)}.") from None
        for value in values:
            if self._is_plain:
                yield self._converter.from_connect_data(self._topic, [], None, _without_nulls(value))
            else:
                yield self._converter.from_connect_data(self._topic, [], self._schema, value)

    def close(self) -> None:
        """Closes connections."""
        self._converter.close()


class TypedRowWriter:
    """Makes of the rows of a typed snapshot, with `columns`, what a snapshot of bytes would have of the records.

    `given` are settings of converters; what they leave open the manifest says. `appends`: it has every record, also
    those without a value. Used by one thread. Raises ConfigError for settings that are not allowed or missing.
    """

    def __init__(
        self, columns: pa.Schema, typed: Typed, given: Mapping[str, str], topic: str, *, appends: bool
    ) -> None:
        chain = stored_chain(typed.converters, given)
        self._appends = appends
        self._layouts = layouts_of(columns)
        formats = {"key": typed.key_format, "value": typed.value_format}
        self._writers = {
            side: SideWriter(side, layout, typed.schemas.get(side, ()), chain, topic, is_plain=side in typed.kept)
            for side, layout in self._layouts.items()
            if formats[side] == "typed"
        }

    def close(self) -> None:
        """Closes connections."""
        for writer in self._writers.values():
            writer.close()

    def records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Returns rows with the columns of a snapshot of bytes. Raises UsageError for one that cannot be written."""
        names, count = batch.schema.names, batch.num_rows
        made = {
            "key": self._side("key", batch),
            "value": self._side("value", batch),
            "partition": batch["_partition"],
            "offset": batch["_offset"] if "_offset" in names else pa.nulls(count, pa.int64()),
            "timestamp": batch["_timestamp"],
            "headers": self._headers(batch) if "_headers" in names else pa.nulls(count, HEADERS),
        }
        return pa.RecordBatch.from_arrays(list(made.values()), list(made))

    def _side(self, side: str, batch: pa.RecordBatch) -> pa.Array:
        layout, writer = self._layouts[side], self._writers.get(side)
        names = [KEY] if side == "key" else [field.name for field in layout]
        if writer is None:
            return batch[names[0]].cast(pa.binary())
        columns, rest = [batch[name] for name in names], batch[REST[side]]
        if not columns:
            return rest
        is_struct = side == "key" and pa.types.is_struct(columns[0].type)
        rows = columns[0] if is_struct else pa.StructArray.from_arrays(columns, fields=list(layout))
        written = rest.is_null().to_numpy(zero_copy_only=False)
        if self._appends:
            written &= ~np.logical_and.reduce([column.is_null().to_numpy(zero_copy_only=False) for column in columns])
        places = np.flatnonzero(written)
        data: list[bytes | None] = rest.to_pylist()
        made = writer.data(rows.take(pa.array(places, pa.int64())))
        for place in places.tolist():
            try:
                data[place] = next(made)
            except DataError as error:
                raise UsageError(_unwritten(side, batch, place, writer.name, error.message), GIVE) from None
            if data[place] is None and not self._appends:
                raise UsageError(_unwritten(side, batch, place, writer.name, "it writes nothing of a null."), GIVE)
        return pa.array(data, pa.binary())

    def _headers(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the headers without those that say of bytes which are written again how they were written before."""
        headers = batch["_headers"]
        naming = {side: writer.naming for side, writer in self._writers.items()}
        named = pc.is_in(pc.struct_field(pc.list_flatten(headers), 0), pa.array(sorted(set().union(*naming.values()))))
        if not pc.any(named).as_py():
            return headers
        rests = {side: batch[REST[side]].is_null().to_pylist() for side in naming}
        left = [
            None
            if own is None
            else [each for each in own if not any(rests[side][row] and each["key"] in naming[side] for side in naming)]
            for row, own in enumerate(headers.to_pylist())
        ]
        return pa.array(left, headers.type)


def _unwritten(side: str, batch: pa.RecordBatch, row: int, name: str, why: str) -> str:
    offset = batch["_offset"][row].as_py() if "_offset" in batch.schema.names else "?"
    return f"The {side} of the record {batch['_partition'][row].as_py()}/{offset} cannot be written by {name}: {why}"


def written_schema(kind: pa.DataType, known: Sequence[Schema], path: tuple[str, ...]) -> Schema:
    """Returns a schema that becomes the type `kind` (`arrow_types.type_of`), the one in `known` if there is such.

    `path` are the names of the fields around it.
    """
    for schema in known:
        if _becomes(schema, kind):
            return schema
    if pa.types.is_struct(kind):
        structs = [schema for schema in known if _is_struct(schema)]
        fields = tuple(_field(field, structs, path) for field in kind)
        name = structs[0].name if structs else _NO_NAME.sub("_", "_".join(("Row", *path)))
        return Schema(type=Type.STRUCT, optional=bool(path), name=name, fields=fields)
    if pa.types.is_map(kind):
        keys = [schema.key_schema for schema in known if schema.key_schema is not None]
        items = [schema.value_schema for schema in known if schema.key_schema is not None and schema.value_schema]
        return Schema(
            type=Type.MAP,
            optional=bool(path),
            key_schema=replace(written_schema(kind.key_type, keys, (*path, "key")), optional=False),
            value_schema=written_schema(kind.item_type, items, (*path, "value")).as_optional(),
        )
    if pa.types.is_list(kind):
        items = [schema.value_schema for schema in known if schema.key_schema is None and schema.value_schema]
        inner = written_schema(kind.value_type, items, (*path, "element")).as_optional()
        return Schema(type=Type.ARRAY, optional=bool(path), value_schema=inner)
    leaf = _decimal(kind) if pa.types.is_decimal128(kind) else _LEAVES.get(kind)
    if leaf is None:
        raise DataError(f"{'.'.join(path)[:200]}: no snapshot of keyfold has a column of {str(kind)[:100]}.")
    return replace(leaf, optional=bool(path))


def _field(field: pa.Field, structs: Sequence[Schema], path: tuple[str, ...]) -> Field:
    name = source_of(field)
    known = [own.schema for own in (schema.field(name) for schema in structs) if own is not None]
    return Field(name, written_schema(field.type, known, (*path, name)).as_optional())


def _becomes(schema: Schema, kind: pa.DataType) -> bool:
    try:
        return arrow_types.type_of(schema) == _with_sources(kind)
    except DataError:
        return False


def _with_sources(kind: pa.DataType) -> pa.DataType:
    """Returns a type with the names that its columns' fields have in the records."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(source_of(field), _with_sources(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_with_sources(kind.key_type), _with_sources(kind.item_type))
    return pa.list_(_with_sources(kind.value_type)) if pa.types.is_list(kind) else kind


def _without_decimals(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_decimals(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_decimals(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_decimals(kind.item_type))
    return pa.string() if pa.types.is_decimal(kind) else kind


def _decimal(kind: pa.Decimal128Type) -> Schema:
    parameters = {SCALE: str(kind.scale), _PRECISION: str(kind.precision)}
    return Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters=parameters)


def _is_struct(schema: Schema) -> bool:
    return schema.type is Type.STRUCT and not arrow_types.is_leaf(schema)


def _has_field(known: Sequence[Schema], name: str) -> bool:
    return any(_is_struct(schema) and schema.field(name) is not None for schema in known)


def values_of(array: pa.Array, schema: Schema) -> list[Any]:
    """Returns the values of a column of `schema` in the form that they have with it (`connectors.data.schema`)."""
    if arrow_types.is_leaf(schema):
        return _leaves(array, schema)
    rows: list[Any]
    if schema.type is Type.STRUCT:
        names = [field.name for field in schema.fields]
        parts = [values_of(array.field(place), field.schema) for place, field in enumerate(schema.fields)]
        rows = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    else:
        assert schema.value_schema is not None
        whole = array.take(pa.array(range(len(array)), pa.int64()))  # a slice has the items of all
        lengths = np.diff(whole.offsets.to_numpy()).tolist()
        if schema.key_schema is None:
            items = iter(values_of(whole.flatten(), schema.value_schema))
            rows = [list(islice(items, length)) for length in lengths]
        else:
            keys = iter(values_of(whole.keys, schema.key_schema))
            items = iter(values_of(whole.items, schema.value_schema))
            rows = [dict(islice(zip(keys, items, strict=True), length)) for length in lengths]
    if not array.null_count:
        return rows
    return [row if is_there else None for row, is_there in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _leaves(array: pa.Array, schema: Schema) -> list[Any]:
    kind = array.type
    write = _writer_of(schema, kind)
    if pa.types.is_temporal(kind) and schema.type in {Type.INT32, Type.INT64}:
        array = array.view(pa.int32() if kind.bit_width == pa.int32().bit_width else pa.int64())
    elif pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    values = array.to_pylist()
    return values if write is None else [None if value is None else write(value) for value in values]


def _writer_of(schema: Schema, kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns what makes a value of a column's; None if that is the value."""
    if schema.type is Type.STRUCT:
        return _variable if schema.fields else lambda _: {}
    if schema.name == DECIMAL and schema.type is Type.BYTES:
        scale = scale_of(schema)
        return lambda value: bytes_of_decimal(scale, Decimal(value))
    return _zoned if pa.types.is_timestamp(kind) and schema.type is Type.STRING else None


def _variable(text: str) -> dict[str, Any]:
    """Returns Debezium's VariableScaleDecimal of a number's text."""
    number = Decimal(text)
    scale = max(0, -int(number.as_tuple().exponent))
    return {"scale": scale, "value": bytes_of_decimal(scale, number)}


def _zoned(us: int) -> str:
    """Returns a moment as Debezium's ZonedTimestamp has it: in UTC, a second's digits without zeros at their end."""
    try:
        moment = _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise DataError(f"The moment {us} us lies beyond the years that a text has.") from None
    digits = f".{moment.microsecond:06}".rstrip("0").rstrip(".")
    return f"{moment:%Y-%m-%dT%H:%M:%S}{digits}Z"


def _without_nulls(value: Any) -> Any:
    """Returns a value without a schema, in which a column that is null says that the field was not there."""
    if isinstance(value, dict):
        return {name: _without_nulls(part) for name, part in value.items() if part is not None}
    return list(map(_without_nulls, value)) if isinstance(value, list) else value
