"""Debezium's ExtractNewDocumentState over change events of MongoDB, tombstones, and what is no event of MongoDB."""

from __future__ import annotations

import json
from typing import Any, Final

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import INT32, INT64, STRING, Field, Schema, Type
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.generated import Generator, generated

_JSON: Final = Schema(type=Type.STRING, optional=True, name="io.debezium.data.Json", version=1)
_TEXTS: Final = Schema(type=Type.ARRAY, optional=True, value_schema=STRING)
_UPDATE: Final = Schema(
    type=Type.STRUCT,
    optional=True,
    name="io.debezium.connector.mongodb.changestream.updatedescription",
    fields=(Field("removedFields", _TEXTS), Field("updatedFields", _JSON)),
)
_SOURCE: Final = Schema(
    type=Type.STRUCT,
    name="io.debezium.connector.mongo.Source",
    fields=(Field("collection", STRING), Field("ord", INT32), Field("ts_ms", INT64.as_optional())),
)
_TRANSACTION: Final = Schema(type=Type.STRUCT, optional=True, fields=(Field("id", STRING),))
_IDS: Final = (
    "1004",
    "12.34",
    '"1234"',
    '{"$numberLong" : "5000000000"}',
    '{"$oid" : "596e275826f08b2730779e1f"}',
    '{"hi" : "kafka", "nums" : [10.0, 100.0]}',
    '{"$binary" : "a2Fma2E=", "$type" : "00"}',
)
_FIELDS: Final = ("a", "b", "c.d", "name", "größe", "_id", "__op")
_SCALARS: Final[tuple[Any, ...]] = (
    None,
    True,
    1,
    -5_000_000_000,
    1.5,
    "text",
    "",
    {"$oid": "596E275826f08b2730779e1f"},
    {"$numberInt": "7"},
    {"$numberLong": "7"},
    {"$numberDouble": "7.25"},
    {"$numberDouble": "NaN"},
    {"$numberDecimal": "1.50"},
    {"$date": 1_558_965_508_000},
    {"$date": "2019-05-27T14:38:28.123Z"},
    {"$date": {"$numberLong": "-1"}},
    {"$timestamp": {"t": 1_558_965_508, "i": 3}},
    {"$binary": "a2Fma2E=", "$type": "00"},
    {"$binary": {"base64": "a2Fma2E=", "subType": "00"}},
    {"$regularExpression": {"pattern": "^a", "options": "xi"}},
    {"$regex": "^a", "$options": "i"},
    {"$code": "return 1"},
    {"$ref": "other", "$id": 5},
    {"$undefined": True},
)
_ALIKE: Final = ((1, 2, -3), ("a", None, "b"), (1.5, 2.5), (True,), ({"$numberLong": "1"}, {"$numberLong": "2"}))
"""What stands in one list."""


def _document(by: Generator, depth: int) -> dict[str, Any]:
    names = dict.fromkeys(by.random.choices(_FIELDS, k=by.random.randint(0, 4)))
    return {name: _node(by, depth) for name in names}


def _node(by: Generator, depth: int) -> Any:
    kind = by.random.random()
    if depth == 0 or kind < 0.4:
        return by.one_of(*_SCALARS)
    if kind < 0.6:
        return _document(by, depth - 1)
    if kind < 0.7:
        return list(by.one_of(*_ALIKE))
    if kind < 0.9:
        return [_element(by, depth - 1) for _ in range(by.random.randint(1, 3))]
    return by.one_of([], [1, "a"], [[1], [2, 3]], [[{"x": 1}]], [None, {"x": 1}], [_document(by, 0), 1])


def _element(by: Generator, depth: int) -> dict[str, Any]:
    """Returns a document in a list: of a few fields, each of one type, unless it is of any."""
    if by.is_so(0.2):
        return _document(by, depth)
    made = {"x": by.one_of(1, 2), "y": by.one_of("p", None), "z": {"v": by.one_of(1.5, 2.5)}, "l": [by.one_of(1, 2)]}
    return {name: node for name, node in made.items() if by.is_so(0.6)}


def event(by: Generator) -> ConnectRecord:
    """Returns an event: inserted, updated with and without the whole document, deleted; or a tombstone."""
    schema = Schema(
        type=Type.STRUCT,
        name=by.one_of("d.c.Envelope", "d.c.Envelope", "d.c.Envelope", "d.c.Value"),
        fields=(
            *(Field(name, _JSON) for name in ("before", "after")),
            Field("updateDescription", _UPDATE),
            Field("source", _SOURCE),
            Field("transaction", _TRANSACTION),
            Field("op", STRING),
            Field("ts_ms", INT64.as_optional()),
        ),
    )
    kind = by.one_of("insert", "insert", "update", "partial", "delete", "delete")
    update = {"removedFields": by.one_of(None, ["a"], []), "updatedFields": by.one_of(None, _written(by))}
    value = {
        "before": by.one_of(None, _written(by)),
        "after": _written(by) if kind in {"insert", "update"} else None,
        "updateDescription": update if kind in {"update", "partial"} else None,
        "source": by.value(_SOURCE),
        "transaction": by.value(_TRANSACTION),
        "op": by.one_of("c", "u", "d", "r"),
        "ts_ms": by.value(INT64.as_optional()),
    }
    own, held = (None, None) if by.is_so(0.1) else (schema, value)
    key = Schema(
        type=Type.STRUCT, name=by.one_of("d.c.Key", *["d.c.Key"] * 5, "d.c.Other"), fields=(Field("id", STRING),)
    )
    headers = (Header("h", b"x"),) if by.is_so(0.3) else ()
    return ConnectRecord("d.c", 0, by.random.randint(0, 99), 5, key, {"id": by.one_of(*_IDS)}, own, held, headers)


def _written(by: Generator) -> str:
    return json.dumps(_document(by, 2), ensure_ascii=by.is_so(0.5))


_MODE: Final = "delete.tombstone.handling.mode"

CASES: Final[tuple[Case, ...]] = (
    Case(
        "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState",
        (
            {},
            {},
            {"array.encoding": "document"},
            {_MODE: "drop"},
            {_MODE: "rewrite"},
            {_MODE: "rewrite", f"{_MODE}.rewrite-with-id": "true"},
            {_MODE: "rewrite-with-tombstone"},
            {_MODE: "delete-to-tombstone"},
            {"flatten.struct": "true"},
            {"flatten.struct": "true", "flatten.struct.delimiter": ":"},
            {"add.fields": "op,ts_ms,collection,source.ord:nr"},
            {"add.fields": "op", "add.fields.prefix": "f_"},
        ),
        records=generated(event),
        bare_nulls=True,
    ),
)
"""Headers are added before the class looks whether a value is an event, so they are tested by themselves."""
