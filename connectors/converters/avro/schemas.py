"""Makes Connect's schemas of Avro's and back, as Confluent's AvroData does (`io.confluent.connect.avro.AvroData`).

Avro's logical types date, time-millis, timestamp-millis and decimal are Connect's; their values are the same in both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from msgspec.structs import replace

from connectors.converters.avro.defaults import avro_default, value_of_default
from connectors.converters.avro.parsed import check_name
from connectors.data.bounds import Absences, Extent, whole_of
from connectors.data.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, UNION, Field, Schema, Type
from connectors.data.values import scale_of
from connectors.errors import DataError
from connectors.rejection import shown

ENUM: Final = "io.confluent.connect.avro.Enum"
DEFAULT_NAME: Final = "io.confluent.connect.avro.ConnectDefault"
FIXED_SIZE: Final = "connect.fixed.size"
FIXED_NAME: Final = "connect.fixed.name"
"""The parameter that keeps the name of a `fixed` that is a Decimal: the schema's own name is Connect's of Decimals."""
PRECISION: Final = "connect.decimal.precision"
_DEFAULT_PRECISION: Final = 64
"""The precision of a Decimal that says none, as in AvroData."""
_PRIMITIVES: Final = {
    "boolean": Type.BOOLEAN,
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "bytes": Type.BYTES,
    "string": Type.STRING,
}
_COUNTED_APART: Final = frozenset({"type", "items", "values", "fields"})
"""Parts of a type that hold others, each of which is counted as it is met."""
_SMALL: Final = {"int8": Type.INT8, "int16": Type.INT16}
_LOGICAL: Final = {"date": DATE, "time-millis": TIME, "timestamp-millis": TIMESTAMP}
_UNNAMED: Final = frozenset(
    {
        "time-micros", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
    }
)  # fmt: skip
"""Logical types of a long that Connect has no name for; `avro.` and the type is their name if one is asked for."""
_OF_CONNECT: Final = {DATE: ("int", "date"), TIME: ("int", "time-millis"), TIMESTAMP: ("long", "timestamp-millis")}
_AVRO: Final = {
    Type.INT8: "int", Type.INT16: "int", Type.INT32: "int", Type.INT64: "long", Type.FLOAT32: "float",
    Type.FLOAT64: "double", Type.BOOLEAN: "boolean", Type.STRING: "string", Type.BYTES: "bytes",
}  # fmt: skip


class FromAvro:
    """Makes Connect's schema of one Avro schema, in which every named type is defined at its first use.

    Raises DataError for what Connect cannot hold: types that contain themselves, or each other without end. With
    `names_logical`, logical types that Connect has no name for have one.
    """

    def __init__(self, *, names_logical: bool = False) -> None:
        self._names_logical = names_logical
        # The JSON of each named type that was met so far, by its full name: a later use of the name stands for it.
        self._named: dict[str, Any] = {}
        # The records that are being made now; one that is met again within itself is refused.
        self._inside: set[str] = set()
        self._extent = Extent()
        self._absences = Absences()  # of all defaults together

    def schema(self, avro: Any, namespace: str = "") -> Schema:
        """Returns the schema of `avro`, its JSON; `namespace` is that of its unqualified names."""
        if isinstance(avro, list):
            return self._union(avro, namespace)
        with self._extent:
            if isinstance(avro, str):
                return self._of_name(avro, namespace)
            if not isinstance(avro, dict) or "type" not in avro:
                raise DataError(
                    f"An Avro schema is a name, a list or an object with a type, and this is {shown(avro)}."
                )
            self._extent.add_said({name: part for name, part in avro.items() if name not in _COUNTED_APART})
            return self._with_properties(self._of_dict(avro, namespace), avro)

    def _of_name(self, name: str, namespace: str) -> Schema:
        if name in _PRIMITIVES:
            return Schema(type=_PRIMITIVES[name])
        if name == "null":
            raise DataError(
                "Null alone is no type that Connect has: a list of nulls would take any length for no byte."
            )
        self._extent.add_text(len(name) + len(namespace))
        full = qualified(name, namespace)
        if full not in self._named and name in self._named:  # as Java's Avro finds types without a namespace
            full = name
        if full in self._inside:
            raise DataError(f"The type {full} contains itself, which Connect's schemas cannot say.")
        if full not in self._named:
            raise DataError(f"The type {full} is not defined.")
        return self.schema(self._named[full], full.rpartition(".")[0])

    def _of_dict(self, avro: Mapping[str, Any], namespace: str) -> Schema:
        kind = avro["type"]
        if kind in {"record", "error", "enum", "fixed"}:
            return self._of_named(kind, avro, namespace)
        if kind == "array":
            return Schema(type=Type.ARRAY, value_schema=self.schema(avro["items"], namespace))
        if kind == "map":
            values = self.schema(avro["values"], namespace)
            return Schema(type=Type.MAP, key_schema=Schema(type=Type.STRING), value_schema=values)
        if not isinstance(kind, str) or kind not in _PRIMITIVES:
            return self.schema(kind, namespace)
        made = _logical(kind, avro)
        logical = str(avro.get("logicalType"))
        names = self._names_logical and kind == "long" and logical in _UNNAMED
        return replace(made, name=f"avro.{logical}") if names else made

    def _of_named(self, kind: str, avro: Mapping[str, Any], namespace: str) -> Schema:
        name, around = avro["name"], avro.get("namespace", namespace)
        self._extent.add_text(len(name) + len(around or ""))
        full = qualified(name, around)
        self._named[full] = avro
        inner = full.rpartition(".")[0]
        if kind == "fixed":
            return _fixed(full, avro)
        if kind == "enum":
            self._extent.add_text(len(ENUM), len(avro["symbols"]))
            symbols = {f"{ENUM}.{symbol}": symbol for symbol in _texts(avro["symbols"], "symbols of an enum")}
            return Schema(type=Type.STRING, name=full, parameters={ENUM: full, **symbols})
        self._inside.add(full)
        fields = tuple(self._field(field, inner) for field in avro["fields"])
        self._inside.discard(full)
        name = None if full == DEFAULT_NAME else full
        return Schema(type=Type.STRUCT, name=name, doc=avro.get("doc"), fields=fields)

    def _field(self, avro: Mapping[str, Any], namespace: str) -> Field:
        self._extent.add_said({name: part for name, part in avro.items() if name not in _COUNTED_APART})
        schema = self.schema(avro["type"], namespace)
        if avro.get("doc") and schema.doc is None:
            schema = replace(schema, doc=avro["doc"])
        default = avro.get("default")
        if default is not None and schema.default is None:
            schema = replace(schema, default=self._default(schema, default))
        return Field(avro["name"], schema)

    def _union(self, avro: list[Any], namespace: str) -> Schema:
        self._extent.add_members(len(avro))
        branches = [branch for branch in avro if branch != "null"]
        if len(branches) == 1:
            schema = self.schema(branches[0], namespace)
            return schema.as_optional() if len(avro) > 1 else schema
        fields = tuple(
            Field(branch_name(branch, namespace), self.schema(branch, namespace).as_optional()) for branch in branches
        )
        if len({field.name for field in fields}) < len(fields):
            raise DataError(
                "Two types of a union have one name in several namespaces, which Connect's schemas cannot say."
            )
        return Schema(type=Type.STRUCT, name=UNION, fields=fields, optional=len(branches) < len(avro))

    def _with_properties(self, schema: Schema, avro: Mapping[str, Any]) -> Schema:
        """Adds what Connect's own properties say (`connect.name` and its like)."""
        parts: dict[str, Any] = {}
        if "connect.name" in avro:
            parts["name"] = avro["connect.name"]
        if "connect.version" in avro:
            parts["version"] = whole_of(avro["connect.version"], "version of a schema")
        if "connect.doc" in avro:
            parts["doc"] = avro["connect.doc"]
        if avro.get("connect.parameters"):
            parts["parameters"] = {**(schema.parameters or {}), **_parameters(avro["connect.parameters"])}
        if avro.get("connect.type") in _SMALL:
            parts["type"] = _SMALL[avro["connect.type"]]
        updated = replace(schema, **parts) if parts else schema
        default = avro.get("connect.default")
        return updated if default is None else replace(updated, default=self._default(updated, default))

    def _default(self, schema: Schema, node: Any) -> Any:
        """Returns the value of a default, which is made at each use of its type."""
        return value_of_default(schema, node, self._absences)


