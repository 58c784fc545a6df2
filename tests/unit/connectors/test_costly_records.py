"""What one record costs is bounded by its bytes, or given up: it takes neither the memory nor the time of a worker."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa
import pytest

from connectors.chain.chain_pool import borrowed
from connectors.chain.spec import chain_faults, chain_spec
from connectors.converters.converter import Converter
from connectors.converters.json.converter import JsonConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.data.bounds import MOST_NUMBER_KEYS, MOST_READ
from connectors.errors import DataError, PortionLateError
from connectors.options import read
from connectors.registry.patience import Patience
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_chain import batch, chain
from tests.unit.connectors.test_amplifying_keys import through

JSON: Final = {"value.converter": "keyfold.Json"}
PLAIN: Final = {**JSON, "value.converter.schemas.enable": "false"}
INSERT: Final = {
    "transforms": "i",
    "transforms.i.type": "InsertField$Value",
    "transforms.i.static.field": "z",
    "transforms.i.static.value": "1",
}
TO_KEY: Final = {
    "key.converter": "keyfold.String",
    "transforms": "k",
    "transforms.k.type": "ValueToKey",
    "transforms.k.fields": "a",
}


def seconds(work: Callable[[], Any]) -> float:
    """Returns the seconds of this thread's own time that `work` takes, the least of three times."""
    taken = []
    for _ in range(3):
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    return min(taken)


def enveloped(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def of_field(schema: dict[str, Any], payload: Any) -> bytes:
    """Returns a struct of one field `a`, with its schema."""
    return enveloped({"type": "struct", "fields": [{"field": "a", **schema}]}, {"a": payload})


class CountingClock(ManualClock):
    """A clock that is a second later each time that it is asked."""

    def monotonic_ms(self) -> int:
        """Counts."""
        return self.advance(1_000)


class Asked:
    """A patience that is over once it was asked `most` times; `times` has how often it was."""

    def __init__(self, most: float) -> None:
        self._clock = CountingClock(-1_000)
        self.patience = Patience(total_s=most, clock=self._clock)

    @property
    def times(self) -> int:
        """Counts the question itself, and that of the beginning."""
        return self._clock.at_ms // 1_000


def converted(settings: dict[str, str], asked: Asked, *values: bytes) -> pa.RecordBatch:
    """Returns what a chain of `settings` makes of records with these values, within the patience of `asked`."""
    assert chain_faults(settings, str) == ()
    with borrowed(chain_spec(settings), str, keyed=True, patience=asked.patience) as made:
        return made.apply(batch(*((b"k", value) for value in values)))


def with_default(fields: int, levels: int) -> bytes:
    """Returns a schema of `fields` fields within so many structs, each of which has a default."""
    node: dict[str, Any] = {"type": "struct", "optional": True}
    node["fields"] = [{"field": f"a{number}", "type": "int8", "optional": True} for number in range(fields)]
    for _ in range(levels):
        node = {"type": "struct", "optional": True, "fields": [{**node, "field": "x"}], "default": {}}
    return enveloped(node, None)


def test_a_default_costs_what_it_has_in_it_once() -> None:
    """Sixty structs around 3,000 fields, each with a default, are read and written about as fast as one."""

    def passed(data: bytes) -> None:
        converter = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
        schema, value = converter.to_connect_data("t", [], data)
        assert converter.from_connect_data("t", [], schema, value)

    few, many = with_default(3_000, 1), with_default(3_000, 60)
    assert seconds(lambda: passed(many)) < 8 * seconds(lambda: passed(few))


def json_map(kind: str, keys: list[Any]) -> tuple[Converter, bytes]:
    """Returns a map with these keys in JSON, and what reads it."""
    schema = {"type": "map", "keys": {"type": kind}, "values": {"type": "int8"}}
    payload = dict.fromkeys(keys, 0) if kind == "string" else [[key, 0] for key in keys]
    return JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False), of_field(schema, payload)


