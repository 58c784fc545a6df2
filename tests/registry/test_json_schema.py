"""Our JSON Schema converter and confluent-kafka's own serializers understand one another through Apicurio Registry."""

from __future__ import annotations

import json
from uuid import uuid4

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.converters.json.schema_converter import JsonSchemaConverter
from connectors.options import read
from tests.support.apicurio import Apicurio
from tests.unit.connectors.converters.test_json_schema import ORDER, VALUE


def test_what_they_write_is_read_and_what_is_written_they_read(registry: Apicurio) -> None:
    """A value comes back as it was sent."""
    topic = f"t-{uuid4().hex[:8]}"
    options = read(JsonSchemaConverter.OPTIONS, {"schema.registry.url": registry.url})
    ours = JsonSchemaConverter(options, is_key=False)
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        sent = {**VALUE, "name": "größer"}
        data = JSONSerializer(json.dumps(ORDER), client)(sent, context)
        schema, value = ours.to_connect_data(topic, [], data)
        assert value == sent
        again = ours.from_connect_data(f"{topic}.compacted", [], schema, value)
        assert JSONDeserializer(None, schema_registry_client=client)(again, context) == sent
    ours.close()