def _texts(node: Any, what: str) -> list[str]:
    if not isinstance(node, list) or not all(isinstance(text, str) for text in node):
        raise DataError(f"The {what} are a list of texts, and this is {shown(node)}.")
    return node


def _parameters(node: Any) -> dict[str, str]:
    if not isinstance(node, dict) or not all(isinstance(text, str) for text in node.values()):
        raise DataError(f"The connect.parameters of a schema are an object of texts, and this is {shown(node)}.")
    return node


def qualified(name: str, namespace: str) -> str:
    """Returns the full name of a type."""
    return name if "." in name or not namespace else f"{namespace}.{name}"


Made = TypeVar("Made")


class OfTypes(ABC, Generic[Made]):
    """Makes something of an Avro schema type by type; of a named type once, at its first use, which defines it."""

    def __init__(self) -> None:
        # What was made of each named type so far, by its full name.
        self._known: dict[str, Made] = {}

    def of(self, avro: Any) -> Made:
        """Returns what is made of `avro`, the JSON of a type."""
        if isinstance(avro, list):
            return self.of_union(avro)
        kind = avro if isinstance(avro, str) else avro["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        if kind in self._known:
            return self._known[kind]
        made = self.of_kind(kind, avro)
        if isinstance(avro, dict) and "name" in avro:
            self._known[qualified(avro["name"], avro.get("namespace", ""))] = made
        return made

    @abstractmethod
    def of_union(self, branches: list[Any]) -> Made:
        """Returns what is made of a union."""

    @abstractmethod
    def of_kind(self, kind: str, avro: Any) -> Made:
        """Returns what is made of `avro`, a type of this kind that was not met before."""


def branch_name(avro: Any, namespace: str) -> str:
    """Returns the name of the field that stands for a branch of a union."""
    if isinstance(avro, str):
        return avro if avro in _PRIMITIVES else qualified(avro, namespace).rpartition(".")[2]
    return str(avro["name"]).rpartition(".")[2] if "name" in avro else str(avro["type"])


def name_of(schema: Schema, *, enums: bool) -> str | None:
    """Returns the full name of the Avro type that `ToAvro` makes of a schema; None if that has none."""
    parameters = schema.parameters or {}
    if schema.type is Type.STRUCT:
        return schema.name or DEFAULT_NAME
    if enums and ENUM in parameters:
        return parameters[ENUM]
    own = None if schema.name == DECIMAL else schema.name
    return (parameters.get(FIXED_NAME) or own or DEFAULT_NAME) if FIXED_SIZE in parameters else None


def _fixed(full: str, avro: Mapping[str, Any]) -> Schema:
    made = _logical("bytes", avro)
    size = whole_of(avro["size"], "size of a fixed")
    if size < 0:
        raise DataError(f"The size of a fixed is not below 0, and this is {size}.")
    named = {} if made.name is None else {FIXED_NAME: full}
    return replace(made, name=made.name or full, parameters={**(made.parameters or {}), FIXED_SIZE: str(size), **named})


def _logical(kind: str, avro: Mapping[str, Any]) -> Schema:
    schema = Schema(type=_PRIMITIVES[kind])
    logical = avro.get("logicalType")
    if logical == "decimal" and kind == "bytes":
        return replace(schema, name=DECIMAL, version=1, parameters=_decimal_parameters(avro))
    name = _LOGICAL.get(str(logical))
    return schema if name is None or _OF_CONNECT[name][0] != kind else replace(schema, name=name, version=1)


def _decimal_parameters(avro: Mapping[str, Any]) -> dict[str, str]:
    scale, precision = avro.get("scale"), avro.get("precision")
    parameters = {SCALE: str(0 if scale is None else whole_of(scale, "scale of a Decimal"))}
    if precision is None:
        return parameters
    digits = whole_of(precision, "precision of a Decimal")
    return parameters if digits == _DEFAULT_PRECISION else {**parameters, PRECISION: str(digits)}


def _decimal(schema: Schema) -> dict[str, Any]:
    """Returns what Avro says of a Decimal; nothing of other types."""
    if schema.name != DECIMAL:
        return {}
    precision = (schema.parameters or {}).get(PRECISION, _DEFAULT_PRECISION)
    digits = whole_of(precision, "precision of a Decimal")
    return {"scale": scale_of(schema), "precision": digits, "logicalType": "decimal"}


def _unnamed(schema: Schema) -> str | None:
    """Returns the logical type that a name stands for which `names_logical` has made; None of others."""
    prefix, _, logical = (schema.name or "").partition(".")
    return logical if prefix == "avro" and schema.type is Type.INT64 and logical in _UNNAMED else None


class ToAvro:
    """Makes the JSON of an Avro schema of a schema of Connect's; a named type is defined once.

    `properties`: what Avro has no place for is kept in properties (connect.meta.data). `enums`: texts that were an
    enum are one again (enhanced.avro.schema.support).
    """

    def __init__(self, *, properties: bool = True, enums: bool = False) -> None:
        self._properties = properties
        self.enums = enums
        # The schema of each named type that was written so far; the next use is its name alone.
        self._defined: dict[str, Schema] = {}
        self._has_namespace = False  # a record around what is made now, which would lend it its own

    def schema(self, schema: Schema) -> Any:
        """Returns the Avro schema of `schema`. Raises DataError for what Avro cannot hold."""
        made = self._required(schema)
        if not schema.optional or schema.name == UNION:
            return made
        return [made, "null"] if schema.default is not None else ["null", made]

    def _required(self, schema: Schema) -> Any:
        parameters = schema.parameters or {}
        if schema.type is Type.STRUCT:
            return self._union(schema) if schema.name == UNION else self._record(schema)
        if schema.type is Type.ARRAY and schema.value_schema is not None:
            return self._decorated(schema, {"type": "array", "items": self.schema(schema.value_schema)})
        if schema.type is Type.MAP:
            return self._map(schema)
        if self.enums and ENUM in parameters:
            return self._enum(schema, parameters)
        if FIXED_SIZE in parameters:
            name = name_of(schema, enums=False) or DEFAULT_NAME
            size = whole_of(parameters[FIXED_SIZE], "size of a fixed")
            return self._once(name, schema, {"type": "fixed", "size": size, **_decimal(schema)})
        return self._decorated(schema, self._plain(schema))

    def _plain(self, schema: Schema) -> dict[str, Any]:
        if schema.name == DECIMAL:
            return {"type": "bytes", **_decimal(schema)}
        if schema.name in _OF_CONNECT:
            kind, logical = _OF_CONNECT[schema.name]
            return {"type": kind, "logicalType": logical}
        unnamed = _unnamed(schema)
        if unnamed is not None:
            return {"type": "long", "logicalType": unnamed}
        made = {"type": _AVRO[schema.type]}
        return {**made, "connect.type": schema.type.value} if schema.type in {Type.INT8, Type.INT16} else made

    def _record(self, schema: Schema) -> Any:
        full, around = schema.name or DEFAULT_NAME, self._has_namespace
        self._has_namespace = around or "." in full
        fields = [self._field(field) for field in schema.fields]
        self._has_namespace = around
        made = {"type": "record", "fields": fields, **({"doc": schema.doc} if schema.doc else {})}
        return self._once(full, schema, made)

    def _field(self, field: Field) -> dict[str, Any]:
        schema = field.schema
        check_name(field.name, "field", "Rename it with ReplaceField, or give Flatten another delimiter.")
        made: dict[str, Any] = {"name": field.name, "type": self.schema(schema)}
        if schema.doc:
            made["doc"] = schema.doc
        if schema.default is not None:
            made["default"] = avro_default(schema, schema.default)
        elif schema.optional:
            made["default"] = None
        return made

    def _union(self, schema: Schema) -> list[Any]:
        branches = [self._required(field.schema) for field in schema.fields]
        return ["null", *branches] if schema.optional else branches

    def _map(self, schema: Schema) -> Any:
        assert schema.key_schema is not None
        assert schema.value_schema is not None
        values = self.schema(schema.value_schema)
        if schema.key_schema.type is Type.STRING and not schema.key_schema.optional:
            return self._decorated(schema, {"type": "map", "values": values})
        raise DataError("Avro's maps have texts as keys; this one has others.", "Cast the keys, or use keyfold.Json.")

    def _enum(self, schema: Schema, parameters: Mapping[str, str]) -> Any:
        symbols = [text for name, text in parameters.items() if name.startswith(f"{ENUM}.")]
        return self._once(parameters[ENUM], schema, {"type": "enum", "symbols": symbols})

    def _once(self, full: str, schema: Schema, made: dict[str, Any]) -> Any:
        """Defines a named type, or names it if it is defined already."""
        plain = replace(schema, optional=False, default=None, doc=None)
        if full in self._defined:
            if self._defined[full] != plain:
                raise DataError(f"Two schemas that differ have the name {full}.", "Rename one with SetSchemaMetadata.")
            return full
        self._defined[full] = plain
        namespace, _, name = full.rpartition(".")
        check_name(name, "type", "Rename it with SetSchemaMetadata.")
        # A type without a namespace would else take that of the type around it.
        said = {"namespace": namespace} if namespace or self._has_namespace else {}
        about = {"type": made["type"], "name": name, **said}
        return self._decorated(schema, {**about, **made})

    def _decorated(self, schema: Schema, made: dict[str, Any]) -> Any:
        if not self._properties:
            return made["type"] if made.keys() == {"type"} else made
        extra: dict[str, Any] = {}
        if schema.version is not None:
            extra["connect.version"] = schema.version
        if schema.parameters and schema.name != UNION:
            extra["connect.parameters"] = dict(schema.parameters)
        if schema.name is not None and schema.name != UNION and _unnamed(schema) is None:
            extra["connect.name"] = schema.name
        if schema.default is not None:
            extra["connect.default"] = avro_default(schema, schema.default)
        decorated = {**made, **extra}
        return decorated["type"] if decorated.keys() == {"type"} else decorated
