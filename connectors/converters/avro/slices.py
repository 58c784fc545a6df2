"""Reads only some fields of an Avro record, and keeps the bytes of a struct among them.

A step that takes one struct out of a record, as ExtractNewRecordState does, needs neither the fields after it decoded
nor the struct encoded again: in Avro it lies there as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import fastavro
from msgspec import Struct

from connectors.converters.avro.parsed import parsed_schema
from connectors.converters.avro.schemas import qualified
from connectors.converters.avro.skips import check_end, skip_of
from connectors.converters.avro.stream import stream_of
from connectors.errors import DataError

_NULL: Final = 0
_SECOND: Final = 2
"""The byte that says that a union's second branch follows (a zig-zag 1)."""
_NAMED: Final = ("record", "error", "enum", "fixed")


class EncodedStruct(dict[str, Any]):
    """A struct with the bytes that it is in Avro, and the form of its schema. A change makes another dict."""

    __slots__ = ("data", "form")
    data: bytes
    form: str


class FieldReader(Struct, frozen=True):
    """A field that is read, or passed over. `avro` is parsed; `form`: a nullable record, and its bytes are kept."""

    name: str
    avro: Any
    is_nullable: bool
    is_wanted: bool
    form: str | None


class PartialReader:
    """Reads `wanted` fields of the record `avro`; the others are missing. Those after the last are passed over."""

    def __init__(self, avro: Mapping[str, Any], wanted: frozenset[str]) -> None:
        named: dict[str, Any] = {}
        full = qualified(avro["name"], avro.get("namespace", ""))
        collect(avro, "", named)
        fields = avro["fields"]
        last = max((at for at, field in enumerate(fields) if field["name"] in wanted), default=-1)
        namespace = full.rpartition(".")[0]
        self._parts = [_field_reader(field, field["name"] in wanted, namespace, named) for field in fields[: last + 1]]
        rest = _alone({**avro, "fields": fields[last + 1 :]}, "", named, set())
        self._skip_rest = skip_of(rest)
        self.fields = tuple(
            (field["name"], _alone(field["type"], namespace, named, set()), at <= last)
            for at, field in enumerate(fields)
        )
        """The name and the type of each field of the record, and whether it is read, or passed over."""

    @property
    def forms(self) -> dict[str, str]:
        """The form (`form_of`) of each field that is null or a struct of which the bytes are kept."""
        return {part.name: part.form for part in self._parts if part.form is not None}

    def read(self, data: bytes, start: int) -> dict[str, Any]:
        """Returns the wanted fields of the record that begins at `start`. Raises what fastavro stumbles over.

        Data that ends within a field is an error, whether the field is wanted or not.
        """
        buffer, at = stream_of(data, start), start
        values: dict[str, Any] = {}
        for part in self._parts:
            value: Any = None
            if part.is_nullable and data[at] == _NULL:
                at += 1
            elif part.form is not None:
                if data[at] != _SECOND:
                    raise DataError("A union has a branch that its schema has not.")
                buffer.seek(at + 1)
                row, first = fastavro.schemaless_reader(buffer, part.avro, None), at + 1
                at = buffer.tell()
                value = _kept(row, data[first:at], part.form)
            else:
                buffer.seek(at)
                value = fastavro.schemaless_reader(buffer, part.avro, None)
                at = buffer.tell()
            if part.is_wanted:
                values[part.name] = value
        check_end(data, self._skip_rest(data, at))
        return values


def _kept(struct: Any, data: bytes, form: str) -> EncodedStruct:
    made = EncodedStruct(struct)
    made.data, made.form = data, form
    return made


def form_of(avro: Any) -> str:
    """Returns what decides how values lie in bytes: two schemas of one form encode alike."""
    named: dict[str, Any] = {}
    collect(avro, "", named)
    return json.dumps(_form(avro, "", named, ()), separators=(",", ":"))


