"""JSON is read and written as Kafka's JsonConverter does; what would hold or fill the worker is refused at once."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from connectors.converters.json.converter import JsonConverter
from connectors.converters.json.schema_types import FromJsonSchema
from connectors.data.bounds import DEEPEST, DEEPEST_SCHEMA, MOST_ABSENT, MOST_TYPES
from connectors.data.schema import DECIMAL, FLOAT32, FLOAT64, SCALE, Schema, Type
from connectors.errors import DataError
from connectors.options import OptionsError, read

PLAIN = {"schemas.enable": "false"}
PRICE = {"type": "bytes", "name": DECIMAL, "parameters": {SCALE: "2"}}


def converter(content: Any = None, **settings: str) -> JsonConverter:
    """Returns a converter of plain JSON, or of JSON with the schema `content`."""
    given = PLAIN if content is None else {"schema.content": json.dumps(content)}
    more = {name.replace("_", "."): text for name, text in settings.items()}
    return JsonConverter(read(JsonConverter.OPTIONS, {**given, **more}), is_key=False)


def value_of(content: Any, data: bytes) -> Any:
    """Returns what is read of `data` by a schema."""
    return converter(content).to_connect_data("t", [], data)[1]


def refusal(content: Any, data: bytes) -> str:
    """Returns why `data` is refused, which takes a moment."""
    made, began = converter(content), time.process_time()
    with pytest.raises(DataError) as raised:
        made.to_connect_data("t", [], data)
    assert time.process_time() - began < 1.0
    assert 10 < len(raised.value.message) < 400
    return raised.value.message


def test_a_decimal_with_a_vast_exponent_is_refused() -> None:
    """It stood the whole worker still."""
    struct = {"type": "struct", "fields": [{**PRICE, "field": "price"}]}
    assert refusal(struct, b'{"price":1e99999999}').startswith("price: A Decimal as a number has at most 1000 digits")
    assert "behind the point" in refusal(struct, b'{"price":1e-99999999}')
    assert "exponent" in refusal(struct, b'{"price":1e' + b"9" * 30 + b"}")
    assert "scale of a Decimal" in refusal({**PRICE, "parameters": {SCALE: "9" * 5_000}}, b"1")


def test_a_long_decimal_in_base64_is_read_and_written() -> None:
    """2,100 bytes have 5,057 digits, more than Python writes; Kafka's class takes them."""
    data = b"\x7f" * 2_100
    text = json.dumps(base64.b64encode(data).decode()).encode()
    made = converter(PRICE, decimal_format="NUMERIC")
    schema, value = made.to_connect_data("t", [], text)
    assert value == data
    digits = made.from_connect_data("t", [], schema, value)
    assert digits is not None
    assert len(digits) == 5_059
    assert converter(PRICE).from_connect_data("t", [], schema, value) == text


def test_a_float_is_rounded_to_32_bits_and_written_with_its_own_digits() -> None:
    """16777217 is none that 32 bits hold; 0.1 is 0.10000000149011612 as a double and 0.1 as a float."""
    made = converter({"type": "float"})
    assert value_of({"type": "float"}, b"16777217") == 16777216.0
    schema, value = made.to_connect_data("t", [], b"0.1")
    assert value == 0.10000000149011612
    assert made.from_connect_data("t", [], schema, value) == b"0.1"
    assert made.from_connect_data("t", [], FLOAT32, 1e10) == b"1.0E10"
    default = json.dumps({"schema": {"type": "float", "default": 0.1, "optional": True}, "payload": None}).encode()
    enveloping = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    schema, value = enveloping.to_connect_data("t", [], default)
    assert enveloping.from_connect_data("t", [], schema, value) == (
        b'{"schema":{"type":"float","optional":true,"default":0.1},"payload":0.1}'
    )


@pytest.mark.parametrize(("schema", "what"), [({"type": "float"}, "float"), ({"type": "double"}, "double")])
def test_a_number_that_is_too_large_is_not_read_as_infinite(schema: Any, what: str) -> None:
    """Kafka's class makes Infinity of it, which is another number."""
    beside = {"type": "struct", "fields": [{**schema, "field": "a"}, {**PRICE, "field": "b"}]}  # of which digits count
    assert "too large for a double" in refusal(beside, b'{"a":1e400,"b":1}')
    assert "out of range" in refusal(None, b"1e400")
    assert f"too large for a {what}" in refusal(schema, b"9" * (400 if what == "double" else 40))
    assert "too large for a float" in refusal({"type": "float"}, b"1e39")


