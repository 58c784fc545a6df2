"""Reads values of JSON by a schema, and writes values as JSON: a function for each schema, made once.

Source: `org.apache.kafka.connect.json.JsonConverter`, convertToConnect and convertToJson. Java's class takes a value of
another type for 0, false or null, and cuts off digits; here that is an error.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct

from connectors.data.schema import BITS, DATE, DECIMAL, TIME, TIMESTAMP, OfSchema, Schema, Type
from connectors.data.values import Date, bytes_of_decimal, decimal_of, scale_of
from connectors.errors import DataError

Read = Callable[[Any], Any]
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
LONG: Final = 1 << 63


class JsonForm(Struct, frozen=True):
    """`numeric`: Decimals are numbers (decimal.format). `defaults`: a null stands for the default of its schema."""

    numeric: bool = False
    defaults: bool = True


class JsonValues:
    """Reads and writes values of one form; keeps what it makes for each schema."""

    def __init__(self, form: JsonForm) -> None:
        self._form = form
        self.reader = OfSchema(self._reader)
        self.writer = OfSchema(self._writer)

    def read(self, schema: Schema, node: Any) -> Any:
        """Returns the value of `schema` that `node`, as JSON is decoded, is. Raises DataError."""
        return self.reader(schema)(node)

    def write(self, schema: Schema | None, value: Any) -> Any:
        """Returns `value` as it is encoded as JSON. Raises DataError."""
        return without_schema(value) if schema is None else self.writer(schema)(value)

    def _reader(self, schema: Schema) -> Read:
        inner = self._read_there(schema)
        optional, default = schema.optional, schema.default if self._form.defaults else None

        def read(node: Any) -> Any:
            if node is not None:
                return inner(node)
            if default is not None or optional:
                return default
            raise DataError(f"A null, where the schema says {schema.type.value} that is not optional.")

        return read

    def _read_there(self, schema: Schema) -> Read:
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            scale = scale_of(schema)
            return lambda node: _read_decimal(scale, node)
        if schema.type is Type.STRUCT:
            fields = [(one.name, self._reader(one.schema)) for one in schema.fields]
            return lambda node: _read_struct(fields, node)
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            item = self._reader(schema.value_schema)
            return lambda node: [item(one) for one in _typed(node, list, "a JSON array")]
        if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            key, value = self._reader(schema.key_schema), self._reader(schema.value_schema)
            is_object = schema.key_schema.type is Type.STRING
            return lambda node: _read_map(node, key, value, is_object=is_object)
        return _plain_reader(schema)

    def _writer(self, schema: Schema) -> Read:
        inner = self._write_there(schema)
        optional, default = schema.optional, schema.default if self._form.defaults else None

        def write(value: Any) -> Any:
            if value is not None:
                return inner(value)
            if default is not None:
                return inner(default)
            if optional:
                return None
            raise DataError(f"A null, where the schema says {schema.type.value} that is not optional.")

        return write

    def _write_there(self, schema: Schema) -> Read:
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            numeric = self._form.numeric
            return lambda value: NumberText(str(decimal_of(schema, value))) if numeric else _base64(value)
        if schema.type is Type.STRUCT:
            fields = [(one.name, self._writer(one.schema)) for one in schema.fields]
            return lambda value: {name: write(value.get(name)) for name, write in fields}
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            item = self._writer(schema.value_schema)
            return lambda value: [item(one) for one in value]
        if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            key, value_of = self._writer(schema.key_schema), self._writer(schema.value_schema)
            if schema.key_schema.type is Type.STRING:
                return lambda value: {name: value_of(one) for name, one in value.items()}
            return lambda value: [[key(name), value_of(one)] for name, one in value.items()]
        return _base64 if schema.type is Type.BYTES else _plain_writer(schema)


class NumberText(str):
    """A number as its digits, which stand in JSON as they are."""

    __slots__ = ()


def check_without_schema(node: Any) -> Any:
    """Returns `node` itself, once no whole number in it has more than 64 bits, which Java's class would cut."""
    if isinstance(node, int):
        if not -LONG <= node < LONG:
            raise DataError(f"{str(node)[:40]} has more than 64 bits.")
    elif isinstance(node, dict):
        for one in node.values():
            check_without_schema(one)
    elif isinstance(node, list):
        for one in node:
            check_without_schema(one)
    return node


