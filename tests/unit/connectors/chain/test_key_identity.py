"""Keys that mean the same have one identity; keys of one identity and one encoding are the same bytes."""

from __future__ import annotations

import gc
import io
import json
import struct
import tracemalloc
from typing import Any

import fastavro
import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.model.record import KEY_ENCODING, KEY_IDENTITY, RUN
from connectors.chain.chain import Chain
from connectors.chain.compared_keys import Compared
from connectors.chain.key_identity import AvroKeyIdentity, JsonKeyIdentity, compared, key_identity_of
from connectors.chain.spec import chain_faults, chain_spec, is_plain
from connectors.converters.avro.converter import AvroConverter
from connectors.data.record import Header
from connectors.errors import DataError, RegistryError
from connectors.options import read
from connectors.registry.schema_registry import SchemaRegistry
from connectors.registry.settings import registry_settings
from connectors.rejection import Stage, rejection_of
from tests.support.clocks import ManualClock
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_chain import batch

JSON = {"compaction.key.identity": "json"}


def identity_of(key: bytes) -> bytes:
    """Returns what a key is compared by."""
    return JsonKeyIdentity().of((), key).identity or key


@pytest.mark.parametrize(
    "keys",
    [
        [b'{"a":1,"b":2}', b'{"b": 2, "a": 1}', b' {"b":2.0,\n"a":10e-1} '],
        [b'"\xc3\xa9"', b'"\\u00e9"', b'"\\u00E9"'],
        [b"1", b"1.0", b"1e0", b"100E-2"],
        [b"-0", b"0", b"0.0"],
        [b"1e400", b"1" + b"0" * 400],
        [b"1" * 5000, b"1" * 5000 + b".0"],
        [b"[1,[2]]", b"[ 1, [ 2 ] ]"],
        [b"true", b"true "],
    ],
)
def test_forms_of_one_json_value_are_one_key(keys: list[bytes]) -> None:
    """Order of members, spaces, escapes, forms of numbers."""
    assert len({identity_of(key) for key in keys}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (b"1", b'"1"'),
        (b"[1,2]", b"[2,1]"),
        (b'{"a":null}', b"{}"),
        (b"0.1", b"0.10000000000000001"),
        (b"9007199254740993", b"9007199254740992"),
        (b'{"a":1}', b'{"A":1}'),
        (b'"\xc3\xa9"', b'"e\xcc\x81"'),
    ],
)
def test_other_json_values_are_other_keys(one: bytes, other: bytes) -> None:
    """Numbers are compared exactly; a null is a member; text is not normalized."""
    assert identity_of(one) != identity_of(other)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"{",
        b"\xff",
        b"NaN",
        b"[Infinity]",
        b"[" * 100_000,
        b"1e99999999999999999999",
        b'\xef\xbb\xbf"a"',
        b"\x00\x00\x00\x00\x01",
    ],
)
def test_a_key_that_is_no_json_is_an_error_of_its_record(key: bytes) -> None:
    """Deep nesting, endless numbers and a byte order mark among them."""
    with pytest.raises(DataError, match="no JSON"):
        JsonKeyIdentity().of((), key)


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abé", max_size=2), inner, max_size=3),
)
STYLES: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", ":")]),
    ensure_ascii=st.booleans(),
    sort_keys=st.booleans(),
)


@given(TREES, STYLES, STYLES)
def test_json_written_in_any_style_has_one_identity_and_an_encoding_is_one_key(
    tree: Any, one: dict[str, Any], other: dict[str, Any]
) -> None:
    """Where two keys of one identity have the same encoding they are the same bytes: then nothing is looked for."""
    texts = [json.dumps(tree, **style).encode() for style in (one, other)]
    (first, encoding), (second, another) = (JsonKeyIdentity().of((), text) for text in texts)
    assert (first or texts[0]) == (second or texts[1])
    assert encoding is None or encoding != another or texts[0] == texts[1]