@pytest.mark.parametrize("schema", [FLOAT32, FLOAT64, None])
def test_what_is_no_number_is_written_as_java_writes_it(schema: Schema | None) -> None:
    """JSON has no form for it; a null would be another value."""
    made = converter()
    texts = [made.from_connect_data("t", [], schema, float(one)) for one in ("nan", "inf", "-inf")]
    assert texts == [b'"NaN"', b'"Infinity"', b'"-Infinity"']


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("text", [b'"NaN"', b'"Infinity"', b'"-Infinity"'])
def test_what_java_writes_of_no_number_is_read_as_it(kind: str, text: bytes) -> None:
    """As Debezium's changes have it; Kafka's class reads 0 of each, and a row with a NaN would have another value."""
    made = converter({"type": kind})
    schema, value = made.to_connect_data("t", [], text)
    assert repr(value) == {b'"NaN"': "nan", b'"Infinity"': "inf", b'"-Infinity"': "-inf"}[text]
    assert made.from_connect_data("t", [], schema, value) == text
    assert value_of(None, text) == json.loads(text)


@pytest.mark.parametrize("text", [b"NaN", b"-Infinity", b'"nan"', b'"INF"', b'"1.5"', b'""'])
def test_other_texts_are_no_numbers(text: bytes) -> None:
    """Bare words are no JSON to Kafka's class either; of other texts it reads 0."""
    with pytest.raises(DataError):
        converter({"type": "double"}).to_connect_data("t", [], text)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b'\xef\xbb\xbf{"id":1}', {"id": 1}),
        ('{"id":"ü"}'.encode("utf-16"), {"id": "ü"}),
        (b"\xfe\xff" + "[1]".encode("utf-16-be"), [1]),
        ("[1]".encode("utf-32"), [1]),
        (b"", None),
        (b" \r\n\t", None),
    ],
)
def test_the_mark_of_an_encoding_is_no_part_of_json_and_nothing_is_null(data: bytes, value: Any) -> None:
    """As Kafka's class reads both."""
    assert value_of(None, data) == value


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", b"\xff\xfe\x00", b"\xff\xfe\x00\xd8"])
def test_nothing_is_no_value_of_a_schema(data: bytes) -> None:
    """Kafka's class refuses it, too."""
    assert "no JSON" in refusal({"type": "struct", "fields": []}, data)


def test_what_is_too_deep_is_refused_before_anything_else_meets_it() -> None:
    """In a value, and in the schema of one; what is less deep is read by the deepest of callers."""
    deep = DEEPEST + 2
    assert f"deeper than {DEEPEST} levels" in refusal(None, b"[" * deep + b"]" * deep)
    assert "nested too deep" in refusal(None, b"[" * 100_000)
    assert "nested too deep" in refusal({"type": "string"}, b'{"a":' * 100_000)
    schema: Any = {"type": "int32"}
    for _ in range(DEEPEST_SCHEMA + 1):
        schema = {"type": "array", "items": schema}
    message = json.dumps({"schema": schema, "payload": None}).encode()
    with pytest.raises(DataError, match=f"nested deeper than {DEEPEST_SCHEMA} levels"):
        JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False).to_connect_data("t", [], message)
    with pytest.raises(OptionsError, match="nested deeper"):
        converter(schema)


@pytest.mark.parametrize("kind", ["array", "struct", "map"])
def test_what_is_as_deep_as_allowed_is_read_and_written(kind: str) -> None:
    """Also if the caller has 100 calls open."""
    schema: Any = {"type": "int32"}
    data = b"1"
    for _ in range(DEEPEST_SCHEMA - 1):
        if kind == "array":
            schema, data = {"type": "array", "items": schema}, b"[%b]" % data
        elif kind == "map":
            schema, data = {"type": "map", "keys": {"type": "string"}, "values": schema}, b'{"a":%b}' % data
        else:
            schema, data = {"type": "struct", "fields": [{**schema, "field": "a"}]}, b'{"a":%b}' % data
    made = converter(schema)

    def called(depth: int) -> bytes | None:
        if depth:
            return called(depth - 1)
        return made.from_connect_data("t", [], *made.to_connect_data("t", [], data))

    assert called(100) == data
    assert converter().from_connect_data("t", [], *converter().to_connect_data("t", [], data)) == data


