"""Reads values of JSON by a schema, and writes values as JSON: a function for each schema, made once.

Source: `org.apache.kafka.connect.json.JsonConverter`, convertToConnect and convertToJson. Java's class takes a value of
another type for 0, false or null, and cuts off digits; here that is an error.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from msgspec import Struct

from connectors.data.bounds import SHORT_DECIMAL, Absences, Scaled, check_depth
from connectors.data.kept import OfSchema
from connectors.data.pace import paced, width_of
from connectors.data.schema import BITS, DATE, DECIMAL, TIME, TIMESTAMP, Schema, Type
from connectors.data.values import Date, bytes_of_decimal, decimal_of, float32, java_float, scale_of
from connectors.errors import DataError
from connectors.rejection import reason_of, shown

Read = Callable[[Any], Any]
_SAME: Final = frozenset({str, int, bool, type(None)})
"""What JSON has as Python has it."""
_CHECKED: Final = frozenset({int, dict, list})
"""What of JSON may be too large or too deep."""
_FLOATS: Final = (Type.FLOAT32, Type.FLOAT64)
_NUMBERS: Final = frozenset({*BITS, *_FLOATS})
_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What Java's class writes of a float or double that JSON has no number for. It reads 0 of these texts itself, so that
a NaN of a database would become 0; here each is what it was, and is written so again."""
# The bound of Java's long: a whole number without a schema lies in [-LONG, LONG).
LONG: Final = 1 << 63
_NAMED: Final = 100
"""Characters of a field's name in a message; each struct around the field adds its own."""


class JsonForm(Struct, frozen=True):
    """`numeric`: Decimals are numbers (decimal.format). `defaults`: a null stands for the default of its schema."""

    numeric: bool = False
    defaults: bool = True


class JsonValues:
    """Reads and writes values of one form; keeps what it makes for each schema."""

    def __init__(self, form: JsonForm) -> None:
        self.form = form
        # Both count what of the record that is read now stands for no byte of it.
        self._absences = Absences()
        self._scaled = Scaled()
        self.reader = OfSchema(self._new_reader)
        self.writer = OfSchema(self._new_writer)

    def read(self, schema: Schema, node: Any) -> Any:
        """Returns the value of `schema` that `node`, as JSON is decoded, is. Raises DataError."""
        self._absences.begin()
        self._scaled.begin()
        return self.reader(schema)(node)

    def read_defaults(self) -> Callable[[Schema, Any], Any]:
        """Returns what reads the defaults of one schema: all of them together may lack what one record may."""
        self._absences.begin()
        self._scaled.begin()
        reader = _OnceEach(self._reader_of)
        return lambda schema, node: reader(schema)(node)

    def write_defaults(self) -> Callable[[Schema, Any], Any]:
        """Returns what writes the defaults of one schema."""
        writer = _OnceEach(self._writer_of)
        return lambda schema, value: writer(schema)(value)

    def write(self, schema: Schema | None, value: Any) -> Any:
        """Returns `value` as it is encoded as JSON. Raises DataError."""
        return without_schema(value) if schema is None else self.writer(schema)(value)

    def _new_reader(self, schema: Schema) -> Read:
        return _OnceEach(self._reader_of)(schema)

    def _new_writer(self, schema: Schema) -> Read:
        return _OnceEach(self._writer_of)(schema)

    def _reader_of(self, schema: Schema, reader: _OnceEach) -> Read:
        inner = self._read_there(schema, reader)
        optional, default = schema.optional, schema.default if self.form.defaults else None

        def read(node: Any) -> Any:
            if node is not None:
                return inner(node)
            if default is not None or optional:
                return default
            raise DataError(f"A null, where the schema says {schema.type.value} that is not optional.")

        return read

    def _read_there(self, schema: Schema, reader: _OnceEach) -> Read:
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            scale = scale_of(schema)
            return lambda node: _read_decimal(scale, node, self._scaled)
        if schema.type is Type.STRUCT:
            fields = [(field.name, reader(field.schema)) for field in schema.fields]
            return lambda node: _read_struct(fields, node, self._absences)
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            item, width = reader(schema.value_schema), width_of(schema.value_schema)
            return lambda node: [item(element) for element in paced(_typed(node, list, "a JSON array"), width)]
        if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            return self._map_reader(schema.key_schema, schema.value_schema, reader)
        return _plain_reader(schema)

    def _map_reader(self, key_schema: Schema, value_schema: Schema, reader: _OnceEach) -> Read:
        key, value, width = reader(key_schema), reader(value_schema), width_of(value_schema)
        if key_schema.type is Type.STRING:
            return lambda node: _read_object(node, value, width)
        absences = self._absences if key_schema.type in _NUMBERS else None
        return lambda node: _read_pairs(node, key, value, width, absences)

    def _writer_of(self, schema: Schema, writer: _OnceEach) -> Read:
        inner = self._write_there(schema, writer)
        optional, default = schema.optional, schema.default if self.form.defaults else None
        same = _WRITTEN_AS_THEY_ARE.get(schema.type)

        def write(value: Any) -> Any:
            if type(value) is same:
                return value
            if value is not None:
                return inner(value)
            if default is not None:
                return inner(default)
            if optional:
                return None
            raise DataError(f"A null, where the schema says {schema.type.value} that is not optional.")

        return write

    def _write_there(self, schema: Schema, writer: _OnceEach) -> Read:
        if schema.name == DECIMAL and schema.type is Type.BYTES:
            numeric = self.form.numeric
            return lambda value: NumberText(str(decimal_of(schema, value))) if numeric else _base64(value)
        if schema.type is Type.STRUCT:
            fields = [(field.name, writer(field.schema)) for field in schema.fields]
            return lambda value: {name: write(value.get(name)) for name, write in fields}
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            item, width = writer(schema.value_schema), width_of(schema.value_schema)
            return lambda value: [item(element) for element in paced(value, width)]
        if schema.type is Type.MAP and schema.key_schema is not None and schema.value_schema is not None:
            key, value_of = writer(schema.key_schema), writer(schema.value_schema)
            width = width_of(schema.value_schema)
            if schema.key_schema.type is Type.STRING:
                return lambda value: {name: value_of(element) for name, element in paced(value.items(), width)}
            return lambda value: [[key(name), value_of(element)] for name, element in paced(value.items(), width)]
        return _base64 if schema.type is Type.BYTES else _plain_writer(schema)


