"""The output has converters of its own: what is kept and published has their form, whatever form the source has."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from compactor.model.record import KEY_IDENTITY, NULL_KEY
from connectors.chain.chain import Chain
from connectors.chain.fit import fit_faults
from connectors.chain.spec import chain_faults, chain_spec, is_plain
from connectors.config.connector import ConnectorConfig
from connectors.converters.avro.converter import AvroConverter
from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.options import read
from connectors.rejection import Stage, rejection_of
from tests.support.memory.schema_registry import MemoryRegistry, served
from tests.unit.connectors.chain.test_chain import PLAIN_JSON, batch
from tests.unit.connectors.chain.test_change_events import ENVELOPE

WITH_SCHEMAS: Final = {"key.converter": "JsonConverter", "value.converter": "JsonConverter"}
PLAIN_OUTPUT: Final = {
    "output.key.converter": "JsonConverter",
    "output.key.converter.schemas.enable": "false",
    "output.value.converter": "JsonConverter",
    "output.value.converter.schemas.enable": "false",
    "output.value.converter.decimal.format": "NUMERIC",
}
DECIMAL: Final = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    "field": "price",
    "optional": True,
}
ROW: Final = {
    "type": "struct",
    "name": "shop.Row",
    "fields": [{"field": "id", "type": "int32"}, {"field": "name", "type": "string", "optional": True}, DECIMAL],
}
ID: Final = {"type": "struct", "name": "shop.Key", "fields": [{"field": "id", "type": "int32"}]}
UNWRAP: Final = {"transforms": "e", "transforms.e.type": "io.debezium.transforms.ExtractNewRecordState"}


@pytest.fixture
def memory() -> MemoryRegistry:
    return MemoryRegistry()


@pytest.fixture
def url(memory: MemoryRegistry) -> Iterator[str]:
    with served(memory) as address:
        yield address


def enveloped(schema: Any, payload: Any) -> bytes:
    """Returns JSON as Debezium's connectors write it with schemas."""
    return json.dumps({"schema": schema, "payload": payload}).encode()


def row(number: int) -> tuple[bytes, bytes]:
    """Returns a key and a value with schemas; the price is 1.50."""
    return enveloped(ID, {"id": number}), enveloped(ROW, {"id": number, "name": "ann", "price": "AJY="})


def applied(
    settings: dict[str, str], *records: tuple[bytes | None, bytes | None], template: str = "${topic}.compacted"
) -> pa.RecordBatch:
    """Returns what the chain of a connector with these settings, which have no fault, makes of records of topic t."""
    given = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t", "output.topic": template}
    assert fit_faults(settings, {}, str) == ()
    made = Chain(ConnectorConfig.model_validate({**given, **settings}).chain_spec({}), str)
    try:
        return made.apply(batch(*records))
    finally:
        made.close()  # connections to a registry


def written(settings: dict[str, str], *records: tuple[bytes | None, bytes | None]) -> list[tuple[Any, Any]]:
    """Returns keys and values of what records become, none of which is rejected."""
    rows = applied(settings, *records)
    assert rows["rejected"].to_pylist() == [None] * len(records)
    return list(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True))


def of_registry(name: str, url: str, *sides: str) -> dict[str, str]:
    """Returns the settings of a converter with a schema registry for the output's `sides`."""
    own = [f"output.{side}.converter" for side in sides]
    return {key: text for each in own for key, text in ((each, name), (f"{each}.schema.registry.url", url))}


def test_json_with_schemas_becomes_plain_json() -> None:
    """The key loses its schema, and a Decimal is a number; a deletion stays one."""
    records = written({**WITH_SCHEMAS, **PLAIN_OUTPUT}, row(1), (row(2)[0], None))
    assert records == [(b'{"id":1}', b'{"id":1,"name":"ann","price":1.50}'), (b'{"id":2}', None)]


def test_what_has_the_form_of_the_output_keeps_its_bytes() -> None:
    """The same class with the same settings, also if one of them says its default: nothing is read."""
    settings = {**WITH_SCHEMAS, **{f"output.{name}": text for name, text in WITH_SCHEMAS.items()}}
    settings["output.value.converter.schemas.enable"] = "true"
    assert written(settings, row(1), (b"no JSON", b"{")) == [row(1), (b"no JSON", b"{")]


def test_one_side_may_have_another_form_alone() -> None:
    """The other one keeps its bytes, even those that its converter could not read."""
    of_keys = {name: text for name, text in PLAIN_OUTPUT.items() if ".key." in name}
    assert written({**WITH_SCHEMAS, **of_keys}, (row(1)[0], b"{")) == [(b'{"id":1}', b"{")]


