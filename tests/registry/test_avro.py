"""Our Avro converter and confluent-kafka's own serializers understand one another through Apicurio Registry."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.converters.avro.converter import AvroConverter
from connectors.data.schema import DECIMAL, Field, Schema, Type
from connectors.data.values import decimal_of
from connectors.errors import DataError, RegistryError
from connectors.options import read
from tests.support.apicurio import Apicurio, apicurio
from tests.unit.connectors.chain.test_chain import batch

ROW = {
    "type": "record",
    "name": "Row",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
VALUE = {
    "id": 7,
    "name": "größer",
    "price": Decimal("12.34"),
    "day": date(2026, 11, 23),
    "at": datetime(2026, 11, 23, 12, tzinfo=UTC),
    "tags": ["a", "b"],
}


def converter(registry: Apicurio, **texts: str) -> AvroConverter:
    """Returns a converter that asks `registry`."""
    given = {"schema.registry.url": registry.url, **{name.replace("_", "."): text for name, text in texts.items()}}
    return _opened(AvroConverter(read(AvroConverter.OPTIONS, given), is_key=False))


def theirs(registry: Apicurio) -> SchemaRegistryClient:
    """Returns confluent-kafka's client."""
    return _opened(SchemaRegistryClient({"url": registry.url}))


_open: list[Any] = []


def _opened(client: Any) -> Any:
    _open.append(client)
    return client


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Closes all clients of a test."""
    yield
    while _open:
        _open.pop().close()


def context(topic: str) -> SerializationContext:
    """Returns what its serializers are told of a value."""
    return SerializationContext(topic, MessageField.VALUE)


@pytest.fixture
def topic() -> str:
    """A topic of this test's own, as subjects stay."""
    return f"t-{uuid4().hex[:8]}"


def test_what_their_serializer_writes_is_read(registry: Apicurio, topic: str) -> None:
    """Logical types come in their encoded form."""
    data = AvroSerializer(theirs(registry), json.dumps(ROW))(VALUE, context(topic))
    schema, value = converter(registry).to_connect_data(topic, [], data)
    assert schema is not None
    price = schema.field("price")
    assert price is not None
    assert price.schema.name == DECIMAL
    assert decimal_of(price.schema, value.pop("price")) == Decimal("12.34")
    assert value == {
        "id": 7,
        "name": "größer",
        "day": 20_780,
        "at": int(VALUE["at"].timestamp() * 1000),  # type: ignore[attr-defined]
        "tags": ["a", "b"],
    }


def test_what_is_written_their_deserializer_reads(registry: Apicurio, topic: str) -> None:
    """A value that went through our converter is the one that they have sent."""
    ours = converter(registry)
    data = AvroSerializer(theirs(registry), json.dumps(ROW))(VALUE, context(topic))
    again = ours.from_connect_data(f"{topic}.compacted", [], *ours.to_connect_data(topic, [], data))
    assert AvroDeserializer(theirs(registry))(again, context(topic)) == VALUE
    assert f"{topic}.compacted-value" in theirs(registry).get_subjects()


def test_a_value_whose_id_was_in_a_header_is_read_by_the_id_before_it(registry: Apicurio, topic: str) -> None:
    """Once a transform has changed it: the header would say of the new bytes what is wrong."""
    data = AvroSerializer(theirs(registry), json.dumps(ROW))(VALUE, context(topic))
    assert data is not None
    settings = {
        "value.converter": "keyfold.Avro",
        "value.converter.schema.registry.url": registry.url,
        "transforms": "r",
        "transforms.r.type": "ReplaceField$Value",
        "transforms.r.exclude": "tags",
    }
    chain = _opened(Chain(chain_spec(settings), str))
    header = ("apicurio.value.contentId", struct.pack(">q", int.from_bytes(data[1:5])))
    (row,) = chain.apply(batch((b"k", data[5:]), headers=[header])).to_pylist()
    assert (row["rejected"], row["headers"]) == (None, [])
    rest = {name: one for name, one in VALUE.items() if name != "tags"}
    assert AvroDeserializer(theirs(registry))(row["value"], context(topic)) == rest
    assert converter(registry).to_connect_data(topic, [], row["value"])[1]["id"] == VALUE["id"]


def test_references_between_subjects_are_followed(registry: Apicurio, topic: str) -> None:
    """A type that is registered under a subject of its own."""
    client = theirs(registry)
    inner = {
        "type": "record",
        "name": "In",
        "namespace": topic.replace("-", "_"),
        "fields": [{"name": "x", "type": "int"}],
    }
    full = f"{inner['namespace']}.In"
    client.register_schema(f"{topic}-in", TheirSchema(json.dumps(inner), "AVRO"))
    outer = {"type": "record", "name": "Out", "fields": [{"name": "i", "type": full}]}
    schema = TheirSchema(json.dumps(outer), "AVRO", [SchemaReference(full, f"{topic}-in", 1)])
    data = AvroSerializer(client, schema)({"i": {"x": 5}}, context(topic))
    assert converter(registry).to_connect_data(topic, [], data)[1] == {"i": {"x": 5}}