def protobuf_map(kind: str, keys: list[Any]) -> tuple[Converter, bytes]:
    """Returns a map with these keys in Protobuf, and what reads it."""
    memory = MemoryRegistry()
    converter = ProtobufConverter(read(ProtobufConverter.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=False)
    converter.registry = SchemaRegistry(registry_settings(converter.options), transport=memory, clock=ManualClock())
    number = memory.add(f'syntax = "proto3"; message M {{ map<{kind}, int32> a = 1; }}', schemaType="PROTOBUF")
    entries = [
        b"\x0a" + bytes([len(text)]) + text if kind == "string" else b"\x08" + unsigned(key)
        for key in keys
        for text in [str(key).encode()]
    ]
    data = b"".join(b"\x0a" + bytes([len(entry)]) + entry for entry in entries)
    return converter, struct.pack(">bI", 0, number) + b"\0" + data


def unsigned(number: int) -> bytes:
    """Returns a varint, without the zigzag of `varint`."""
    made = b""
    while number > 0x7F:
        made, number = made + bytes([number & 0x7F | 0x80]), number >> 7
    return made + bytes([number])


NUMBERS: Final = [
    *((json_map, kind) for kind in ("int16", "int32", "int64", "float", "double")),
    *((protobuf_map, kind) for kind in ("int32", "int64", "uint64")),
]


@pytest.mark.parametrize(("make", "kind"), NUMBERS)
def test_a_map_has_no_more_numbers_as_keys_than_may_collide(make: Any, kind: str) -> None:
    """Each may take one way through a dict with all others, whatever its seed."""
    whole = [float(number) if kind in {"float", "double"} else number for number in range(MOST_NUMBER_KEYS + 1)]
    converter, data = make(kind, whole[1:])
    assert len(converter.to_connect_data("t", [], data)[1]["a"]) == MOST_NUMBER_KEYS
    converter, data = make(kind, whole)
    with pytest.raises(DataError, match="too many entries whose keys are numbers"):
        converter.to_connect_data("t", [], data)


@pytest.mark.parametrize("make", [json_map, protobuf_map])
def test_a_map_may_have_any_number_of_texts_as_keys(make: Any) -> None:
    """They are hashed with a seed that nobody knows."""
    converter, data = make("string", [str(number) for number in range(2 * MOST_NUMBER_KEYS)])
    assert len(converter.to_connect_data("t", [], data)[1]["a"]) == 2 * MOST_NUMBER_KEYS


def test_maps_with_numbers_as_keys_are_counted_together() -> None:
    """Ten of a quarter of the most each are read, thirty are not; the next record counts anew."""
    schema = {"type": "map", "keys": {"type": "int64"}, "values": {"type": "int8"}}
    own = [[number, 0] for number in range(MOST_NUMBER_KEYS // 4)]
    converter = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    few, many = (of_field({"type": "array", "items": schema}, [own] * maps) for maps in (10, 30))
    for _ in range(2):
        assert len(converter.to_connect_data("t", [], few)[1]["a"]) == 10
        with pytest.raises(DataError, match="too many entries"):
            converter.to_connect_data("t", [], many)


def test_an_enum_of_protobuf_has_no_more_symbols_than_may_collide() -> None:
    """Their numbers are keys as well, which a schema chooses."""
    memory = MemoryRegistry()
    converter = ProtobufConverter(read(ProtobufConverter.OPTIONS, {"schema.registry.url": "http://a:1"}), is_key=False)
    converter.registry = SchemaRegistry(registry_settings(converter.options), transport=memory, clock=ManualClock())
    symbols = " ".join(f"S{number} = {number};" for number in range(MOST_NUMBER_KEYS + 1))
    number = memory.add(f'syntax = "proto3"; enum E {{ {symbols} }} message M {{ E a = 1; }}', schemaType="PROTOBUF")
    with pytest.raises(DataError, match="too many entries"):
        converter.to_connect_data("t", [], struct.pack(">bI", 0, number) + b"\x02\0")


MANY: Final = 50_000
LISTS: Final = {"type": "array", "items": {"type": "array", "items": {"type": "int32"}}}
WIDE: Final = {"type": "struct", "fields": [{"field": f"f{number}", "type": "int32"} for number in range(100)]}

LATE: Final[dict[str, tuple[dict[str, str], bytes]]] = {
    "a list without a schema": (PLAIN | INSERT, json.dumps({"a": [1] * MANY}).encode()),
    "an object without a schema": (PLAIN | INSERT, json.dumps(dict.fromkeys(map(str, range(MANY)), 1)).encode()),
    "lists in lists without a schema": (PLAIN | INSERT, json.dumps({"a": [[1] * 20] * (MANY // 20)}).encode()),
    "a list": (JSON | INSERT, of_field({"type": "array", "items": {"type": "float"}}, [1.5] * MANY)),
    "lists in lists": (JSON | INSERT, of_field(LISTS, [[1] * 20] * (MANY // 20))),
    "structs in a list": (
        JSON | INSERT,
        of_field({"type": "array", "items": WIDE}, [{f"f{number}": 1 for number in range(100)}] * (MANY // 100)),
    ),
    "a map": (
        JSON | INSERT,
        of_field(
            {"type": "map", "keys": {"type": "string"}, "values": {"type": "int32"}},
            dict.fromkeys(map(str, range(MANY)), 1),
        ),
    ),
    "a map of pairs": (
        JSON | INSERT,
        of_field({"type": "map", "keys": {"type": "bytes"}, "values": {"type": "int32"}}, [["AA==", 1]] * MANY),
    ),
}


@pytest.mark.parametrize("case", LATE)
def test_a_record_that_takes_long_is_given_up_in_its_midst(case: str) -> None:
    """Others wait for its portion: it is late while its members are gone over, not once the next record is due."""
    settings, value = LATE[case]
    with pytest.raises(PortionLateError, match="longer than others can wait"):
        converted(settings, Asked(3.5), value)
    asked = Asked(1_000)
    assert converted(settings, asked, value)["rejected"].to_pylist() == [None]
    assert asked.times >= 6


def test_what_is_written_as_text_is_given_up_in_its_midst() -> None:
    """A list of moments takes 6 us for each of them as a text, and a character or two to send."""
    moments = {"type": "array", "items": {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}}
    value = of_field(moments, [1] * MANY)
    whole, read_only = Asked(1_000), Asked(1_000)
    converted(JSON | {"output.value.converter": "keyfold.String"}, whole, value)
    converted(JSON | INSERT, read_only, value)
    assert whole.times >= 15, "ten while it is read, and as many while it is written"


def test_a_small_record_is_asked_about_once() -> None:
    """Its way is too short to be given up, and to ask would take a part of its time."""
    asked = Asked(1_000)
    converted(PLAIN | INSERT, asked, *([b'{"a":[1,2,{"b":3}],"c":"d"}'] * 100))
    assert asked.times <= 101


@pytest.mark.parametrize("side", ["key", "value"])
def test_what_a_step_looks_at_has_a_size(side: str) -> None:
    """Zeros of many megabytes fit into few bytes of a batch; the record is rejected with its bytes, next ones pass."""
    large = b'{"id":"' + b"a" * MOST_READ + b'"}'
    settings = PLAIN | INSERT
    if side == "key":
        key = {name.replace("value", "key"): text for name, text in PLAIN.items()}
        settings = {**key, **INSERT, "transforms.i.type": "InsertField$Key"}
    records = batch(*((text, text) for text in (large, b'{"id":"b"}')))
    (made,) = through(settings, records)
    (why, after) = made["rejected"].to_pylist()
    assert f"{side.upper()}_CONVERTER keyfold.Json DataError: It has {len(large)} bytes" in why
    assert "consumer.override.max.partition.fetch.bytes" in why
    assert after is None
    assert made[side][0].as_py() == large


def test_what_no_step_looks_at_has_any_size() -> None:
    """A record of 24 MB passes a chain that looks at its key, and stays what it is."""
    large = b"v" * (24 << 20)
    settings = {"key.converter": "keyfold.String", "output.key.converter": "keyfold.Json", **INSERT,
                "transforms.i.type": "HoistField$Key", "transforms.i.field": "k"}  # fmt: skip
    settings = {name: text for name, text in settings.items() if "static" not in name}
    made = list(through(settings, batch((b"k", large))))
    assert [value for piece in made for value in piece["value"].to_pylist()] == [large]
    assert [key for piece in made for key in piece["key"].to_pylist()] != [b"k"]


def test_the_identity_of_a_key_is_sought_within_that_size() -> None:
    """As that of a value that a transform looks at."""
    large = b'"' + b"a" * MOST_READ + b'"'
    made = list(through({"compaction.key.identity": "json"}, batch((large, b"v"), (b'"b"', b"v"))))
    whys = [why for piece in made for why in piece["rejected"].to_pylist()]
    assert whys[0].startswith("KEY_CONVERTER keyfold.JsonKeyIdentity DataError: It has")
    assert whys[1] is None


def test_a_record_that_is_refused_with_a_long_reason_costs_little() -> None:
    """The reason names its schema, of 40,000 characters; it is cut before it is searched for secrets."""
    schema = {"type": "struct", "name": "a" * 40_000, "fields": [{"field": "b", "type": "int32"}]}
    records = batch(*([(b"k", enveloped(schema, {"b": 1}))] * 100))
    made = chain(JSON | TO_KEY)
    (*_, why) = made.apply(records)["rejected"].to_pylist()
    assert "There is no field a" in why
    assert len(why) < 4_000
    assert seconds(lambda: made.apply(records)) < 0.3