def test_a_connector_with_converters_of_the_output_is_not_plain() -> None:
    """Its records go through a chain in the reading tasks."""
    assert is_plain(chain_spec({"key.converter": "JsonConverter"}))
    assert not is_plain(chain_spec({**WITH_SCHEMAS, **PLAIN_OUTPUT}))
    assert not is_plain(chain_spec({**WITH_SCHEMAS, "output.key.converter": "keyfold.Json"}))


@pytest.mark.parametrize("settings", [WITH_SCHEMAS, {**WITH_SCHEMAS, **UNWRAP}], ids=["rows", "change events"])
@pytest.mark.parametrize(
    ("name", "kind", "own"),
    [
        ("keyfold.Avro", AvroConverter, "decimal"),
        ("io.confluent.connect.json.JsonSchemaConverter", JsonSchemaConverter, "Decimal"),
    ],
)
def test_json_with_schemas_becomes_a_form_of_a_registry(
    memory: MemoryRegistry, url: str, settings: dict[str, str], name: str, kind: Any, own: str
) -> None:
    """Its schemas are those of the output topic's subjects; what is read again is what was written."""
    key, value = row(1)
    if "transforms" in settings:
        value = enveloped(
            {"type": "struct", "name": "shop.Envelope", "fields": [{**ROW, "field": "after", "optional": True}]},
            {"after": {"id": 1, "name": "ann", "price": "AJY="}},
        )
    ((new_key, new_value),) = written({**settings, **of_registry(name, url, "key", "value")}, (key, value))
    assert set(memory.subjects) == {"t.compacted-key", "t.compacted-value"}
    assert own in memory.schemas[1]["schema"]
    for is_key, data, fields in ((True, new_key, {"id": 1}), (False, new_value, {"id": 1, "name": "ann"})):
        converter = kind(read(kind.OPTIONS, {"schema.registry.url": url}), is_key=is_key)
        _, again = converter.to_connect_data("", [], data)
        converter.close()
        assert {**again, **fields} == again
    assert again["price"] == b"\x00\x96"


def test_avro_is_what_any_reader_of_avro_reads(memory: MemoryRegistry, url: str) -> None:
    """Here fastavro, with the schema that was registered and its logical types."""
    ((key, value),) = written({**WITH_SCHEMAS, **of_registry("keyfold.Avro", url, "value")}, row(1))
    assert key == row(1)[0]
    schema = json.loads(memory.schemas[struct.unpack(">I", value[1:5])[0] - 1]["schema"])
    again = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
    assert again == {"id": 1, "name": "ann", "price": Decimal("1.50")}


def test_change_events_in_avro_become_rows_in_plain_json(memory: MemoryRegistry, url: str) -> None:
    """The bytes of the row within the event are no JSON."""
    event = {"before": None, "after": {"id": 1, "name": "ann"}, "op": "c", "source": {"table": "t"}}
    buffer = io.BytesIO(struct.pack(">bI", 0, memory.add(ENVELOPE)))
    buffer.seek(0, io.SEEK_END)
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(ENVELOPE), event)
    settings = {
        "value.converter": "keyfold.Avro",
        "value.converter.schema.registry.url": url,
        "output.value.converter": "keyfold.Json",
        "output.value.converter.schemas.enable": "false",
    }
    ((_, value),) = written({**settings, **UNWRAP}, (b"k", buffer.getvalue()))
    assert json.loads(value) == {"id": 1, "name": "ann"}


def test_structs_become_protobuf(memory: MemoryRegistry, url: str) -> None:
    """The file that is registered for the output has the row's fields."""
    schema = {**ROW, "fields": ROW["fields"][:2]}
    records = (b"k", enveloped(schema, {"id": 1, "name": "ann"}))
    ((_, value),) = written({**WITH_SCHEMAS, **of_registry("keyfold.Protobuf", url, "value")}, records)
    assert list(memory.subjects) == ["t.compacted-value"]
    converter = ProtobufConverter(read(ProtobufConverter.OPTIONS, {"schema.registry.url": url}), is_key=False)
    assert converter.to_connect_data("", [], value)[1] == {"id": 1, "name": "ann"}
    converter.close()


