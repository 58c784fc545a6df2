"""Generates what an attacker would write: numbers, texts, JSON, schemas and bytes at and beyond every bound."""

from __future__ import annotations

import json
from typing import Any, Final

from hypothesis import strategies as st

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import float32
from tests.support.connect_classes.records import FIELDS, records, with_parts

EDGES: Final = tuple(
    sign * number
    for bits in (7, 8, 15, 16, 31, 32, 62, 63, 64)
    for number in ((1 << bits) - 1, 1 << bits)
    for sign in (1, -1)
)
LONG_DIGITS: Final = "9" * 4_301
"""One digit more than Python reads or writes at once."""
NUMBERS: Final[tuple[str, ...]] = (
    "0", "-0", "1e99999999", "-1e99999999", "1e-99999999", "1e400", "-1e400", "1e-400", "0e999999999", "1E+2147483648",
    "1e" + "9" * 30, "0.1", "16777217", "1.5", "1e5000", "9" * 1_000, "9" * 1_001, "-" + LONG_DIGITS,
    LONG_DIGITS, "0." + LONG_DIGITS, "9" * 20_000, "3.4028236e38", "5e-324", *map(str, EDGES),
)  # fmt: skip
TEXTS: Final[tuple[str, ...]] = (
    "", " ", "null", "true", "NaN", "Infinity", "\x00", "ä", "größe", "\U0001f600", "a.b", "`a`.b", "x" * 20_000,
    LONG_DIGITS, "0" * 5_000 + "7", "1e99999999", "2026-01-31", "9999999-99-99", "2026-01-31T12:00:00.000Z", "{}",
    "[" * 3_000, "AQ==", "A" * 2_800, "f39" * 40_000, "\u202e", "%s%n", "${file:/etc/passwd:x}", "../../x",
)  # fmt: skip
SCALES: Final = (
    "0",
    "2",
    "-2",
    "99999999",
    "-99999999",
    "2147483647",
    "-2147483648",
    "2147483648",
    LONG_DIGITS,
    "x",
    "",
    "+2",
)
KINDS: Final = (
    "int8",
    "int16",
    "int32",
    "int64",
    "float",
    "double",
    "boolean",
    "string",
    "bytes",
    "array",
    "map",
    "struct",
)

VAST: Final = ("1e99999999", "-1e99999999", "1e-99999999", "1E+2147483648", "1e5000", "1.5e-5000", "1e400")
"""Numbers of a few characters that would take hours, gigabytes, or more than Python's types hold."""
numbers = (
    st.sampled_from(VAST)
    | st.sampled_from(NUMBERS)
    | st.builds(
        lambda sign, digits, exponent: f"{sign}{digits}e{exponent}",
        st.sampled_from(["", "-"]),
        st.integers(0, 10**25),
        st.integers(-(10**12), 10**12),
    )
)
texts = st.sampled_from(TEXTS) | st.text(max_size=20)
scales = st.sampled_from(SCALES) | st.integers(-(10**11), 10**11).map(str)


@st.composite
def documents(draw: st.DrawFn, depth: int = 3) -> str:
    """Returns JSON, some of it deep, with members of one name, and numbers of any size."""
    kind = draw(st.integers(0, 9))
    if kind <= 2:
        return draw(numbers)
    if kind <= 4:
        return json.dumps(draw(texts), ensure_ascii=draw(st.booleans()))
    if kind == 5:
        return draw(st.sampled_from(["null", "true", "false", "NaN", '"\\ud800"', "[]", "{}", ""]))
    if kind == 6:
        levels = draw(st.sampled_from([10, 99, 101, 150, 199, 205, 900, 50_000]))
        opened, closed = draw(st.sampled_from([("[", "]"), ('{"id":', "}"), ('{"inner":', "}")]))
        return opened * levels + "1" + closed * levels
    if depth == 0:
        return "0"
    inner = draw(st.lists(documents(depth - 1), max_size=4))
    if kind == 7:
        many = draw(st.sampled_from([1, 1, 1, 2_000])) if sum(map(len, inner)) < 50 else 1
        return f"[{','.join(inner * many)}]"
    names = draw(st.lists(st.sampled_from(FIELDS) | texts, min_size=len(inner), max_size=len(inner)))
    return f"{{{','.join(f'{json.dumps(name)}:{one}' for name, one in zip(names, inner, strict=True))}}}"