class _OnceEach:
    """Makes what reads or writes values of a schema, and of each schema in it, once, however often it is asked for.

    Each struct around a schema may have a default, which is read or written by what the struct has in it.
    """

    def __init__(self, make: Callable[[Schema, _OnceEach], Read]) -> None:
        self._make = make
        # By the identities of schemas. Each schema is kept with what was made of it, so that its id stays its own.
        self._made: dict[int, tuple[Schema, Read]] = {}

    def __call__(self, schema: Schema) -> Read:
        made = self._made.get(id(schema))
        if made is None:
            made = self._made[id(schema)] = schema, self._make(schema, self)
        return made[1]


class NumberText(str):
    """A number as its digits, which stand in JSON as they are."""

    __slots__ = ()


def encoded(node: Any) -> bytes:
    """Returns JSON. Raises DataError for what it cannot hold."""
    try:
        return _ENCODER.encode(node)
    except (TypeError, ValueError, RecursionError, UnicodeError) as error:
        raise DataError(f"The value cannot be written as JSON: {reason_of(error)}.") from None


def _raw(value: Any) -> Any:
    if isinstance(value, NumberText):
        return msgspec.Raw(value.encode())
    raise TypeError(f"it has a {type(value).__name__}")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_raw)


def exact(text: str) -> Decimal:
    """Returns a number of JSON with all its digits. Raises DataError for an exponent that no number has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        raise DataError(f"The exponent of {shown(text)} is too large.") from None


def check_without_schema(node: Any, depth: int = 0) -> Any:
    """Returns `node` itself, once it is not too deep and no whole number in it has more than 64 bits.

    Java's class would cut those.
    """
    kind = type(node)
    if kind is int:
        if not -LONG <= node < LONG:
            raise DataError(f"{shown(node)} has more than 64 bits.")
    elif kind is dict or kind is list:
        check_depth(depth)
        members = node.values() if kind is dict else node
        for inner in paced(members):
            if type(inner) in _CHECKED:
                check_without_schema(inner, depth + 1)
    return node


def without_schema(value: Any) -> Any:
    """Returns a value without a schema as it is encoded as JSON: bytes in Base64, dates in ms. Raises DataError."""
    kind = type(value)
    if kind is float:
        return _double(value)
    if kind in _SAME:
        return value
    if kind is dict:
        if set(map(type, value)) <= {str}:
            members = paced(value.items())
            return {name: inner if type(inner) in _SAME else without_schema(inner) for name, inner in members}
        return [[without_schema(name), without_schema(inner)] for name, inner in paced(value.items())]
    if kind is list:
        return [inner if type(inner) in _SAME else without_schema(inner) for inner in paced(value)]
    if kind is bytes:
        return _base64(value)
    raise DataError(f"JSON has no form for a {'date' if kind is Date else kind.__name__} without a schema.")


def _read_struct(fields: list[tuple[str, Read]], node: Any, absences: Absences) -> dict[str, Any]:
    members = _typed(node, dict, "a JSON object")
    if len(members) < len(fields):
        absences.add(len(fields) - len(members))
    made: dict[str, Any] = {}
    name = ""
    try:
        for name, read in fields:  # the name that was last is said of an error
            made[name] = read(members.get(name))
    except DataError as error:
        raise DataError(f"{name[:_NAMED]}: {error.message}", error.action) from None
    return made


def _read_object(node: Any, value: Read, width: int) -> dict[str, Any]:
    return {name: value(held) for name, held in paced(_typed(node, dict, "a JSON object").items(), width)}


def _read_pairs(node: Any, key: Read, value: Read, width: int, absences: Absences | None) -> dict[Any, Any]:
    """Returns a map; `absences` counts its keys if they are numbers."""
    pairs = _typed(node, list, "a JSON array of pairs")
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise DataError("A map whose keys are no texts is a JSON array of arrays of a key and a value.")
    if any(isinstance(pair[0], dict | list) for pair in pairs):
        raise DataError("A map has structs, lists or maps as keys.", "Use keys that are texts or numbers.")
    if absences is not None:
        absences.add_number_keys(len(pairs))
    return {key(name): value(held) for name, held in paced(pairs, width)}


def _read_decimal(scale: int, node: Any, scaled: Scaled) -> bytes:
    if isinstance(node, str):
        try:
            return base64.b64decode(node, validate=True)
        except (ValueError, binascii.Error):
            raise DataError(f"A Decimal as a text is in Base64, and this is {shown(node)}.") from None
    if isinstance(node, int | float | Decimal) and not isinstance(node, bool):
        made = bytes_of_decimal(scale, Decimal(str(node)) if isinstance(node, float) else Decimal(node))
        if len(made) > SHORT_DECIMAL:
            scaled.add(len(made))
        return made
    raise DataError(f"A Decimal is a number or Base64, and this is {shown(node)}.")


def _plain_reader(schema: Schema) -> Read:
    bits = BITS.get(schema.type)
    if bits is not None:
        bound, what = 1 << (bits - 1), schema.name if schema.name in {DATE, TIME, TIMESTAMP} else schema.type.value
        return lambda node: _read_int(node, bound, what)
    if schema.type in _FLOATS:
        return _read_float if schema.type is Type.FLOAT64 else _read_float32
    if schema.type is Type.BYTES:
        return _read_bytes
    kind, what = (bool, "true or false") if schema.type is Type.BOOLEAN else (str, "a text")
    return lambda node: _typed(node, kind, what)


def _read_int(node: Any, bound: int, what: Any) -> int:
    if (type(node) is float and node.is_integer()) or (type(node) is Decimal and _is_whole(node, bound)):
        node = int(node)
    if type(node) is not int or not -bound <= node < bound:
        raise DataError(f"A {what} is a whole number from {-bound} to {bound - 1}, and this is {shown(node)}.")
    return node


def _is_whole(number: Decimal, bound: int) -> bool:
    """Returns whether a number is whole, after its size was looked at: `int` of 1e99999999 would never end."""
    return -bound <= number < bound and number == number.to_integral_value()


def _read_float(node: Any) -> float:
    if type(node) is float and math.isfinite(node):  # as nearly all are
        return node
    if type(node) is str and node in _NO_NUMBERS:
        return _NO_NUMBERS[node]
    if not isinstance(node, int | float | Decimal) or isinstance(node, bool):
        raise DataError(f"A number was expected, and this is {shown(node)}.")
    try:
        number = float(node)
    except OverflowError:
        number = math.inf
    if math.isinf(number):
        raise DataError(f"{shown(node)} is too large for a double.")
    return number


def _read_float32(node: Any) -> float:
    number = float32(_read_float(node))
    if math.isinf(number) and type(node) is not str:
        raise DataError(f"{shown(node)} is too large for a float.")
    return number


def _read_bytes(node: Any) -> bytes:
    try:
        return base64.b64decode(_typed(node, str, "Base64"), validate=True)
    except ValueError:
        raise DataError(f"Bytes are a text in Base64, and this is {shown(node)}.") from None


def _typed(node: Any, kind: type, what: str) -> Any:
    if type(node) is not kind:
        raise DataError(f"Here is {what} expected, and this is {shown(node)}.")
    return node


def _plain_writer(schema: Schema) -> Read:
    kind, form = _PYTHON.get(schema.type, int), _FORMS.get(schema.type)

    def write(value: Any) -> Any:
        if not isinstance(value, kind):
            raise DataError(f"The schema says {schema.type.value}, and the value is a {type(value).__name__}.")
        return value if form is None else form(value)

    return write


def _double(value: float) -> Any:
    """Returns a double as JSON: what is no number as the text that Java's class writes."""
    return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _float(value: float) -> Any:
    """Returns a float of 32 bits as JSON: its own digits, which are fewer than those of the same number as a double."""
    return NumberText(java_float(value)) if math.isfinite(value) else _double(value)


_PYTHON: Final[dict[Type, Any]] = {
    Type.STRING: str,
    Type.BOOLEAN: bool,
    **dict.fromkeys(_FLOATS, int | float),
}
_WRITTEN_AS_THEY_ARE: Final = {Type.STRING: str, Type.BOOLEAN: bool, **dict.fromkeys(BITS, int)}
_FORMS: Final = {Type.FLOAT32: _float, Type.FLOAT64: _double}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
