"""What is tried: every converter and every transform, each with what it reads and what it has to write."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st
from msgspec import Struct

from connectors.chain.key_identity import JsonKeyIdentity
from connectors.converters.converter import Converter
from connectors.converters.header_converters import HeaderConverter, header_converter
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.converters.registered import RegisteredConverter
from connectors.data.canonical import plain, text_of
from connectors.data.java_text import to_string
from connectors.data.values import convert_to_string
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from connectors.transforms.literals import parse_string
from connectors.transforms.transform import Predicate, TruncateError
from tests.support.clocks import ManualClock
from tests.support.connect_classes.asking import _step
from tests.support.connect_classes.debezium_cases import CASES as DEBEZIUM
from tests.support.connect_classes.generated import Generator
from tests.support.connect_classes.kafka_cases import CASES as KAFKA
from tests.support.connect_classes.mongodb_cases import CASES as MONGODB
from tests.support.fuzz.hostile import (
    ORDINARY,
    avro_messages,
    blobs,
    documents,
    envelopes,
    hostile_records,
    hostile_sides,
    json_schemas,
    payloads,
    texts,
)
from tests.support.memory.schema_registry import MemoryRegistry


class Target(Struct, frozen=True):
    """Something that is called with cases; `heavy`: a case takes tens of ms of other processes, so fewer are tried."""

    name: str
    cases: st.SearchStrategy[Any]
    call: Callable[[Any], object]
    heavy: bool = False


_TOMBSTONES: Final = "io.confluent.connect.transforms.TombstoneHandler"
"""It has no configurations among the cases that real classes answer."""
_BY_CHANCE: Final = 8
"""How many configurations are drawn of a class whose cases draw theirs."""
_UNREADABLE: Final = st.sampled_from([b"", b"\x00", b"\xff" * 9, b"\x00" * 7]) | st.binary(max_size=40)


def targets() -> Iterator[Target]:
    """Yields all."""
    yield from _converters()
    yield from _registered()
    yield from _headers()
    yield from _transforms()
    yield Target(
        "key identity json", documents().map(str.encode) | _UNREADABLE, lambda data: JsonKeyIdentity().of((), data)
    )
    yield Target("literals", texts | documents(), parse_string)
    asked = {"call": "transform", "class": _TOMBSTONES, "config": {}}
    yield Target("TombstoneHandler", hostile_records(), partial(_applied, asked))
    yield Target("text of values", hostile_sides(), _texts)


def _texts(side: tuple[Any, Any]) -> None:
    """Each way to a text, so that what stumbles in one is not hidden by another."""
    text_of(plain(*side)) if side[0] is not None else None
    to_string(*side)
    convert_to_string(*side)


def _made(name: str, settings: Mapping[str, str]) -> Converter:
    kind = CONVERTERS.find(name).of.load()
    found = kind(read(kind.OPTIONS, settings), is_key=False)
    assert isinstance(found, Converter)
    return found


def _converters() -> Iterator[Target]:
    """Yields the converters without a registry; what they read they write again."""
    plain_json, no_schema = documents().map(str.encode), {"schemas.enable": "false"}
    settings: list[tuple[str, dict[str, str], st.SearchStrategy[bytes]]] = [
        ("Json", no_schema, plain_json | _UNREADABLE),
        ("Json", {}, envelopes()),
        ("Json", {"schema.content": json.dumps(ORDINARY)}, payloads(ORDINARY).map(str.encode)),
        ("Json", {"decimal.format": "NUMERIC", "replace.null.with.default": "false"}, envelopes()),
        ("String", {}, _UNREADABLE),
        *((name, {}, _UNREADABLE) for name in ("Bytes", "Boolean", "Short", "Integer", "Long", "Float", "Double")),
    ]
    for name, given, data in settings:
        converter = _made(name, given)
        yield Target(f"{name} {given} reads", data, partial(_again_or_null, converter))
        yield Target(f"{name} {given} writes", hostile_sides(), partial(_written, converter))


def _written(converter: Converter, side: tuple[Any, Any]) -> None:
    converter.from_connect_data("t", [], *side)


def _header(converter: HeaderConverter, side: tuple[Any, Any]) -> None:
    converter.from_connect_header("t", "h", *side)


def _again_or_null(converter: Converter, data: bytes) -> None:
    """Reads and writes; what is read as null has to be among what may be (`Converter.maybe_null`)."""
    _again(converter, data)
    if converter.to_connect_data("t", [], data)[1] is None:
        maybe = converter.maybe_null(pa.array([data], pa.binary()))
        assert maybe is not None
        assert maybe[0].as_py(), data


def _again(converter: Converter, data: bytes) -> None:
    schema, value = converter.to_connect_data("t", [], data)
    converter.from_connect_data("t", [], schema, value)


_PROTO: Final = (
    'syntax = "proto3"; import "google/protobuf/timestamp.proto"; import "google/type/date.proto"; '
    "message A { int32 a = 1; repeated B b = 2; map<string, B> c = 3; google.protobuf.Timestamp d = 4; "
    "google.type.Date e = 5; oneof f { string g = 6; uint64 h = 7; } enum E { X = 0; Y = 5; } E i = 8; } message B { "
    + "".join(f"float f{number} = {number}; " for number in range(1, 300))
    + "}",
    'syntax = "proto3"; import "google/type/timeofday.proto"; message A { google.type.TimeOfDay a = 1; bytes b = 2; }',
)


def _registered() -> Iterator[Target]:
    """Yields the converters whose schemas are in a registry, one of which is in memory."""
    kinds: list[tuple[str, str, st.SearchStrategy[Any]]] = [
        ("Avro", "AVRO", avro_messages()),
        ("JsonSchema", "JSON", st.tuples(json_schemas(), documents().map(str.encode))),
        ("Protobuf", "PROTOBUF", st.tuples(st.sampled_from(_PROTO), blobs())),
    ]
    for name, kind, messages in kinds:
        memory, given = MemoryRegistry(), {"schema.registry.url": "http://a:1"}
        converter = _made(name, given)
        assert isinstance(converter, RegisteredConverter)
        converter.registry = SchemaRegistry(registry_settings(converter.options), transport=memory, clock=ManualClock())
        yield Target(
            f"{name} reads",
            messages,
            partial(_registered_again, converter, memory, kind),
            heavy=name == "Protobuf",
        )
        yield Target(
            f"{name} writes",
            hostile_sides(),
            partial(_written, converter),
            heavy=name == "Protobuf",
        )


_NUMBERS: Final[dict[str, int]] = {}
"""The ids of Protobuf's schemas, which are few, as each is compiled."""