@pytest.mark.parametrize(
    ("template", "subject"), [("rows.${topic}", "rows.t-value"), ("none", "t-value"), ("${env:NAME}.x", "shop.x-value")]
)
def test_schemas_are_those_of_the_output_topic(
    memory: MemoryRegistry, url: str, template: str, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the source's if nothing is published; a placeholder in the topic's name is resolved."""
    monkeypatch.setenv("NAME", "shop")
    settings = {**WITH_SCHEMAS, **of_registry("keyfold.Avro", url, "value")}
    applied(settings, row(1), template=template)
    assert list(memory.subjects) == [subject]


@pytest.mark.parametrize(
    ("record", "becomes"),
    [
        ((b'{"id": 1}', b"null"), (b'{"schema":null,"payload":{"id":1}}', None)),
        ((b"1", b" "), (b'{"schema":null,"payload":1}', None)),
    ],
)
def test_a_null_is_a_tombstone(record: tuple[bytes, bytes], becomes: tuple[bytes, bytes | None]) -> None:
    """No form of the output has another one."""
    plain = {**PLAIN_JSON, "key.converter": "JsonConverter", "key.converter.schemas.enable": "false"}
    output = {"output.key.converter": "keyfold.Json", "output.value.converter": "keyfold.Json"}
    assert written({**plain, **output}, record) == [becomes]


def test_a_null_with_a_schema_is_a_tombstone() -> None:
    """What Debezium's unwrap leaves of a deleted row, as JsonConverter writes it."""
    deleted = enveloped({**ROW, "optional": True}, None)
    output = {"output.value.converter": "keyfold.Json", "output.value.converter.decimal.format": "NUMERIC"}
    assert written({**WITH_SCHEMAS, **output}, (b"k", deleted)) == [(b"k", None)]


@pytest.mark.parametrize("replaces", [True, False])
def test_a_null_in_a_field_with_a_default(replaces: bool) -> None:
    """It stands for the default as with Kafka's class, unless the settings of both converters say that it does not."""
    name = {"field": "name", "type": "string", "optional": True, "default": "none"}
    record = (row(1)[0], enveloped({**ROW, "fields": [name]}, {"name": None}))
    sides = ("value.converter", "output.value.converter")
    own = {} if replaces else {f"{side}.replace.null.with.default": "false" for side in sides}
    expected = b'{"name":"none"}' if replaces else b'{"name":null}'
    assert written({**WITH_SCHEMAS, **PLAIN_OUTPUT, **own}, record) == [(b'{"id":1}', expected)]


def test_a_key_that_becomes_null_is_the_key_of_nothing() -> None:
    """The record is rejected with the bytes that it came with."""
    rows = applied({**WITH_SCHEMAS, **PLAIN_OUTPUT}, (enveloped(None, None), row(1)[1]))
    assert rows["rejected"].to_pylist() == [NULL_KEY]
    assert rows["key"].to_pylist() == [enveloped(None, None)]


def test_what_cannot_be_written_is_rejected_alone_and_names_the_output_s_class() -> None:
    """With the bytes that it came with; its neighbours pass."""
    settings = {**PLAIN_JSON, "key.converter": "keyfold.String", "output.key.converter": "keyfold.Json"}
    settings |= {"output.value.converter": "org.apache.kafka.connect.converters.IntegerConverter"}
    rows = applied(settings, (b"a", b'"text"'), (b"b", b"7"), (b"c", b"{"))
    assert rows["value"].to_pylist() == [b'"text"', b"\0\0\0\7", b"{"]
    first, second, third = rows["rejected"].to_pylist()
    assert second is None
    names = [(rejection_of(each).stage, rejection_of(each).class_name) for each in (first, third)]
    assert names == [
        (Stage.VALUE_CONVERTER, "org.apache.kafka.connect.converters.IntegerConverter"),
        (Stage.VALUE_CONVERTER, "JsonConverter"),
    ]
    assert rows["key"].to_pylist()[0] == b"a"


def test_a_schema_does_not_make_short_records_long_without_bound(memory: MemoryRegistry, url: str) -> None:
    """What is said once for all records in a registry would stand in each of them."""
    inner = {"type": "record", "name": "I", "doc": "\x01" * 500_000, "fields": [{"name": "a", "type": "int"}]}
    fields = [{"name": f"f{number}", "type": "I" if number else inner} for number in range(17)]
    number = memory.add({"type": "record", "name": "R", "fields": fields})
    settings = {
        "value.converter": "keyfold.Avro",
        "value.converter.schema.registry.url": url,
        "output.value.converter": "keyfold.Json",
    }
    rows = applied(settings, (b"k", struct.pack(">bI", 0, number) + b"\x02" * 17))
    assert "would become one of more than" in rows["rejected"].to_pylist()[0]


def test_keys_are_compared_as_they_are_written() -> None:
    """Two encodings of a key in the source are one in the output, and their identity is that of what is kept."""
    plain_keys = {name: text for name, text in PLAIN_OUTPUT.items() if ".key." in name}
    settings = {**WITH_SCHEMAS, **plain_keys, "compaction.key.identity": "json"}
    wide = {**ID, "fields": [{"field": "id", "type": "int64"}]}
    rows = applied(settings, (row(7)[0], b"1"), (enveloped(wide, {"id": 7}), b"2"))
    assert rows["key"].to_pylist() == [b'{"id":7}'] * 2
    assert rows[KEY_IDENTITY].to_pylist() == [None, None]  # they are their own identity


def test_avro_keys_of_the_output_are_compared_by_its_registry(memory: MemoryRegistry, url: str) -> None:
    """The source's keys need be no Avro for it."""
    settings = {**WITH_SCHEMAS, **of_registry("keyfold.Avro", url, "key"), "compaction.key.identity": "avro"}
    rows = applied(settings, row(7))
    assert rows["rejected"].to_pylist() == [None]
    assert rows[KEY_IDENTITY].to_pylist() == [b'{"id":7}']
    assert "t.compacted-key" in memory.subjects


AVRO_OUT: Final = of_registry("keyfold.Avro", "http://a:1", "value")


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        ({"output.value.converter.schemas.enable": "false"}, "output.value.converter.schemas.enable", "no effect"),
        ({"output.key.converter": "keyfold.None"}, "output.key.converter", "is not allowed"),
        ({"output.value.converter": "keyfold.Avro"}, "output.value.converter.schema.registry.url", "missing"),
        (
            {**WITH_SCHEMAS, **of_registry("keyfold.Avro", "http://a:1", "key"), "compaction.key.identity": "json"},
            "compaction.key.identity",
            "writes no JSON",
        ),
        (
            {
                "key.converter": "keyfold.Avro",
                "key.converter.schema.registry.url": "http://a:1",
                "output.key.converter": "keyfold.Json",
                "compaction.key.identity": "avro",
            },
            "compaction.key.identity",
            "output.key.converter",
        ),
    ],
)
def test_settings_of_the_output_s_converters_are_checked(settings: dict[str, str], key: str, said: str) -> None:
    """As those of the others are."""
    ((at, text),) = chain_faults(settings, str)
    assert at == key
    assert said in text


