"""Our Protobuf converter and confluent-kafka's own serializers understand one another through Apicurio Registry."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.message_factory import GetMessageClass

from connectors.converters.protobuf.converter import ProtobufConverter
from connectors.converters.protobuf.files import compiled
from connectors.options import read
from tests.support.apicurio import Apicurio

TEXT = """
syntax = "proto3";
package shop;
message Order {
  int64 id = 1;
  string name = 2;
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  oneof paid { string card = 5; int64 cash = 6; }
  State state = 7;
  message Line { string sku = 1; }
  enum State { NEW = 0; PAID = 1; }
}
"""
VALUE: dict[str, Any] = {
    "paid_0": {"card": None, "cash": 5}, "id": 7, "name": "größer", "lines": [{"sku": "a"}], "counts": {"x": 1},
    "state": "PAID",
}  # fmt: skip


@pytest.fixture
def ours(registry: Apicurio) -> ProtobufConverter:
    options = read(ProtobufConverter.OPTIONS, {"schema.registry.url": registry.url})
    return ProtobufConverter(options, is_key=False)


def test_what_they_write_is_read_and_what_is_written_they_read(registry: Apicurio, ours: ProtobufConverter) -> None:
    """A value comes back as it was sent, with the numbers that its fields had.

    Their deserializer gets no client: it would ask for `format=serialized`, which Apicurio 3.0.9 does not know.
    """
    topic = f"t-{uuid4().hex[:8]}"
    kind: Any = GetMessageClass(compiled(TEXT, {}).message((0,)))
    sent = kind(id=7, name="größer", cash=5, state=1, counts={"x": 1})
    sent.lines.add().sku = "a"
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext(topic, MessageField.VALUE)
        data = ProtobufSerializer(kind, client, {"use.deprecated.format": False})(sent, context)
        schema, value = ours.to_connect_data(topic, [], data)
        assert value == VALUE
        again = ours.from_connect_data(f"{topic}.compacted", [], schema, value)
        found = ProtobufDeserializer(kind, {"use.deprecated.format": False})(again, context)
        assert found == sent
    ours.close()


def test_a_text_with_references_is_read(registry: Apicurio, ours: ProtobufConverter) -> None:
    """As Java's serializers and people register them."""
    with SchemaRegistryClient({"url": registry.url}) as client:
        name = f"line-{uuid4().hex[:8]}"
        client.register_schema(
            name, Schema('syntax = "proto3"; package p; message Line { string sku = 1; }', "PROTOBUF")
        )
        text = 'syntax = "proto3"; import "line.proto"; message Order { p.Line line = 1; }'
        references = [SchemaReference("line.proto", name, 1)]
        number = client.register_schema(f"{name}-order", Schema(text, "PROTOBUF", references))
    data = b"\x00" + number.to_bytes(4, "big") + b"\x00" + b"\x0a\x03\x0a\x01a"
    _, value = ours.to_connect_data("t", [], data)
    assert value == {"line": {"sku": "a"}}
    ours.close()