def test_keys_as_producers_write_them_have_an_encoding() -> None:
    """Two usual styles, with any order of members: one encoding for all keys of a topic."""
    styles: list[dict[str, Any]] = [{"separators": (",", ":")}, {}, {"ensure_ascii": False}]
    for style in styles:
        keys = [json.dumps({"z": n, "a": {"é": str(n)}}, **style).encode() for n in range(3)]
        found = {JsonKeyIdentity().of((), key).encoding for key in keys}
        assert len(found) == 1
        assert None not in found
    assert JsonKeyIdentity().of((), b'{"a":1.50}').encoding is None


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_a_long_key_has_the_encoding_of_a_short_one(separators: tuple[str, str], is_ascii: bool) -> None:
    """It is held against the usual forms piece by piece; what differs from them at its end has none."""

    def found(value: Any, more: str = "") -> Compared:
        written = json.dumps(value, separators=separators, ensure_ascii=is_ascii) + more
        return JsonKeyIdentity().of((), written.encode())

    names = [f"ä{number * 7919 % 20_011}" for number in range(20_000)]
    long, short = found([dict.fromkeys(names, "é"), 1]), found([dict.fromkeys(["b", "a"], "é"), 1])
    assert (long.encoding or "")[:2] == (short.encoding or "")[:2] != ""
    assert json.loads(long.identity or b"") == [dict.fromkeys(names, "é"), 1]
    assert list(json.loads(long.identity or b"")[0]) == sorted(names)
    assert found([dict.fromkeys(names, "é"), 1], " ").encoding is None


V1 = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Key2",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
    ],
}
SCORED = {"type": "record", "name": "S", "fields": [{"name": "x", "type": "double"}]}


@pytest.fixture
def memory() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def avro(memory: MemoryRegistry) -> AvroKeyIdentity:
    options = read(AvroConverter.OPTIONS, {"schema.registry.url": "http://a:1/apis/ccompat/v7"})
    converter = AvroConverter(options, is_key=True)
    converter.registry = SchemaRegistry(registry_settings(options), transport=memory, clock=ManualClock())
    return AvroKeyIdentity(converter)


