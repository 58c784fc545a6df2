"""A value that the converter reads as null is a tombstone before anything of the engine sees it."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final

import httpx
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.ingest.ingest import portions
from compactor.model.record import SOURCE
from compactor.storage.local import LocalStorage
from connectors.chain.conversion import Conversion, conversion_of
from connectors.chain.null_values import with_tombstones
from connectors.chain.spec import chain_spec, is_plain
from connectors.converters.json.converter import JsonConverter
from connectors.converters.registered import RegisteredConverter
from connectors.errors import DataError, RegistryError
from connectors.options import read
from connectors.source.arrow_records import range_rows
from connectors.source.plan import SourceRange
from connectors.source.read_task import write_transformed
from connectors.transforms.transform import Side
from tests.support.engine import intake
from tests.support.memory.schema_registry import MemoryRegistry
from tests.support.source_options import source_options
from tests.unit.connectors.chain.test_chain import PLAIN_JSON, batch, chain
from tests.unit.connectors.registry.test_schema_registry import registry

ENVELOPES: Final = {"value.converter": "JsonConverter"}
CONTENT: Final = {**ENVELOPES, "value.converter.schema.content": '{"type":"string","optional":true}'}
DELETED: Final = {"schema": {"type": "struct", "fields": [], "optional": True}, "payload": None}
UNWRAPPED: Final = {
    **ENVELOPES,
    "transforms": "u",
    "transforms.u.type": "ExtractField$Value",
    "transforms.u.field": "after",
}
UNKNOWN: Final = 9


@pytest.mark.parametrize(
    ("settings", "value", "is_null"),
    [
        (PLAIN_JSON, b"null", True),
        (PLAIN_JSON, b" \t\r\nnull \t\r\n", True),
        (PLAIN_JSON, b"", True),
        (PLAIN_JSON, b"  ", True),
        (PLAIN_JSON, b"\xef\xbb\xbfnull", True),
        (PLAIN_JSON, "null".encode("utf-16"), True),
        (PLAIN_JSON, "null".encode("utf-32"), True),
        (PLAIN_JSON, b'"null"', False),
        (PLAIN_JSON, b"nul", False),
        (PLAIN_JSON, b"NULL", False),
        (PLAIN_JSON, b"\x0cnull", False),
        (PLAIN_JSON, b"[null]", False),
        (PLAIN_JSON, b'{"payload":null}', False),
        (ENVELOPES, b"null", False),
        (ENVELOPES, b"", False),
        (ENVELOPES, b'{"schema":null,"payload":null}', True),
        (ENVELOPES, json.dumps(DELETED).encode(), True),
        (ENVELOPES, b'\n{ "payload" : null , "schema" : null } ', True),
        (ENVELOPES, b'{"pa\\u0079load":null,"schema":{"type":"string","optional":true}}', True),
        (ENVELOPES, b'{"schema":null,"payload":1,"payload":null}', True),
        (ENVELOPES, b'{"schema":null,"payload":{"payload":null}}', False),
        (ENVELOPES, b'{"payload":1,"schema":null}', False),
        (ENVELOPES, b'{"payload":null}', False),
        (ENVELOPES, b'{"schema":{"type":"string","optional":false},"payload":null}', False),
        (ENVELOPES, b'{"schema":{"type":"string","optional":true,"default":"x"},"payload":null}', False),
        (CONTENT, b"null", True),
        (CONTENT, b'"a"', False),
        (CONTENT, b"", False),
        ({}, b"null", False),
        ({"value.converter": "StringConverter"}, b"null", False),
        ({"value.converter": "StringConverter"}, b"", False),
        ({"value.converter": "LongConverter"}, b"\0" * 8, False),
    ],
)
def test_a_value_is_a_tombstone_if_kafka_s_converter_reads_it_as_null(
    settings: dict[str, str], value: bytes, is_null: bool
) -> None:
    """Kafka's own classes (4.3.1) were asked each of these; other bytes pass as they are, also what is no JSON."""
    kept = chain(settings).apply(batch((b"a", value), (b"b", b"\x01other")))
    assert kept["value"].to_pylist() == [None if is_null else value, b"\x01other"]
    assert kept["key"].to_pylist() == [b"a", b"b"]
    assert kept["rejected"].null_count == 2


