"""JSON with schemas comes out in the forms of a registry, as confluent-kafka's own deserializers read them."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Final
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.support.apicurio import Apicurio
from tests.unit.connectors.chain.test_output_converters import ROW, enveloped, of_registry, row, written

JSON: Final = {"key.converter": "keyfold.Json", "value.converter": "keyfold.Json"}


def read(name: str, client: SchemaRegistryClient, data: bytes, field: MessageField) -> Any:
    """Returns what the deserializer of a form makes of `data`."""
    deserializers = {
        "keyfold.Avro": AvroDeserializer(client),
        "keyfold.JsonSchema": JSONDeserializer(None, schema_registry_client=client),
    }
    return deserializers[name](data, SerializationContext("any", field))


@pytest.mark.parametrize(
    ("name", "price"), [("keyfold.Avro", Decimal("1.50")), ("keyfold.JsonSchema", 1.5)], ids=["Avro", "JSON Schema"]
)
def test_rows_are_read_by_others(registry: Apicurio, name: str, price: Any) -> None:
    """The subjects are those of the output topic, and a second schema is a second version of its subject."""
    topic = f"t-{uuid4().hex[:8]}"
    settings = {**JSON, **of_registry(name, registry.url, "key", "value"), "output.topic": f"{topic}.rows"}
    if name == "keyfold.JsonSchema":
        settings["output.value.converter.decimal.format"] = "NUMERIC"
    wider = {**ROW, "fields": [*ROW["fields"], {"field": "note", "type": "string", "optional": True}]}
    more = row(2)[0], enveloped(wider, {"id": 2, "name": "bea", "price": "AJY=", "note": "new"})
    records = written(settings, row(1), more, (row(3)[0], None))
    with SchemaRegistryClient({"url": registry.url}) as client:
        keys = [read(name, client, key, MessageField.KEY) for key, _ in records]
        rows = [read(name, client, value, MessageField.VALUE) for _, value in records if value is not None]
        assert keys == [{"id": 1}, {"id": 2}, {"id": 3}]
        assert rows == [
            {"id": 1, "name": "ann", "price": price},
            {"id": 2, "name": "bea", "price": price, "note": "new"},
        ]
        assert records[2][1] is None
        assert client.get_versions(f"{topic}.rows-value") == [1, 2]
        schema = client.get_latest_version(f"{topic}.rows-key").schema
    assert "id" in json.dumps(schema.schema_str)