@st.composite
def connect_schemas(draw: st.DrawFn, depth: int = 3) -> Any:  # noqa: C901  # a line for each part
    """Returns schemas in the form of JsonConverter, of which parts may be missing, vast or of another type."""
    node: dict[str, Any] = {"type": draw(st.sampled_from(KINDS))}
    if draw(st.integers(0, 5)) == 0:
        return {"type": "bytes", "name": DECIMAL, "version": 1, "parameters": {SCALE: draw(scales)}, "optional": True}
    if depth == 0 and node["type"] in {"array", "map", "struct"}:
        node["type"] = "string"
    if node["type"] == "struct":
        names = draw(st.lists(st.sampled_from(FIELDS), max_size=4))
        node["fields"] = [{**draw(connect_schemas(depth - 1)), "field": name} for name in names]
    if node["type"] in {"array", "map"}:
        node["items"] = node["values"] = draw(connect_schemas(depth - 1))
        node["keys"] = draw(st.just({"type": "string"}) | connect_schemas(0))
    if draw(st.booleans()):
        node["optional"] = True
    if draw(st.integers(0, 3)) == 0:
        node |= {"name": draw(st.sampled_from([DECIMAL, DATE, TIME, TIMESTAMP, "a.Row"])), "version": 1}
    if node.get("name") == DECIMAL or draw(st.integers(0, 5)) == 0:
        node["parameters"] = {SCALE: draw(scales), "connect.fixed.size": draw(scales)}
    if draw(st.integers(0, 5)) == 0:
        node["default"] = draw(st.sampled_from([1, 0.1, "x", [], {}, True, 2**63, 1e300, "AQ=="]))
    if draw(st.integers(0, 9)) == 0:
        node[draw(st.sampled_from(["type", "version", "parameters", "fields", "items"]))] = draw(
            st.sampled_from([None, 5, [], {}, "x", 2**40, {"scale": 5}, [[]]])
        )
    return node


def deep_schema(levels: int) -> Any:
    """Returns a schema of lists in lists."""
    node: Any = {"type": "int32"}
    for _ in range(levels):
        node = {"type": "array", "items": node}
    return node