def encoded(schema: Any, number: int, value: Any) -> bytes:
    """Returns a key in the wire format."""
    buffer = io.BytesIO()
    buffer.write(struct.pack(">bI", 0, number))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def test_the_id_and_the_version_of_a_schema_make_no_difference(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """The encoding is the schema's id."""
    first, again, second = memory.add(V1), memory.add(V1, "other"), memory.add(V2)
    keys = [
        encoded(V1, first, {"id": 7}),
        encoded(V1, again, {"id": 7}),
        encoded(V2, second, {"id": 7, "note": None}),
    ]
    found = [avro.of((), key) for key in keys]
    assert {one.identity for one in found} == {b'{"id":7}'}
    assert [one.encoding for one in found] == [str(first), str(again), str(second)]
    other = avro.of((), encoded(V2, second, {"id": 7, "note": "x"}))
    assert other.identity == b'{"id":7,"note":"x"}'


def test_keys_with_another_value_are_others_whatever_their_defaults_are(
    memory: MemoryRegistry, avro: AvroKeyIdentity
) -> None:
    """Of two versions each may have its own default: a field that has it is said."""

    def key(region: str, default: str) -> bytes | None:
        fields = [*V1["fields"], {"name": "region", "type": "string", "default": default}]
        schema = {**V1, "fields": fields}
        return avro.of((), encoded(schema, memory.add(schema), {"id": 7, "region": region})).identity

    assert key("eu", "eu") == key("eu", "us") == b'{"id":7,"region":"eu"}'
    assert key("us", "us") == key("us", "eu") != key("eu", "eu")


def _record(name: str, *fields: str) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": one, "type": "long"} for one in fields]}


@pytest.mark.parametrize(
    ("union", "values"),
    [
        ([_record("UserId", "id"), _record("OrderId", "id")], [("UserId", {"id": 7}), ("OrderId", {"id": 7})]),
        (
            [{"type": "enum", "name": name, "symbols": ["A"]} for name in ("E1", "E2")] + ["string"],
            [("E1", "A"), ("E2", "A"), ("string", "A")],
        ),
        ([{"type": "fixed", "name": name, "size": 1} for name in ("F1", "F2")], [("F1", b"a"), ("F2", b"a")]),
        ([{"type": "map", "values": "long"}, _record("R", "id")], [("map", {"id": 7}), ("R", {"id": 7})]),
    ],
)
@pytest.mark.parametrize("as_field", [False, True])
def test_types_of_a_union_that_look_alike_make_other_keys(
    memory: MemoryRegistry, avro: AvroKeyIdentity, union: list[Any], values: list[Any], as_field: bool
) -> None:
    """Two records of the same fields, enums and texts, fixed bytes."""
    schema = {"type": "record", "name": "K", "fields": [{"name": "u", "type": union}]} if as_field else union
    number = memory.add(schema)
    keys = [encoded(schema, number, {"u": one} if as_field else one) for one in values]
    assert len({avro.of((), key).identity for key in keys}) == len(values)


def test_what_cannot_be_told_apart_is_no_key(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """Types whose names differ in the namespace alone."""
    twice = [{**_record("R", "id"), "namespace": name} for name in ("a", "b")]
    with pytest.raises(DataError, match="namespace"):
        avro.of((), encoded(twice, memory.add(twice), ("b.R", {"id": 7})))


def test_long_keys_are_not_remembered(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """65,536 of them would take all memory; those of up to 1 KiB are."""
    number, of_json = memory.add({"type": "string"}), JsonKeyIdentity()
    for text in ("a" * 1_000, "a" * 1_030):
        assert avro.of((), encoded("string", number, text)).identity == f'"{text}"'.encode()
        assert of_json.of((), f'"{text}"'.encode()).encoding == "="
        assert (len(avro._kept), len(of_json._kept)) == (1, 1)


def test_a_key_that_its_schema_would_write_otherwise_has_no_encoding(
    memory: MemoryRegistry, avro: AvroKeyIdentity
) -> None:
    """A number of more bytes than it needs; and a schema whose values are equal in two forms."""
    plain, scored = memory.add(V1), memory.add(SCORED)
    padded = struct.pack(">bI", 0, plain) + b"\x8e\x00"  # 7 as two bytes of which the second says nothing
    assert avro.of((), padded) == (b'{"id":7}', None)
    zeros = [avro.of((), encoded(SCORED, scored, {"x": zero})) for zero in (0.0, -0.0)]
    assert zeros == [(b'{"x":0}', None)] * 2


def test_what_a_schema_says_once_is_counted_before_an_identity_is_made(
    memory: MemoryRegistry, avro: AvroKeyIdentity
) -> None:
    """The name of a field stands in each element: a key of 4 kB would have an identity of 40 MB."""
    name = "n" * 10_000
    element = {"type": "record", "name": "E", "fields": [{"name": name, "type": "boolean"}]}
    many = {"type": "record", "name": "M", "fields": [{"name": "a", "type": {"type": "array", "items": element}}]}
    key = encoded(many, memory.add(json.dumps(many)), {"a": [{name: True}] * 4_000})
    with pytest.raises(DataError, match="would become one of more than"):
        avro.of([], key)


def test_an_identity_that_is_far_longer_than_its_key_is_given_up_while_it_is_written() -> None:
    """A key of 1.8 MB would have one of 90 MB: it is counted digit by digit, and ends at the bound of 29 MB."""
    key = b"[" + b",".join([b"1e300"] * 300_000) + b"]"
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="an identity of more than 28865552 bytes"):
            identity_of(key)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 85_000_000


def test_the_id_of_a_schema_may_be_in_a_header(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """Such a key has other bytes than one with the id before the data, so its encoding is another one."""
    number = memory.add(V1)
    header = Header("apicurio.key.globalId", struct.pack(">q", number))
    assert avro.of([Header("h", b"x"), header], b"\x0e") == (b'{"id":7}', f"g{number}h")
    assert avro.of((), encoded(V1, number, {"id": 7})) == (b'{"id":7}', str(number))


def test_a_key_that_cannot_be_read_is_compared_by_itself_where_it_is_in_the_output(avro: AvroKeyIdentity) -> None:
    """No identity begins as it does."""
    assert compared(avro, (), b"plain") == (b"\xffplain", None)
    with pytest.raises(DataError):
        avro.of((), b"plain")


def test_a_schema_that_makes_no_sense_is_an_error_of_its_records_alone(
    memory: MemoryRegistry, avro: AvroKeyIdentity
) -> None:
    """Here with a scale that is no number, which is seen as a key is read."""
    strange = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": "x"}
    bad = struct.pack(">bI", 0, memory.add(strange)) + b"\x02\x01"
    good = encoded(V1, memory.add(V1), {"id": 7})
    made = Chain(chain_spec(JSON), str)
    made._identity = avro
    found = made.apply(batch((bad, b"x"), (good, b"y")))
    assert found[KEY_IDENTITY].to_pylist() == [None, b'{"id":7}']
    first, second = found["rejected"].to_pylist()
    assert rejection_of(first).stage is Stage.KEY_CONVERTER
    assert second is None
    assert compared(avro, (), bad) == (b"\xff" + bad, None)


def test_a_registry_that_does_not_answer_gives_no_identity(memory: MemoryRegistry, avro: AvroKeyIdentity) -> None:
    """The batch fails, to be read again."""
    made = Chain(chain_spec(JSON), str)
    made._identity = avro
    key = encoded(V1, memory.add(V1), {"id": 7})
    memory.fails = [httpx.Response(401)] * 2
    with pytest.raises(RegistryError, match=r"It was asked for the record at topic t, partition 0, offset \d+\."):
        made.apply(batch((key, b"x")))
    with pytest.raises(RegistryError):
        compared(avro, (), key)


def test_the_chain_gives_each_record_the_identity_of_its_key() -> None:
    """Without any step no value is looked at; a key that has none rejects its record alone, and no key is none."""
    spec = chain_spec(JSON)
    assert not is_plain(spec)
    found = Chain(spec, str).apply(
        batch((b'{"b":1, "a":2}', b"\xff"), (b"{", b"x"), (None, b"y"), (b'{"a":2,"b":1}', None))
    )
    assert found["key"].to_pylist() == [b'{"b":1, "a":2}', b"{", None, b'{"a":2,"b":1}']
    assert found[KEY_IDENTITY].to_pylist() == [b'{"a":2,"b":1}', None, None, None]
    assert found[KEY_ENCODING].to_pylist() == [None, None, None, "="]
    assert found.schema.field(KEY_IDENTITY) == RUN.field(KEY_IDENTITY)
    rejections = [one and rejection_of(one) for one in found["rejected"].to_pylist()]
    assert [one and (one.stage, one.class_name) for one in rejections] == [
        None, (Stage.KEY_CONVERTER, "keyfold.JsonKeyIdentity"), None, None,
    ]  # fmt: skip


def test_a_record_whose_new_key_has_no_identity_is_as_it_was_read() -> None:
    """Its dead letter goes back to the source topic, where the transforms are applied once more."""
    settings = {
        **JSON,
        "key.converter": "StringConverter",
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "key,id,move",
        "transforms.key.type": "ValueToKey",
        "transforms.key.fields": "id",
        "transforms.id.type": "ExtractField$Key",
        "transforms.id.field": "id",
        "transforms.move.type": "HeaderFrom$Value",
        "transforms.move.fields": "id",
        "transforms.move.headers": "h",
        "transforms.move.operation": "move",
    }
    assert chain_faults(settings, str) == ()
    read = batch((b"x", b'{ "id": "{" }'), (b"y", b'{ "id": "7" }'), headers=[("own", b"1")])
    found = Chain(chain_spec(settings), str).apply(read)
    assert [one is not None for one in found["rejected"].to_pylist()] == [True, False]
    assert [found[name][0] for name in ("key", "value", "headers")] == [
        read[name][0] for name in ("key", "value", "headers")
    ]
    assert (found["key"][1].as_py(), found["value"][1].as_py()) == (b"7", b"{}")
    assert [one["key"] for one in found["headers"][1].as_py()] == ["own", "h"]


def test_an_empty_batch_has_the_columns_too() -> None:
    """A filter may have dropped all of it."""
    found = Chain(chain_spec(JSON), str).apply(batch())
    assert found.num_rows == 0
    assert pa.types.is_binary(found.schema.field(KEY_IDENTITY).type)


def test_avro_needs_its_converter_in_the_same_file() -> None:
    """A worker's default would not be fixed at the first start."""
    bare = {"compaction.key.identity": "avro"}
    assert [key for key, _ in chain_faults(bare, str)] == ["compaction.key.identity"]
    named = {
        **bare,
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter.schema.registry.url": "http://a",
    }
    assert chain_faults(named, str) == ()
    assert isinstance(key_identity_of(chain_spec(named), str), AvroKeyIdentity)
    assert key_identity_of(chain_spec({}), str) is None


def test_what_is_remembered_of_keys_is_nothing_to_the_collector_of_garbage() -> None:
    """It would go through a hundred thousand objects each time, and hold up every thread meanwhile."""
    identity = JsonKeyIdentity()
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(2):
        each = [identity.of((), b'{"id": %d}' % number) for number in range(2_000)]
        assert each == [Compared(b'{"id":%d}' % number, each[0].encoding) for number in range(2_000)]
        assert {type(one) for one in each} == {Compared}
    del each
    gc.collect()
    gc.collect()
    assert len(gc.get_objects()) - before < 200