def _registered_again(converter: Converter, memory: MemoryRegistry, kind: str, message: tuple[Any, bytes]) -> None:
    schema, data = message
    if kind != "PROTOBUF":
        _again(converter, struct.pack(">bI", 0, memory.add(schema, schemaType=kind)) + data)
        return
    number = _NUMBERS.get(schema) or _NUMBERS.setdefault(schema, memory.add(schema, schemaType=kind))
    _again(converter, struct.pack(">bI", 0, number) + b"\x00" + data)


def _headers() -> Iterator[Target]:
    for one in HEADER_CONVERTERS.known:
        kind = one.load()
        made = header_converter(kind, read(kind.OPTIONS, {}))
        yield Target(
            f"header {one.simple}",
            hostile_sides() | texts.map(lambda text: (None, text)),
            partial(_header, made),
        )


def _transforms() -> Iterator[Target]:
    """Yields each transform and predicate, with each of its configurations, over hostile and over ordinary records."""
    for case in (*KAFKA, *DEBEZIUM, *MONGODB):
        configs = case.configs
        for config in [configs(Generator(seed)) for seed in range(_BY_CHANCE)] if callable(configs) else configs:
            asked = {"call": case.call, "class": case.name, "config": dict(config)}
            of_case = hostile_records() if case in KAFKA else case.records
            yield Target(f"{case.simple} {dict(config)}", of_case, partial(_applied, asked))


def _applied(asked: dict[str, Any], record: Any) -> None:
    step = _step(asked)
    with suppress(TruncateError):  # what a hostile event says as well as an ordinary one
        _ = step.test(record) if isinstance(step, Predicate) else step.apply(record)  # type: ignore[attr-defined]
