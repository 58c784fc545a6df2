"""Generates records: with and without schemas, tombstones, nulls, nested, all of Unicode."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Field, Schema, Type
from connectors.data.values import float32

TOPICS: Final = ("orders", "orders.eu", "t-1")
_BITS: Final = {Type.INT8: 8, Type.INT16: 16, Type.INT32: 32, Type.INT64: 64}
_LOGICAL: Final = {
    DATE: Schema(type=Type.INT32, name=DATE, version=1),
    TIME: Schema(type=Type.INT32, name=TIME, version=1),
    TIMESTAMP: Schema(type=Type.INT64, name=TIMESTAMP, version=1),
    DECIMAL: Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters={SCALE: "2"}),
}
FIELDS: Final = ("id", "name", "at", "inner", "ä b")
"""Names of fields, some of which every configuration of a case names."""

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FLOATS: Final = st.integers(-(10**9), 10**9).map(lambda number: number / 64)
"""Few digits: Java writes a double in the fewest digits that tell it from 19 on only."""


def whole(bits: int) -> st.SearchStrategy[int]:
    """Returns whole numbers of so many bits."""
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def plain_values(depth: int = 2) -> st.SearchStrategy[Any]:
    """Returns values without a schema, as JSON has them."""
    leaves = st.none() | st.booleans() | whole(64) | FLOATS | TEXTS
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS) | TEXTS, inner, max_size=4),
        max_leaves=depth * 4,
    )


def plain_maps() -> st.SearchStrategy[dict[str, Any]]:
    """Returns maps without a schema, with some of FIELDS."""
    return st.dictionaries(st.sampled_from(FIELDS) | TEXTS, plain_values(), max_size=5)


def values_of(schema: Schema) -> st.SearchStrategy[Any]:
    """Returns values of `schema`, in their encoded form; nulls where it is optional."""
    found = _required(schema)
    return st.none() | found if schema.optional else found


def _required(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.name in _LOGICAL:
        return _logical(schema)
    if schema.type in _BITS:
        return whole(_BITS[schema.type])
    if schema.type is Type.STRUCT:
        return st.fixed_dictionaries({one.name: values_of(one.schema) for one in schema.fields})
    if schema.type in {Type.ARRAY, Type.MAP}:
        return _collection(schema)
    kinds: dict[Type, st.SearchStrategy[Any]] = {
        Type.FLOAT32: st.integers(-(10**6), 10**6).map(lambda number: float32(number / 8)),
        Type.FLOAT64: FLOATS,
        Type.BOOLEAN: st.booleans(),
        Type.STRING: TEXTS,
        Type.BYTES: st.binary(max_size=6),
    }
    return kinds[schema.type]


def _logical(schema: Schema) -> st.SearchStrategy[Any]:
    if schema.name == DECIMAL:
        return st.binary(min_size=1, max_size=8).map(_shortest)
    if schema.name == TIME:
        return st.integers(0, 86_399_999)
    return st.integers(-100_000, 100_000) if schema.name == DATE else st.integers(-(10**13), 10**13)


def _shortest(data: bytes) -> bytes:
    number = int.from_bytes(data, "big", signed=True)
    return number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, "big", signed=True)


def _collection(schema: Schema) -> st.SearchStrategy[Any]:
    assert schema.value_schema is not None
    if schema.type is Type.ARRAY:
        return st.lists(values_of(schema.value_schema), max_size=3)
    assert schema.key_schema is not None
    return st.dictionaries(values_of(schema.key_schema), values_of(schema.value_schema), max_size=3)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2, *, maps: bool = True) -> Schema:
    """Returns a schema of any type, with defaults, names and documentation here and there."""
    plain = [one for one in Type if one not in {Type.STRUCT, Type.ARRAY, Type.MAP}]
    kind = draw(st.sampled_from([*plain, *_LOGICAL, *([Type.STRUCT, Type.ARRAY, Type.MAP] if depth else [])]))
    if isinstance(kind, str):
        made = _LOGICAL[kind]
    elif kind is Type.STRUCT:
        return draw(structs(depth - 1, maps=maps))
    elif kind is Type.ARRAY:
        made = Schema(type=kind, value_schema=draw(schemas(0)))
    elif kind is Type.MAP:
        if not maps:
            return draw(schemas(0))
        key = draw(st.sampled_from([Schema(type=Type.STRING), Schema(type=Type.INT32)]))
        made = Schema(type=kind, key_schema=key, value_schema=draw(schemas(0)))
    else:
        made = Schema(type=kind)
    made = with_parts(made, optional=draw(st.booleans()))
    if made.type not in {Type.ARRAY, Type.MAP} and draw(st.integers(0, 4)) == 0:
        made = with_parts(made, default=draw(_required(made)))
    return made


def with_parts(schema: Schema, **parts: Any) -> Schema:
    """Returns `schema` with other parts."""
    return Schema(**{**{name: getattr(schema, name) for name in Schema.__struct_fields__}, **parts})


@st.composite
def structs(draw: st.DrawFn, depth: int = 1, *, maps: bool = True) -> Schema:
    """Returns the schema of a struct with some of FIELDS."""
    names = draw(st.lists(st.sampled_from(FIELDS), unique=True, max_size=len(FIELDS)))
    fields = tuple(Field(name, draw(schemas(depth, maps=maps))) for name in names)
    about: dict[str, Any] = {
        "name": draw(st.none() | st.just("a.Row")),
        "version": draw(st.none() | st.integers(1, 9)),
        "doc": draw(st.none() | st.just("About it.")),
        "parameters": draw(st.none() | st.just({"p": "1"})),
    }
    return Schema(type=Type.STRUCT, fields=fields, optional=draw(st.booleans()), **about)


@st.composite
def sides(draw: st.DrawFn, *, maps: bool = True) -> tuple[Schema | None, Any]:
    """Returns a key or a value: mostly structures, with and without a schema; nulls too."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return None, None
    if kind <= 4:
        return None, draw(plain_maps())
    if kind == 5:
        return None, draw(plain_values())
    schema = draw(structs(maps=maps) if kind <= 8 else schemas(maps=maps))
    return schema, draw(values_of(schema))


@st.composite
def records(draw: st.DrawFn, *, maps: bool = True) -> ConnectRecord:
    """Returns records."""
    key_schema, key = draw(sides(maps=maps))
    value_schema, value = draw(sides(maps=maps))
    headers = draw(st.lists(st.tuples(st.sampled_from(["h", "g", "x"]), st.binary(max_size=3)), max_size=3))
    return ConnectRecord(
        draw(st.sampled_from(TOPICS)), draw(st.integers(0, 3)), draw(whole(32).map(abs)),
        draw(st.integers(0, 10**13)), key_schema, key, value_schema, value,
        tuple(Header(name, data) for name, data in headers),
    )  # fmt: skip