def collect(avro: Any, namespace: str, named: dict[str, Any]) -> None:
    """Puts the named types of a schema into `named`, by their full names, each with the namespace that it stands in."""
    if isinstance(avro, list):
        for branch in avro:
            collect(branch, namespace, named)
    elif isinstance(avro, dict):
        if avro.get("type") in _NAMED and "name" in avro:
            full = qualified(avro["name"], avro.get("namespace", namespace))
            named.setdefault(full, (avro, full.rpartition(".")[0]))
            namespace = full.rpartition(".")[0]
        for name in ("type", "items", "values"):
            collect(avro.get(name), namespace, named)
        for field in avro.get("fields") or ():
            collect(field.get("type"), namespace, named)


def _form(avro: Any, namespace: str, named: Mapping[str, Any], inside: tuple[str, ...]) -> Any:
    if isinstance(avro, list):
        return [_form(branch, namespace, named, inside) for branch in avro]
    if isinstance(avro, str):
        full = qualified(avro, namespace)
        definition, outer = named.get(full, (None, ""))
        return avro if definition is None or full in inside else _form(definition, outer, named, (*inside, full))
    kind = avro["type"]
    if kind in {"record", "error"}:
        full = qualified(avro["name"], avro.get("namespace", namespace))
        inner = full.rpartition(".")[0]
        return [
            kind,
            [[field["name"], _form(field["type"], inner, named, (*inside, full))] for field in avro["fields"]],
        ]
    if kind in _SAID_BY:
        return [kind, avro[_SAID_BY[kind]]]
    if kind in _HOLDING:
        return [kind, _form(avro[_HOLDING[kind]], namespace, named, inside)]
    return _form(kind, namespace, named, inside)


_SAID_BY: Final = {"enum": "symbols", "fixed": "size"}
_HOLDING: Final = {"array": "items", "map": "values"}


def _field_reader(field: Mapping[str, Any], is_wanted: bool, namespace: str, named: Mapping[str, Any]) -> FieldReader:  # noqa: FBT001
    avro = field["type"]
    is_nullable = isinstance(avro, list) and len(avro) == 2 and avro[0] == "null"
    inner = avro[1] if is_nullable else avro
    own = _alone(inner, namespace, named, set())
    is_record = isinstance(own, dict) and own.get("type") == "record"
    keeps = is_wanted and is_nullable and is_record
    read = own if keeps else _alone(avro, namespace, named, set())
    return FieldReader(field["name"], parsed_schema(read, {}), is_nullable, is_wanted, form_of(own) if keeps else None)


def alone(avro: Any, named: Mapping[str, Any]) -> Any:
    """Returns a schema that defines each named type of `named` (see `collect`) at its first use."""
    return _alone(avro, "", named, set())


def _alone(avro: Any, namespace: str, named: Mapping[str, Any], defined: set[str]) -> Any:
    """Returns a schema that defines each named type at its first use."""
    if isinstance(avro, list):
        return [_alone(branch, namespace, named, defined) for branch in avro]
    if isinstance(avro, str):
        full = qualified(avro, namespace)
        definition, outer = named.get(full, (None, ""))
        return avro if definition is None else _defined_once(full, definition, outer, named, defined)
    if avro.get("type") in _NAMED:
        full = qualified(avro["name"], avro.get("namespace", namespace))
        return _defined_once(full, avro, full.rpartition(".")[0], named, defined)
    parts = ("type", "items", "values")
    inner = {name: _alone(avro[name], namespace, named, defined) for name in parts if name in avro}
    return {**avro, **inner}


def _defined_once(
    full: str, avro: Mapping[str, Any], namespace: str, named: Mapping[str, Any], defined: set[str]
) -> Any:
    """Returns the definition of a named type, or its name if it is defined already."""
    if full in defined:
        return full
    defined.add(full)
    made = {**avro, "name": full.rpartition(".")[2], "namespace": full.rpartition(".")[0]}
    if "fields" in made:
        made["fields"] = [
            {**field, "type": _alone(field["type"], namespace, named, defined)} for field in made["fields"]
        ]
    return made