@pytest.mark.parametrize("key", [{"type": "struct", "fields": []}, {"type": "array", "items": {"type": "int32"}}])
def test_a_map_with_keys_that_python_has_not_is_refused(key: dict[str, Any]) -> None:
    """Kafka has structs as keys; here the record is refused with what to change, and one without entries is read."""
    schema = {"type": "map", "keys": key, "values": {"type": "int32"}}
    node = "{}" if key["type"] == "struct" else "[]"
    assert "A map has structs, lists or maps as keys" in refusal(schema, f"[[{node},1]]".encode())
    assert converter(schema).to_connect_data("t", [], b"[]")[1] == {}


def test_an_error_in_the_depth_is_found_once() -> None:
    """And named by the way to it; each level would else double the time."""
    schema: Any = {"type": "int32"}
    data = b'"x"'
    for number in range(DEEPEST_SCHEMA - 1):
        schema = {"type": "struct", "fields": [{**schema, "field": f"f{number}"}]}
        data = b'{"f%d":%b}' % (number, data)
    made, began = converter(schema), time.process_time()
    with pytest.raises(DataError, match=r"f98: f97: .*f0: A int32 is a whole number"):
        made.to_connect_data("t", [], data)
    assert time.process_time() - began < 1.0


def test_a_few_bytes_do_not_become_gigabytes() -> None:
    """A list of empty objects, each of which has a thousand fields by its schema."""
    fields = [{"type": "int32", "field": f"f{number}", "optional": True} for number in range(1_000)]
    schema = {"type": "array", "items": {"type": "struct", "fields": fields}}
    assert len(value_of(schema, b"[%b]" % b",".join([b"{}"] * 100))) == 100
    assert f"lacks more than {MOST_ABSENT} fields" in refusal(schema, b"[%b]" % b",".join([b"{}"] * 10_000))


def test_the_version_of_a_schema_has_32_bits() -> None:
    """It goes into other schemas."""
    made = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    message = b'{"schema":{"type":"int32","version":%b},"payload":1}' % (b"9" * 4_000)
    with pytest.raises(DataError, match="version of a schema is a whole number of 32 bits"):
        made.to_connect_data("t", [], message)


def test_a_schema_whose_types_hold_each_other_twice_is_refused() -> None:
    """Thirty definitions of two fields each stand for a thousand million."""
    definitions: dict[str, Any] = {"t0": {"type": "string"}}
    for number in range(30):
        held = {"$ref": f"#/definitions/t{number}"}
        definitions[f"t{number + 1}"] = {"type": "object", "properties": {"a": held, "b": held}}
    root = {"$ref": "#/definitions/t30", "definitions": definitions}
    began = time.process_time()
    with pytest.raises(DataError, match=f"more than {MOST_TYPES} types"):
        FromJsonSchema(root, {}, lambda _, value: value).schema(root)
    assert time.process_time() - began < 2.0


def test_a_whole_number_with_a_point_is_read_beside_decimals_too() -> None:
    """As beside none, and as Kafka's class reads it."""
    struct = {"type": "struct", "fields": [{"type": "int64", "field": "a"}, {**PRICE, "field": "b"}]}
    assert value_of(struct, b'{"a":2.0,"b":1.5}')["a"] == 2
    assert value_of(struct, b'{"a":1e2,"b":1}')["a"] == 100
    assert "is a whole number" in refusal(struct, b'{"a":1e99999999,"b":1}')
    assert "is a whole number" in refusal(struct, b'{"a":1e-99999999,"b":1}')
    assert converter(struct).to_connect_data("t", [], b'{"a":1,"b":1}')[0].type is Type.STRUCT  # type: ignore[union-attr]