def without_schema(value: Any) -> Any:
    """Returns a value without a schema as it is encoded as JSON: bytes in Base64, dates in ms. Raises DataError."""
    kind = type(value)
    if kind in {str, int, float, bool, type(None)}:
        return value
    if kind is dict:
        if all(isinstance(name, str) for name in value):
            return {name: without_schema(one) for name, one in value.items()}
        return [[without_schema(name), without_schema(one)] for name, one in value.items()]
    if kind is list:
        return [without_schema(one) for one in value]
    if kind is bytes:
        return _base64(value)
    raise DataError(f"JSON has no form for a {'date' if kind is Date else kind.__name__} without a schema.")


def _read_struct(fields: list[tuple[str, Read]], node: Any) -> dict[str, Any]:
    found = _typed(node, dict, "a JSON object")
    name = ""
    try:
        return {name: read(found.get(name)) for name, read in fields}
    except DataError as error:
        name = next(name for name, read in fields if _fails(read, found.get(name)))
        raise DataError(f"{name}: {error.message}", error.action) from None


def _fails(read: Read, node: Any) -> bool:
    try:
        read(node)
    except DataError:
        return True
    return False


def _read_map(node: Any, key: Read, value: Read, *, is_object: bool) -> dict[Any, Any]:
    if is_object:
        return {name: value(one) for name, one in _typed(node, dict, "a JSON object").items()}
    pairs = _typed(node, list, "a JSON array of pairs")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise DataError("A map whose keys are no texts is a JSON array of arrays of a key and a value.")
    return {key(name): value(one) for name, one in pairs}


def _read_decimal(scale: int, node: Any) -> bytes:
    try:
        if isinstance(node, str):
            return base64.b64decode(node, validate=True)
        if isinstance(node, int | float | Decimal) and not isinstance(node, bool):
            return bytes_of_decimal(scale, Decimal(str(node)) if isinstance(node, float) else Decimal(node))
    except (ValueError, binascii.Error) as error:
        raise DataError(f"A Decimal of scale {scale} cannot be read: {error}.") from None
    raise DataError(f"A Decimal is a number or Base64, and this is {node!r:.100}.")


def _plain_reader(schema: Schema) -> Read:
    bits = BITS.get(schema.type)
    if bits is not None:
        bound, what = 1 << (bits - 1), schema.name if schema.name in {DATE, TIME, TIMESTAMP} else schema.type.value
        return lambda node: _read_int(node, bound, what)
    if schema.type in _FLOATS:
        return _read_float
    if schema.type is Type.BYTES:
        return _read_bytes
    kind, what = (bool, "true or false") if schema.type is Type.BOOLEAN else (str, "a text")
    return lambda node: _typed(node, kind, what)


def _read_int(node: Any, bound: int, what: Any) -> int:
    if type(node) is float and node.is_integer():
        node = int(node)
    if type(node) is not int or not -bound <= node < bound:
        raise DataError(f"A {what} is a whole number from {-bound} to {bound - 1}, and this is {node!r:.100}.")
    return node


def _read_float(node: Any) -> float:
    if isinstance(node, float):
        return node
    if isinstance(node, int | Decimal) and not isinstance(node, bool):
        return float(node)
    raise DataError(f"A number was expected, and this is {node!r:.100}.")


def _read_bytes(node: Any) -> bytes:
    try:
        return base64.b64decode(_typed(node, str, "Base64"), validate=True)
    except ValueError:
        raise DataError(f"Bytes are a text in Base64, and this is {node!r:.100}.") from None


def _typed(node: Any, kind: type, what: str) -> Any:
    if type(node) is not kind:
        raise DataError(f"Here is {what} expected, and this is {node!r:.100}.")
    return node


def _plain_writer(schema: Schema) -> Read:
    kinds: tuple[type, ...] = (int, float) if schema.type in _FLOATS else (_PYTHON.get(schema.type, int),)

    def write(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise DataError(f"The schema says {schema.type.value}, and the value is a {type(value).__name__}.")
        return value

    return write


_PYTHON: Final[dict[Type, type]] = {Type.STRING: str, Type.BOOLEAN: bool}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