@given(
    st.sampled_from(['{"schema":%s%s,%s"payload"%s:%s%s}', '{"payload"%s:%s%s,%s"schema":%s%s}']),
    st.lists(st.sampled_from(["", " ", "\n\t", "null", "1", '"null}"', '{"type":"string","optional":true}']),
             min_size=6, max_size=6),
    st.sampled_from(["", " ", "\r\n", "\ufeff"]),
)  # fmt: skip
def test_no_envelope_is_passed_over_that_is_a_null(form: str, parts: list[str], before: str) -> None:
    """Arrow's comparison may find too many, never too few."""
    data = (before + form % tuple(parts)).encode()
    converter = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    try:
        is_null = converter.to_connect_data("t", [], data)[1] is None
    except DataError:
        return
    maybe = converter.maybe_null(batch((b"k", data)).column("value"))
    assert maybe is not None
    assert maybe[0].as_py() or not is_null


def test_a_delete_that_a_transform_has_made_is_a_tombstone() -> None:
    """JsonConverter writes null with a schema as bytes, which it reads as null again."""
    row = {"type": "struct", "fields": [{"field": "id", "type": "int32"}], "optional": True}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"field": "op", "type": "string"}]
    schema = {"type": "struct", "name": "db.t.Envelope", "fields": fields}

    def event(op: str, after: Any) -> bytes:
        return json.dumps({"schema": schema, "payload": {"before": {"id": 1}, "after": after, "op": op}}).encode()

    kept = chain(UNWRAPPED).apply(batch((b"a", event("d", None)), (b"b", event("u", {"id": 2}))))
    assert kept["rejected"].null_count == 2
    assert kept["value"][0].as_py() is None
    assert json.loads(kept["value"][1].as_py())["payload"] == {"id": 2}


@pytest.mark.parametrize("side", ["Key", "Value"])
def test_a_null_is_a_tombstone_whatever_a_step_looks_at(side: str) -> None:
    """Keys alone, or the value too, which then stays null."""
    settings = {
        **PLAIN_JSON,
        "key.converter": "JsonConverter",
        "key.converter.schemas.enable": "false",
        "transforms": "m",
        "transforms.m.type": f"ReplaceField${side}",
        "transforms.m.exclude": "x",
    }
    kept = chain(settings).apply(batch((b'{"a":"x"}', b" null"), (b'{"a":"x"}', b'{"b":1}')))
    assert kept["value"].to_pylist()[0] is None
    assert json.loads(kept["value"][1].as_py())["b"] == 1
    assert kept["rejected"].null_count == 2


def test_a_null_is_a_tombstone_if_keys_are_compared_by_what_they_mean() -> None:
    """Also beside an identity, which looks at the key alone."""
    kept = chain({**PLAIN_JSON, "compaction.key.identity": "json"}).apply(batch((b'{"a": 1}', b"null")))
    assert kept["value"].to_pylist() == [None]


def test_a_dead_letter_has_the_bytes_that_came() -> None:
    """A record that was refused before stays as it is, and so does one that the chain refuses."""
    settings = {**PLAIN_JSON, "compaction.key.identity": "json"}
    rows = [{**row, "rejected": "a header"} for row in batch((b"a", b"null")).to_pylist()]
    refused = pa.RecordBatch.from_pylist(rows, schema=SOURCE)
    assert chain(PLAIN_JSON).apply(refused)["value"].to_pylist() == [b"null"]
    kept = chain(settings).apply(batch((b"no json", b"null")))
    assert (kept["value"].to_pylist(), kept["rejected"].null_count) == ([b"null"], 0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"value.converter": "StringConverter"}, True),
        ({"value.converter": "keyfold.Protobuf", "value.converter.schema.registry.url": "http://a:1"}, True),
        ({"key.converter": "JsonConverter"}, True),
        (PLAIN_JSON, False),
        (ENVELOPES, False),
    ],
)
def test_records_are_looked_at_only_if_some_bytes_are_a_null(settings: dict[str, str], expected: bool) -> None:
    """With other converters bytes are moved without any look at them."""
    assert is_plain(chain_spec(settings)) is expected


