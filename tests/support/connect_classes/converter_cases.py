"""Kafka's converters: what they write of generated values is read, and what is written of them is what they write."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hypothesis import strategies as st
from msgspec import Struct

from connectors.data.schema import DECIMAL, Schema, Type
from tests.support.connect_classes.cases import Draw, drawn
from tests.support.connect_classes.forms import schema_form, value_form
from tests.support.connect_classes.generated import Generator, generated
from tests.support.connect_classes.records import TEXTS, values_of

_CONVERTERS: Final = "org.apache.kafka.connect.converters."
JSON: Final = "org.apache.kafka.connect.json.JsonConverter"
Side = tuple[Schema | None, Any]


class ConverterCase(Struct, frozen=True):
    """A converter with its configurations; `sides` are schemas with values, which are written; None: nothing is.

    `texts` are data that is read; `json`: what is written are texts of JSON, of which the value counts.
    """

    name: str
    configs: Sequence[Mapping[str, str]]
    sides: Any
    texts: Any = None
    json: bool = False

    @property
    def simple(self) -> str:
        """The class's name without its package, as a file's."""
        first = self.configs[0]
        plain = ".plain" if first.get("schemas.enable") == "false" else ".content" if "schema.content" in first else ""
        return self.name.rpartition(".")[2] + plain

    def asked(self, draw: Draw = Draw()) -> Iterator[dict[str, Any]]:  # noqa: B008  # frozen
        """Yields what is asked: half of it to be written, half to be read; all of it where it is only read."""
        half = Draw(draw.count // 2, draw.seed)
        if self.sides is not None:
            for number, (schema, value) in enumerate(drawn(self.sides, half)):
                form = {"schema": schema_form(schema), "value": value_form(schema, value)}
                yield {**self._with(number, "from_connect_data"), **form}
        if self.texts is not None:
            for number, data in enumerate(drawn(self.texts, draw if self.sides is None else half)):
                form = {"data": None if data is None else base64.b64encode(data).decode()}
                yield {**self._with(number, "to_connect_data"), **form}

    def _with(self, number: int, call: str) -> dict[str, Any]:
        config = dict(self.configs[number % len(self.configs)])
        return {"call": call, "class": self.name, "config": config, "is_key": False}


def _numbers(kind: Type, size: int) -> Any:
    own = Schema(type=kind)
    sides = st.one_of(
        st.tuples(st.just(own), values_of(own)),
        st.tuples(st.just(own.as_optional()), values_of(own.as_optional())),
        st.tuples(st.just(Schema(type=Type.STRING)), TEXTS),
    )
    return sides, st.none() | st.binary(min_size=size, max_size=size) | st.binary(max_size=9)


def _number_case(name: str, kind: Type, size: int) -> ConverterCase:
    sides, texts = _numbers(kind, size)
    return ConverterCase(f"{_CONVERTERS}{name}", ({},), sides, texts)


def _typed_side(by: Generator) -> Side:
    schema = by.one_of(by.struct, by.schema)()
    return schema, by.value(schema)


@st.composite
def _enveloped(draw: st.DrawFn) -> bytes:
    """Returns messages with a schema, some of which do not fit it."""
    kinds = {
        "int32": st.integers(-(2**31), 2**31 - 1),
        "string": TEXTS,
        "boolean": st.booleans(),
        "double": st.just(1.5),
    }
    names = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
    fields, payload = [], {}
    for name in names:
        kind = draw(st.sampled_from(list(kinds)))
        optional = draw(st.booleans())
        fields.append({"type": kind, "optional": optional, "field": name})
        payload[name] = draw(st.none() | kinds[kind] if optional else kinds[kind])
    schema = {"type": "struct", "fields": fields, "optional": draw(st.booleans()), "name": "n"}
    return json.dumps(
        draw(
            st.sampled_from(
                [
                    {"schema": schema, "payload": payload},
                    {"schema": schema, "payload": None},
                    {"payload": None, "schema": schema},
                    payload,
                    {"schema": schema},
                    None,
                ]
            )
        )
    ).encode()


_CONTENT: Final = {
    "type": "struct",
    "name": "n",
    "fields": [
        {"type": "int32", "optional": False, "field": "a"},
        {"type": "string", "optional": True, "field": "b", "default": "x"},
        {"type": "array", "optional": True, "field": "c", "items": {"type": "double", "optional": True}},
    ],
}
"""A schema that messages do not have themselves (KIP-1054)."""


@st.composite
def _bare(draw: st.DrawFn) -> bytes:
    """Returns values of _CONTENT, some of which lack a field, or do not fit."""
    number = draw(st.integers(-(2**31), 2**31 - 1))
    value: dict[str, Any] = {"a": draw(st.sampled_from([number, number, number, None]))}
    if draw(st.booleans()):
        value["b"] = draw(st.none() | TEXTS)
    if draw(st.booleans()):
        value["c"] = draw(st.none() | st.lists(st.none() | st.just(1.5), max_size=3))
    whole = {"schema": _CONTENT, "payload": value}
    return json.dumps(draw(st.sampled_from([*[value] * 6, whole, None, {}]))).encode()


def _has_bytes(schema: Schema) -> bool:
    """Returns whether there are bytes anywhere, of which Java's text is where they are in memory."""
    if schema.type is Type.BYTES:
        return schema.name != DECIMAL
    inner = (schema.key_schema, schema.value_schema, *(one.schema for one in schema.fields))
    return any(_has_bytes(one) for one in inner if one is not None)