@st.composite
def payloads(draw: st.DrawFn, node: Any, depth: int = 6) -> str:
    """Returns JSON that mostly has the form of a schema, with values at and beyond its bounds."""
    if depth == 0 or not isinstance(node, dict) or draw(st.integers(0, 11)) == 0:
        return draw(documents(1))
    kind, items, fields = node.get("type"), node.get("items"), node.get("fields")
    if kind == "struct" and isinstance(fields, list):
        held = {
            one["field"]: draw(payloads(one, depth - 1)) for one in fields if isinstance(one, dict) and "field" in one
        }
        return f"{{{','.join(f'{json.dumps(name)}:{one}' for name, one in held.items())}}}"
    if kind == "array" and items is not None:
        return f"[{','.join(draw(st.lists(payloads(items, depth - 1), max_size=3)))}]"
    if kind == "map" and items is not None:
        pairs = draw(st.lists(st.tuples(texts, payloads(items, depth - 1)), max_size=3))
        return f"{{{','.join(f'{json.dumps(name)}:{one}' for name, one in pairs)}}}"
    if node.get("name") == DECIMAL or kind not in ("string", "boolean", "bytes"):
        return draw(numbers)
    return {"boolean": "true", "bytes": '"AQ=="'}.get(str(kind)) or json.dumps(draw(texts))


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """Returns messages with their schema, some of which do not fit it, or are cut off."""
    schema = draw(connect_schemas() | st.sampled_from([99, 101, 400]).map(deep_schema) | st.just(WIDE))
    payload = draw(payloads(schema) | st.just(f"[{','.join(['{}'] * 3_000)}]"))
    whole = f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()
    return draw(st.sampled_from([whole, whole, whole, b"\xef\xbb\xbf" + whole, whole[: len(whole) // 2]]))


ORDINARY: Final = {
    "type": "struct",
    "fields": [
        {"type": "int32", "field": "id", "optional": True},
        {"type": "float", "field": "name", "optional": True},
        {"type": "bytes", "name": DECIMAL, "parameters": {SCALE: "2"}, "field": "at", "optional": True},
        {"type": "double", "field": "inner", "optional": True},
        {"type": "int64", "name": TIMESTAMP, "field": "ä b", "optional": True},
    ],
}
"""A schema that a file gives: of numbers of each kind."""
WIDE: Final = {
    "type": "array",
    "items": {
        "type": "struct",
        "fields": [{"type": "int32", "field": f"f{number}", "optional": True} for number in range(500)],
    },
}
"""Of which an empty object stands for 500 fields."""


def varint(number: int) -> bytes:
    """Returns a number as Avro writes it."""
    rest, out = (number << 1) ^ (number >> 63) if number < 0 else number << 1, b""
    while rest > 0x7F:
        out += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return out + bytes([rest])


@st.composite
def blobs(draw: st.DrawFn) -> bytes:
    """Returns bytes of lengths and counts that lie, texts, and noise."""
    parts = draw(
        st.lists(
            st.sampled_from([varint(one) for one in (0, 1, 2, -1, 3, 2**31, 2**40, 2**62, -(2**62), 2**63 - 1)])
            | st.binary(max_size=12)
            | st.sampled_from([b"\xff" * 30, b"\x02" * 2_000, b"\x00" * 500, b"\x0a\x00" * 2_000]),
            max_size=8,
        )
    )
    return b"".join(parts)


@st.composite
def avro_data(draw: st.DrawFn, schema: Any, depth: int = 6) -> bytes:
    """Returns bytes that mostly have the form of an Avro schema, with lengths and counts that lie now and then."""
    if depth == 0 or draw(st.integers(0, 11)) == 0:
        return draw(blobs())
    if isinstance(schema, list) and schema:
        at = draw(st.integers(0, len(schema) - 1))
        return varint(at) + draw(avro_data(schema[at], depth - 1))
    kind = schema.get("type") if isinstance(schema, dict) else schema
    if kind == "record":
        return b"".join(draw(avro_data(one["type"], depth - 1)) for one in schema["fields"])
    if kind in ("array", "map"):
        count = draw(st.sampled_from([0, 1, 2, 2, -1, 2**31, 2**62]))
        inner = draw(avro_data(schema.get("items") or schema.get("values"), depth - 1))
        return varint(count) + b"".join([(b"\x02a" if kind == "map" else b"") + inner] * min(2, abs(count))) + b"\x00"
    if kind in ("string", "bytes"):
        text = draw(st.sampled_from([b"", b"a", "ü".encode(), b"\xff", b"x" * 300]))
        return varint(len(text)) + text
    if kind == "fixed":
        return b"\x01" * (schema["size"] if schema.get("size") in (0, 1, 8) else 3)
    sizes = {"float": b"\x00\x00\x80\x7f", "double": b"\xff" * 8, "boolean": b"\x01", "null": b""}
    return sizes[kind] if isinstance(kind, str) and kind in sizes else varint(draw(st.sampled_from([0, 1, *EDGES])))


@st.composite
def avro_messages(draw: st.DrawFn) -> tuple[Any, bytes]:
    """Returns Avro schemas with data."""
    schema = draw(avro_schemas() | st.just(_EMPTY_LISTS))
    return schema, draw(avro_data(schema))


_EMPTY: Final = {"type": "record", "name": "Empty", "fields": []}
_EMPTY_LISTS: Final = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": _EMPTY}, {"name": "b", "type": {"type": "array", "items": "Empty"}}],
}
"""Of which a count of nine bytes could claim a list of any length."""


@st.composite
def avro_schemas(draw: st.DrawFn, depth: int = 3) -> Any:  # noqa: C901  # a line for each kind
    """Returns Avro schemas: types that hold each other, lists of what has no bytes, sizes and scales of any size."""
    kind = draw(st.integers(0, 9 if depth else 4))
    name = draw(st.sampled_from(["A", "B", "C", "größe", "n.D", "1x", ""]))
    size = draw(st.sampled_from([0, 1, 8, -1, 2**31, 2**62, "8", None]))
    if kind <= 1:
        return draw(
            st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string", "A", "B", "n.D"])
        )
    if kind == 2:
        scale = draw(st.sampled_from([0, 2, -2, 2**31 - 1, 2**40, "2", None, 1.5]))
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": draw(st.sampled_from([1, 64, 2**40])),
            "scale": scale,
        }
    if kind == 3:
        return {"type": "fixed", "name": name, "size": size, "logicalType": "decimal", "precision": 9, "scale": 2}
    if kind == 4:
        logical = draw(st.sampled_from([("int", "date"), ("int", "time-millis"), ("long", "timestamp-millis")]))
        return {
            "type": logical[0],
            "logicalType": logical[1],
            "connect.version": draw(st.sampled_from([1, 2**40, "x"])),
        }
    if kind == 5:
        return {"type": "array", "items": draw(avro_schemas(depth - 1))}
    if kind == 6:
        return {"type": "map", "values": draw(avro_schemas(depth - 1))}
    if kind == 7:
        return draw(st.lists(avro_schemas(depth - 1), max_size=3))
    if kind == 8:
        return {
            "type": "enum",
            "name": name,
            "symbols": draw(st.lists(st.sampled_from(["X", "Ü", "a b", ""]), max_size=2)),
        }
    fields = draw(st.lists(avro_schemas(depth - 1), max_size=4))
    made = [{"name": one, "type": of} for one, of in zip(["a", "b", "größe", "d"], fields, strict=False)]
    for field in made:
        if draw(st.integers(0, 4)) == 0:
            field["default"] = draw(st.sampled_from([None, 0.1, 1, "x", "ÿ", [], {}, 2**70, True]))
    return {"type": "record", "name": name, "fields": made}


@st.composite
def json_schemas(draw: st.DrawFn, depth: int = 3) -> Any:
    """Returns JSON Schemas, also without types, with references that lead nowhere or back."""
    node: dict[str, Any] = {}
    kinds = [
        "string",
        "integer",
        "number",
        "boolean",
        "array",
        "object",
        "null",
        5,
        ["string", "null"],
        ["integer", "string"],
    ]
    if draw(st.integers(0, 3)):
        node["type"] = draw(st.sampled_from(kinds))
    if depth and node.get("type") in ("array", None):
        node["items"] = draw(json_schemas(depth - 1))
    if depth and node.get("type") in ("object", None):
        node["properties"] = {
            name: draw(json_schemas(depth - 1)) for name in draw(st.lists(st.sampled_from(FIELDS), max_size=3))
        }
    more = {
        "enum": ["a", 1, None],
        "const": 7,
        "allOf": [{"$ref": "#/definitions/a"}],
        "oneOf": [{"type": "null"}, {"type": "string"}],
        "$ref": "#/definitions/a",
        "title": DECIMAL,
        "connect.type": "float32",
        "connect.version": 2**40,
        "default": 0.1,
        "connect.parameters": {SCALE: LONG_DIGITS},
        "connect.index": "x",
        "required": 5,
        "definitions": {"a": {"$ref": "#/definitions/a"}},
    }
    for name in draw(st.lists(st.sampled_from(list(more)), max_size=3)):
        node[name] = more[name]
    if depth and draw(st.integers(0, 5)) == 0:
        node["allOf"] = draw(st.lists(json_schemas(depth - 1), max_size=2))
    return node


def _values_beyond(schema: Schema) -> st.SearchStrategy[Any]:
    """Returns values of a schema's type that no other code would give it."""
    match schema.type:
        case Type.BYTES:
            return st.sampled_from([b"", b"\x01", b"\x7f" * 2_100, b"\xff" * 9_000, b"\x80" * 65_537])
        case Type.FLOAT32 | Type.FLOAT64:
            edges = [0.1, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1e300]
            return st.sampled_from([float32(one) if schema.type is Type.FLOAT32 else one for one in edges])
        case Type.STRING:
            return texts
        case Type.BOOLEAN:
            return st.booleans()
        case _:
            bits = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32}.get(schema.type, 64)
            return st.sampled_from([0, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))])