def test_the_engine_counts_a_null_as_a_tombstone(tmp_path: Path) -> None:
    """It is one in the files that reading tasks write: for the dirty ratio, for retention, for every reader."""
    options = source_options(topics=["t"], connector="c", intake=intake(LocalStorage(str(tmp_path))))
    records = batch((b"a", b"null"), (b"b", b"{}"))
    ranges = range_rows([(SourceRange("t", "id", 0, 0, 2), 0, 2)])
    rows = write_transformed([records, ranges], replace(options, chain=chain_spec(PLAIN_JSON)))
    written = portions(row for each in rows for row in each.to_pylist())[0]
    assert isinstance(written, Batch)
    assert [part.tombstones for part in written.parts] == [1]


def conversion(name: str, memory: MemoryRegistry) -> Conversion:
    """Makes the conversion of values by a converter that asks `memory`."""
    spec = chain_spec({"value.converter": name, "value.converter.schema.registry.url": "http://a:1"})
    made = conversion_of(spec, Side.VALUE, str, reads=False)
    assert isinstance(made.converter, RegisteredConverter)
    made.converter.registry = registry(memory)
    return made


def values_of(own: Conversion, *values: bytes, headers: Any = ()) -> list[bytes | None]:
    """Returns what becomes of values."""
    records = batch(*((b"k", value) for value in values), headers=headers)
    kept: list[bytes | None] = with_tombstones(records, own.converter, own.is_null)["value"].to_pylist()
    return kept


def with_id(number: int, data: bytes) -> bytes:
    """Writes data as Confluent's serializers do."""
    return struct.pack(">bI", 0, number) + data


ROW: Final = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


def test_a_null_of_a_union_of_avro_s_is_a_tombstone() -> None:
    """Confluent's serializer sends none itself, others may; one byte of a record, or a broken value, is none."""
    memory = MemoryRegistry()
    number, null, row = memory.add(["null", ROW]), memory.add('"null"'), memory.add(ROW)
    own = conversion("keyfold.Avro", memory)
    some, broken = with_id(number, b"\x02\x02"), with_id(UNKNOWN, b"\x00")
    values = with_id(number, b"\x00"), with_id(null, b""), some, with_id(row, b"\x00"), broken, b"", b"\x00"
    assert values_of(own, *values) == [None, None, *values[2:]]
    header = ("apicurio.value.contentId", struct.pack(">q", number))
    assert values_of(own, b"\x00", b"\x02\x02", headers=[header]) == [None, b"\x02\x02"]


def test_a_null_after_the_id_of_a_json_schema_is_a_tombstone() -> None:
    """If its schema takes null; where the id is in a header, it is the text alone."""
    memory = MemoryRegistry()
    schema = {"oneOf": [{"type": "null"}, {"type": "string"}]}
    number = memory.add(schema, schemaType="JSON")
    other = memory.add({"type": "string"}, "o", schemaType="JSON")
    own = conversion("keyfold.JsonSchema", memory)
    values = with_id(number, b" null\n"), with_id(number, b'"null"'), with_id(other, b"null"), b"null"
    assert values_of(own, *values) == [None, *values[1:]]
    header = ("apicurio.value.contentId", struct.pack(">q", number))
    assert values_of(own, b"null", headers=[header]) == [None]


def test_a_registry_is_asked_for_what_may_be_a_null_alone() -> None:
    """Values of other lengths need none; if it does not answer, the error has the record's place."""
    memory = MemoryRegistry()
    memory.always = httpx.Response(503)
    own = conversion("keyfold.Avro", memory)
    longer = with_id(1, b"\x02\x02")
    assert values_of(own, longer) == [longer]
    assert not memory.asked
    with pytest.raises(RegistryError, match="topic t, partition 0, offset 1"):
        values_of(own, longer, with_id(1, b"\x00"))