def test_evolved_records_are_read_each_with_its_own_schema(registry: Apicurio, topic: str) -> None:
    """A field that came later has its default in its schema."""
    client = theirs(registry)
    new = {**ROW, "fields": [*ROW["fields"], {"name": "more", "type": "string", "default": "x"}]}
    old_data = AvroSerializer(client, json.dumps(ROW))(VALUE, context(topic))
    new_data = AvroSerializer(client, json.dumps(new))({**VALUE, "more": "y"}, context(topic))
    ours = converter(registry)
    assert "more" not in ours.to_connect_data(topic, [], old_data)[1]
    assert ours.to_connect_data(topic, [], new_data)[1]["more"] == "y"


def test_an_incompatible_schema_is_refused_with_the_registry_s_words(registry: Apicurio, topic: str) -> None:
    """It is an error of the record that names the subject."""
    registry.ask("PUT", "/config", {"compatibility": "BACKWARD"})
    ours = converter(registry)
    ours.from_connect_data(topic, [], _struct("a", Type.INT32), {"a": 1})
    with pytest.raises(DataError, match=f"{topic}-value as incompatible"):
        ours.from_connect_data(topic, [], _struct("b", Type.STRING), {"b": "x"})
    registry.ask("PUT", "/config", {"compatibility": "NONE"})


def _struct(name: str, kind: Type) -> Schema:
    return Schema(type=Type.STRUCT, name="n.Row", fields=(Field(name, Schema(type=kind)),))


def test_an_id_that_is_not_there_is_an_error_of_the_record(registry: Apicurio, topic: str) -> None:
    """With the id in it."""
    with pytest.raises(DataError, match="no schema 424242"):
        converter(registry).to_connect_data(topic, [], struct.pack(">bI", 0, 424_242) + b"\x02a")


def test_a_guid_is_an_error_of_the_record(registry: Apicurio, topic: str) -> None:
    """Apicurio has no schemas by GUID, and says so by a page that says nothing of the record."""
    guid = b"\x01" + bytes(range(16))
    with pytest.raises(DataError, match="does not take the request for schema with GUID"):
        converter(registry).to_connect_data(topic, [], guid + b"\x02a")


def test_a_registry_that_is_killed_fails_no_record_and_is_asked_again(tmp_path: Path) -> None:
    """What is known already is read meanwhile; what is not is no error of the record."""
    with apicurio(tmp_path) as registry:
        ours: Any = converter(registry)
        data = AvroSerializer(theirs(registry), '{"type": "string"}')("x", context("t"))
        assert ours.to_connect_data("t", [], data)[1] == "x"
        registry.stop()
        assert ours.to_connect_data("t", [], data)[1] == "x"
        with pytest.raises(RegistryError, match="does not answer"):
            converter(registry).to_connect_data("t", [], data)
        registry.start()
        AvroSerializer(theirs(registry), '{"type": "string"}')("x", context("t"))
        assert converter(registry).to_connect_data("t", [], data)[1] == "x"


def test_ids_of_apicurio_s_converters_of_2_x_are_its_globalid(registry: Apicurio, topic: str) -> None:
    """As its page configures Debezium; from the second schema on that is another number than the contentId."""
    client = theirs(registry)
    base, new = {"type": "record", "name": f"R{topic[2:]}"}, {"name": "b", "type": "int", "default": 0}
    old_fields = [{"name": "a", "type": "int"}]
    schemas = {
        f"{topic}-other": {**base, "fields": old_fields},
        f"{topic}-key": {**base, "fields": old_fields},
        f"{topic}-value": {**base, "fields": [*old_fields, new]},
    }
    content_ids = [
        client.register_schema(name, TheirSchema(json.dumps(each), "AVRO")) for name, each in schemas.items()
    ]
    own = registry.url.replace("/apis/ccompat/v7", "/apis/registry/v2/groups/default/artifacts")
    global_ids = [httpx.get(f"{own}/{name}/meta").json()["globalId"] for name in schemas]
    assert content_ids[0] == content_ids[1] != global_ids[1]
    address = registry.url.replace("/apis/ccompat/v7", "/apis/registry/v2")
    settings = {
        "value.converter": "io.apicurio.registry.utils.converter.AvroConverter",
        "value.converter.apicurio.registry.url": address,
        "value.converter.apicurio.registry.as-confluent": "true",
        "transforms": "r",
        "transforms.r.type": "ReplaceField$Value",
        "transforms.r.exclude": "b",
    }
    chain = _opened(Chain(chain_spec(settings), str))
    data = struct.pack(">bI", 0, global_ids[2]) + b"\x02\x04"
    (row,) = chain.apply(batch((b"k", data))).to_pylist()
    assert row["rejected"] is None
    magic, written = struct.unpack(">bI", row["value"][:5])
    content = httpx.get(f"{address}/ids/globalIds/{written}").json()
    assert (magic, [field["name"] for field in content["fields"]]) == (0, ["a"])
    assert row["value"][5:] == b"\x02"
