"""Makes structs with a schema of MongoDB's documents (Debezium's `MongoDataConverter`).

A document has no schema, so each value says its own type. The *shape* of a document is what its schema comes from;
those of equal shape share one schema, so that what converters keep for a schema is kept once. In a list all elements
have one type: documents have the fields of all of them, and a null fits each type. Debezium's class fails on some
lists that this one takes, and leaves empty lists out of a list.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from connectors.data.bounds import Extent, check_depth
from connectors.data.extended_json import Kind, bson_value
from connectors.data.kept import weight_of
from connectors.data.pace import paced
from connectors.data.schema import BOOLEAN, BYTES, FLOAT64, INT32, INT64, STRING, TIMESTAMP_SCHEMA, Field, Schema, Type
from connectors.errors import DataError
from connectors.kept_values import Kept

ARRAY: Final = "array"
DOCUMENT: Final = "document"
"""How an array is encoded (`array.encoding`): as a list, or as a struct with the fields `_0`, `_1`, …"""

_PLAIN: Final = {
    Kind.NULL: STRING,
    Kind.STRING: STRING,
    Kind.DOUBLE: FLOAT64,
    Kind.BINARY: BYTES,
    Kind.INT32: INT32,
    Kind.INT64: INT64,
    Kind.BOOLEAN: BOOLEAN,
    Kind.MOMENT: TIMESTAMP_SCHEMA,
}
_SCHEMAS: Final = {kind: schema.as_optional() for kind, schema in _PLAIN.items()}
_REGEX: Final = Schema(
    type=Type.STRUCT,
    optional=True,
    name="io.debezium.mongodb.regex",
    fields=(Field("regex", STRING.as_optional()), Field("options", STRING.as_optional())),
)
_KEPT: Final = 1_000
"""How many schemas are kept: those of documents of the same collection have few shapes, as a rule."""


class DocumentShape:
    """What a value's schema comes from; `fields` of a DOCUMENT by name, `items` of an ARRAY, None if it is empty.

    `has_name`: the schema of a DOCUMENT has a name. It has none if the document is empty.
    """

    __slots__ = ("fields", "has_name", "items", "kind")

    def __init__(self, kind: Kind, *, has_name: bool = False) -> None:
        self.kind = kind
        self.has_name = has_name
        self.fields: dict[str, DocumentShape] = {}
        self.items: DocumentShape | None = None

    def key(self) -> Hashable:
        """Returns what is equal for equal shapes."""
        if self.kind is Kind.DOCUMENT:
            return self.has_name, tuple((name, field.key()) for name, field in self.fields.items())
        return (self.kind, self.items and self.items.key()) if self.kind is Kind.ARRAY else self.kind

    def merged(self, other: DocumentShape) -> DocumentShape:
        """Returns the shape of what has this shape or `other`, which may be changed for it. Raises DataError."""
        if other is self or other.kind is Kind.NULL:
            return self
        if self.kind is Kind.NULL:
            return other
        if self.kind is not other.kind:
            raise DataError(
                f"Array elements with different BSON types are not supported: {self.kind.value} and "
                f"{other.kind.value}.",
                "Set array.encoding=document: each element has its own type then.",
            )
        self.has_name |= other.has_name
        for name, field in other.fields.items():
            own = self.fields.get(name)
            self.fields[name] = field if own is None else own.merged(field)
        if other.items is not None:
            self.items = other.items if self.items is None else self.items.merged(other.items)
        return self


_SHAPES: Final = {kind: DocumentShape(kind) for kind in (*_PLAIN, Kind.REGEX)}
"""The shapes of values that hold no others, which are never changed."""


class Documents:
    """Makes structs of documents with one `array.encoding`; keeps schemas by shape. Used by one thread."""

    def __init__(self, encoding: str) -> None:
        self._is_list = encoding == ARRAY
        self._schemas: Kept[Hashable, Schema] = Kept(_KEPT)

    def struct(self, name: str | None, document: Mapping[str, Any]) -> tuple[Schema, dict[str, Any]]:
        """Returns schema, with that name, and value of `document`, decoded Extended JSON. Raises DataError."""
        shape, value = self._document(document, 0)
        key = (name, shape.key())
        schema = self._schemas.get(key)
        if schema is None:
            made = _struct(name, shape, Extent())
            schema = self._schemas.put(key, made, 3 * weight_of(made))
        return schema, value

    def _document(self, document: Mapping[str, Any], depth: int) -> tuple[DocumentShape, dict[str, Any]]:
        shape, value = DocumentShape(Kind.DOCUMENT, has_name=bool(document)), dict[str, Any]()
        for name, node in paced(document.items()):
            made = self._value(node, depth + 1)
            if made is not None:
                shape.fields[name], value[name] = made
        return shape, value

    def _value(self, node: Any, depth: int) -> tuple[DocumentShape, Any] | None:
        """Returns shape and value of `node`; None for what is undefined, which has no field."""
        check_depth(depth)
        kind, value = bson_value(node)
        if kind is Kind.UNDEFINED:
            return None
        if kind is Kind.DOCUMENT:
            return self._document(value, depth)
        if kind is Kind.ARRAY:
            return self._list(value, depth) if self._is_list else self._elements(value, depth)
        if kind is Kind.REGEX:
            return _SHAPES[kind], {"regex": value[0], "options": value[1]}
        return _SHAPES[kind], value

    def _list(self, nodes: list[Any], depth: int) -> tuple[DocumentShape, list[Any]]:
        shape, values = DocumentShape(Kind.ARRAY), list[Any]()
        for node in paced(nodes):
            made = self._value(node, depth + 1)
            item, value = made or (_SHAPES[Kind.NULL], None)
            shape.items = item if shape.items is None else shape.items.merged(item)
            values.append(value)
        return shape, values

    def _elements(self, nodes: list[Any], depth: int) -> tuple[DocumentShape, dict[str, Any]]:
        shape, value = self._document({f"_{at}": node for at, node in enumerate(nodes)}, depth)
        shape.has_name = True
        return shape, value


def _struct(name: str | None, shape: DocumentShape, extent: Extent, *, optional: bool = False) -> Schema:
    with extent:
        fields = []
        for own, field in paced(shape.fields.items()):
            extent.add_text(len(own))
            fields.append(Field(own, _schema(f"{'null' if name is None else name}.{own}", field, extent)))
        return Schema(type=Type.STRUCT, optional=optional, name=name, fields=tuple(fields))


def _schema(name: str | None, shape: DocumentShape, extent: Extent) -> Schema:
    """Returns the schema of a field; `name` is that of a struct in it."""
    extent.add_text(len(name or ""))
    if shape.kind is Kind.DOCUMENT:
        return _struct(name if shape.has_name else None, shape, extent, optional=True)
    with extent:
        if shape.kind is Kind.ARRAY:
            items = shape.items or _SHAPES[Kind.NULL]
            inner = name if items.kind is Kind.DOCUMENT else None
            return Schema(type=Type.ARRAY, optional=True, value_schema=_schema(inner, items, extent))
        return _REGEX if shape.kind is Kind.REGEX else _SCHEMAS[shape.kind]
