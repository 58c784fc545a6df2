"""Change events of PostgreSQL, in Debezium's envelope and Avro, become the latest row of each primary key."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio import Apicurio
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE: Final = Path(__file__).parents[2] / "configs" / "postgres-rows.json"
KEY: Final = {
    "type": "record",
    "name": "Key",
    "namespace": "db.public.customers",
    "fields": [{"name": "id", "type": "int"}],
}
ROW: Final = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "balance", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ],
}
SOURCE: Final = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [{"name": "table", "type": "string"}, {"name": "lsn", "type": ["null", "long"], "default": None}],
}
ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "namespace": "db.public.customers",
    "connect.name": "db.public.customers.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


def test_the_latest_row_of_each_primary_key_is_what_is_left(
    spark: SparkSession, broker: EmbeddedKafka, registry: Apicurio, tmp_path: Path, topic_name: str
) -> None:
    """A row that is deleted is a tombstone; what is no Avro is a dead letter, and its neighbours pass."""
    settings: dict[str, Any] = json.loads(FILE.read_text())
    topic = create_topic(broker.bootstrap, f"db.public.{topic_name}", 1, cleanup_policy="delete")
    with SchemaRegistryClient({"url": registry.url}) as client:
        write = _Writer(client, topic)
        dead = f"{topic_name}.dead"
        produce(
            broker.bootstrap,
            topic,
            [
                write.change(1, after={"id": 1, "name": "ann", "balance": "1.00"}, lsn=10),
                write.change(2, after={"id": 2, "name": None, "balance": "2.00"}, lsn=11),
                (0, b"\x07", b"no Avro"),
                write.change(1, after={"id": 1, "name": "anna", "balance": "1.50"}, lsn=12),
                write.change(2, before={"id": 2, "name": None, "balance": "2.00"}, lsn=13),
                (0, write.key(2), None),
            ],
        )
        deployment = Deployment(tmp_path, broker.bootstrap, topic)
        deployment.settings = settings | {
            "name": deployment.name,
            "topics": topic,
            "key.converter.schema.registry.url": registry.url,
            "value.converter.schema.registry.url": registry.url,
            "errors.deadletterqueue.topic.name": dead,
        }
        deployment.run_once(spark)
        found = consume_all(broker.bootstrap, f"{topic_name}.rows")
        assert [one.key for one in found] == [write.key(1), write.key(2)]
        read = AvroDeserializer(client)
        row = read(found[0].value, SerializationContext(f"{topic_name}.rows", MessageField.VALUE))
        assert {name: str(one) for name, one in row.items()} == {
            "id": "1",
            "name": "anna",
            "balance": "1.50",
            "__source_lsn": "12",
        }
        assert found[1].value is None
        (letter,) = consume_all(broker.bootstrap, dead)
        assert (letter.key, letter.value) == (b"\x07", b"no Avro")
        assert dict(letter.headers)["__connect.errors.stage"] == b"VALUE_CONVERTER"


class _Writer:
    """Writes what Debezium would, with confluent-kafka's serializers."""

    def __init__(self, client: SchemaRegistryClient, topic: str) -> None:
        self._topic = topic
        self._key = AvroSerializer(client, json.dumps(KEY))
        self._value = AvroSerializer(client, json.dumps(ENVELOPE))

    def key(self, number: int) -> bytes:
        """Returns a primary key."""
        found = self._key({"id": number}, SerializationContext(self._topic, MessageField.KEY))
        assert isinstance(found, bytes)
        return found

    def change(
        self, number: int, *, lsn: int, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
    ) -> tuple[int, bytes, bytes]:
        """Returns a change event."""
        event = {
            "before": _row(before),
            "after": _row(after),
            "source": {"table": "customers", "lsn": lsn},
            "op": "u" if after else "d",
            "ts_ms": 5,
        }
        data = self._value(event, SerializationContext(self._topic, MessageField.VALUE))
        assert isinstance(data, bytes)
        return 0, self.key(number), data


def _row(members: dict[str, Any] | None) -> dict[str, Any] | None:
    return members and {**members, "balance": Decimal(members["balance"])}
