"""Keys in Avro stay one key while their schema evolves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio import Apicurio
from tests.support.deployment import Deployment
from tests.support.generations import live
from tests.support.kafka import ToSend, consume_all, create_topic, produce
from tests.support.records import BASE_MS, read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST: dict[str, Any] = {"type": "record", "name": "Key", "namespace": "s", "fields": [{"name": "id", "type": "int"}]}
SECOND: dict[str, Any] = {
    **FIRST,
    "fields": [{"name": "shop", "type": ["null", "string"], "default": None}, {"name": "id", "type": "int"}],
}


def test_schemas_come_and_keys_stay(
    spark: SparkSession, broker: EmbeddedKafka, registry: Apicurio, tmp_path: Path, topic_name: str
) -> None:
    """A field that is null makes no other key, another value does; the last record keeps its own bytes."""
    topic = create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="delete")
    deployment = Deployment(tmp_path, broker.bootstrap, topic)
    deployment.settings |= {
        "compaction.key.identity": "avro",
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter.schema.registry.url": registry.url,
    }
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext(topic, MessageField.KEY)
        first, second = (AvroSerializer(client, json.dumps(schema)) for schema in (FIRST, SECOND))
        old = {number: first({"id": number}, context) for number in range(3)}
        new = {number: second({"id": number, "shop": None}, context) for number in range(3)}
        other = second({"id": 0, "shop": "side"}, context)
    produce(broker.bootstrap, topic, [(0, old[0], b"a"), (0, old[1], b"b"), (0, old[2], b"c")])
    deployment.run_once(spark)
    produce(broker.bootstrap, topic, [(0, new[0], b"d"), (0, other, b"e"), (0, new[2], None)])
    deployment.run_once(spark)
    found = live(consume_all(broker.bootstrap, deployment.output))
    assert {key: value for (_, key), value in found.items()} == {old[1]: b"b", new[0]: b"d", other: b"e"}
    files = [file for log in deployment.state().logs for run in (log.base, *log.runs) if run for file in run.files]
    named = {name for file in files for name in str(file.key_encodings).split(",")}
    assert named == {str(int.from_bytes(key[1:5])) for key in (old[1], new[0])}


def test_an_int_that_becomes_a_long_is_one_key_over_partitions(
    spark: SparkSession, broker: EmbeddedKafka, registry: Apicurio, tmp_path: Path, topic_name: str
) -> None:
    """With compaction.scope=topic: the key's bytes change, and so the partition that its producer chooses."""
    topic = create_topic(broker.bootstrap, topic_name, 2, cleanup_policy="delete")
    deployment = Deployment(tmp_path, broker.bootstrap, topic)
    deployment.settings |= {
        "compaction.scope": "topic",
        "compaction.key.identity": "avro",
        "key.converter": "io.confluent.connect.avro.AvroConverter",
        "key.converter.schema.registry.url": registry.url,
    }
    with SchemaRegistryClient({"url": registry.url}) as client:
        context = SerializationContext(topic, MessageField.KEY)
        schemas = (FIRST, {**FIRST, "fields": [{"name": "id", "type": "long"}]})
        as_int, as_long = (AvroSerializer(client, json.dumps(schema)) for schema in schemas)
        old = {number: as_int({"id": number}, context) for number in range(4)}
        new = {number: as_long({"id": number}, context) for number in range(3)}
    produce(broker.bootstrap, topic, [ToSend(0, key, b"old", (), BASE_MS) for key in old.values()])
    deployment.run_once(spark)
    produce(broker.bootstrap, topic, [ToSend(1, key, b"new", (), BASE_MS + 1) for key in new.values()])
    deployment.run_once(spark)
    found = live(consume_all(broker.bootstrap, deployment.output))
    assert {key: value for (_, key), value in found.items()} == {**dict.fromkeys(new.values(), b"new"), old[3]: b"old"}
    _, rows = read_snapshot(deployment)
    assert {key for _, key in rows} == {*new.values(), old[3]}