@st.composite
def hostile_sides(draw: st.DrawFn) -> tuple[Schema | None, Any]:
    """Returns structs of values at the bounds of their types, and values without a schema."""
    if draw(st.integers(0, 3)) == 0:
        levels = draw(st.sampled_from([1, 50, 199]))
        value: Any = draw(texts | st.sampled_from([*EDGES[:30], 1e300, float("nan"), float("inf"), b"\x01", None]))
        for _ in range(levels):
            value = {draw(st.sampled_from(FIELDS)): value} if levels < 50 else {"id": value}
        return None, value
    fields, struct = [], {}
    for name in draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=5)):
        plain = [one for one in Type if one not in {Type.ARRAY, Type.MAP, Type.STRUCT}]
        made = draw(st.sampled_from([Schema(type=one) for one in plain] + list(_LOGICAL)))
        if made.name == DECIMAL:
            made = with_parts(made, parameters={SCALE: draw(scales)})
        made = with_parts(made, optional=draw(st.booleans()))
        fields.append(Field(name, made))
        struct[name] = draw(_values_beyond(made))
    return Schema(type=Type.STRUCT, name="a.Row", fields=tuple(fields)), struct


_LOGICAL: Final = (
    Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters={SCALE: "2"}),
    Schema(type=Type.INT32, name=DATE, version=1),
    Schema(type=Type.INT32, name=TIME, version=1),
    Schema(type=Type.INT64, name=TIMESTAMP, version=1),
)


@st.composite
def hostile_records(draw: st.DrawFn) -> ConnectRecord:
    """Returns records of ordinary values, and of values at the bounds."""
    if draw(st.booleans()):
        return draw(records())
    key_schema, key = draw(hostile_sides())
    value_schema, value = draw(hostile_sides())
    topic, at = draw(st.sampled_from(["orders", "t-1", "x" * 249])), draw(st.sampled_from([-1, 0, 2**62, -(2**62)]))
    return ConnectRecord(topic, 0, 2**62, at, key_schema, key, value_schema, value, (Header("h", b"\xff"),))