@pytest.mark.parametrize(
    ("settings", "key", "said"),
    [
        (AVRO_OUT, "output.value.converter", "value.converter is missing"),
        ({**AVRO_OUT, **PLAIN_JSON}, "output.value.converter", "value.converter.schema.content"),
        (
            {"value.converter": "StringConverter", "output.value.converter": "keyfold.Long"},
            "output.value.converter",
            "one type alone",
        ),
        (
            {"key.converter": "keyfold.Long", "output.key.converter": "keyfold.Bytes"},
            "output.key.converter",
            "keyfold.Long",
        ),
        (
            {
                "key.converter": "keyfold.Long",
                **of_registry("ProtobufConverter", "http://a:1", "key"),
            },
            "output.key.converter",
            "structs alone",
        ),
        (
            {
                **PLAIN_JSON,
                "transforms": "k",
                "transforms.k.type": "ValueToKey",
                "transforms.k.fields": "id",
                "output.key.converter": "keyfold.Bytes",
            },
            "output.key.converter",
            "transforms.k makes a key",
        ),
    ],
)
def test_what_the_output_cannot_be_made_of_is_refused(settings: dict[str, str], key: str, said: str) -> None:
    """Every record would be lost for it."""
    assert chain_faults(settings, str) == ()
    ((at, text),) = fit_faults(settings, {}, str)
    assert at == key
    assert said in text


@pytest.mark.parametrize(
    "settings",
    [
        {**WITH_SCHEMAS, **AVRO_OUT},
        {**PLAIN_JSON, "value.converter.schemas.enable": "true", "value.converter.schema.content": "1", **AVRO_OUT},
        {"value.converter": "keyfold.Bytes", **AVRO_OUT},
        {"value.converter": "keyfold.Bytes", "output.value.converter": "keyfold.Bytes"},
        {"output.value.converter": "keyfold.Bytes"},
        {"key.converter": "keyfold.Long", "output.key.converter": "keyfold.Json"},
        {
            **PLAIN_JSON,
            "transforms": "k",
            "transforms.k.type": "ValueToKey",
            "transforms.k.fields": "id",
            "output.key.converter": "keyfold.Json",
        },
    ],
)
def test_what_the_output_may_be_made_of_is_taken(settings: dict[str, str]) -> None:
    """A key that a transform makes needs no converter that reads it."""
    assert fit_faults(settings, {}, str) == ()


def test_a_worker_may_name_the_converter_that_reads() -> None:
    """Without its file nothing is said of what it might read."""
    assert fit_faults(AVRO_OUT, None, str) == ()
    assert fit_faults(AVRO_OUT, WITH_SCHEMAS, str) == ()