_TYPED: Final[Any] = generated(_typed_side)
_READABLE: Final[Any] = _TYPED.filter(lambda side: not _has_bytes(side[0]))
_PLAIN: Final = generated(lambda by: (None, by.plain(3)))
_FOR_JSON: Final = generated(_typed_side, plain_numbers=True)
_PLAIN_FOR_JSON: Final = generated(lambda by: (None, by.plain(3)), plain_numbers=True)

CASES: Final[tuple[ConverterCase, ...]] = (
    _number_case("ShortConverter", Type.INT16, 2),
    _number_case("IntegerConverter", Type.INT32, 4),
    _number_case("LongConverter", Type.INT64, 8),
    _number_case("FloatConverter", Type.FLOAT32, 4),
    _number_case("DoubleConverter", Type.FLOAT64, 8),
    _number_case("BooleanConverter", Type.BOOLEAN, 1),
    ConverterCase(
        "org.apache.kafka.connect.storage.StringConverter",
        ({},),
        st.tuples(st.just(Schema(type=Type.STRING)), TEXTS) | _PLAIN | _READABLE,
        st.none() | TEXTS.map(str.encode),
    ),
    ConverterCase(
        JSON,
        (
            {"schemas.enable": "true"},
            {"schemas.enable": "true", "decimal.format": "NUMERIC"},
            {"schemas.enable": "true", "replace.null.with.default": "false"},
        ),
        _FOR_JSON,
        _enveloped(),
        json=True,
    ),
    ConverterCase(
        JSON,
        (
            {"schemas.enable": "true", "schema.content": json.dumps(_CONTENT)},
            {"schemas.enable": "true", "schema.content": json.dumps({**_CONTENT, "optional": True})},
        ),
        None,
        _bare(),
        json=True,
    ),
    ConverterCase(
        JSON,
        ({"schemas.enable": "false"},),
        _PLAIN_FOR_JSON | _FOR_JSON,
        _PLAIN_FOR_JSON.map(lambda side: json.dumps(side[1]).encode())
        | st.sampled_from(
            [b"null", b" \t\r\nnull \t\r\n", b"", b"  ", b"\xef\xbb\xbfnull", "null".encode("utf-16"), b"nul"]
        ),
        json=True,
    ),
)
