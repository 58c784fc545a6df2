"""Malformed records by the thousand, through a whole connector: each is one dead letter, and holds nothing up."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.apicurio import Apicurio
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS: Final = 3_000
SOUND: Final = 10
"""Every so many records one is sound."""
ROW: Final = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}
PROTO: Final = 'syntax = "proto3"; message Row { int64 n = 1; string name = 2; repeated string tags = 3; }'
JSON_SCHEMA: Final = {
    "type": "object",
    "title": "Row",
    "properties": {
        "n": {"type": "integer"},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}
TEXT: Final = json.dumps({"n": 7, "name": "größer", "tags": ["a", "b"]}).encode()
DEEP: Final = b"[" * 50_000
HUGE: Final = b'{"n":' + b"9" * 20_000 + b"}"
CYCLE: Final = b'{"$ref":"#","n":{"$ref":"#"}}'


def _avro() -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(ROW), {"n": 7, "name": "größer", "tags": ["a", "b"]})
    return buffer.getvalue()


KINDS: Final[dict[str, tuple[str, str | None, bytes]]] = {
    "keyfold.Avro": ("AVRO", json.dumps(ROW), _avro()),
    "keyfold.JsonSchema": ("JSON", json.dumps(JSON_SCHEMA), TEXT),
    "keyfold.Protobuf": ("PROTOBUF", PROTO, b"\x00\x08\x07\x12\x03abc\x1a\x01a"),
    "keyfold.Json": ("", None, TEXT),
    "keyfold.String": ("", None, "größer".encode()),
}
"""By converter: the type and text of its schema in the registry, and sound data behind the id."""


HOISTS: Final = {
    "transforms.look.type": "org.apache.kafka.connect.transforms.HoistField$Value",
    "transforms.look.field": "inside",
}
ROWS: Final = {"transforms.look.type": "io.debezium.transforms.ExtractNewRecordState"}
SOURCE: Final = {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]}
EVENT: Final = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop",
    "fields": [
        {"name": "before", "type": ["null", {**ROW, "namespace": "shop"}]},
        {"name": "after", "type": ["null", "shop.Row"]},
        {
            "name": "source",
            "type": {"type": "record", "name": "Source", "fields": [{"name": "table", "type": "string"}]},
        },
        {"name": "op", "type": "string"},
    ],
}


def malformed(chance: random.Random, head: bytes, sound: bytes) -> Iterator[bytes]:
    """Yields data of which most cannot be read: cut off, altered, of another id or magic, deep, huge, not UTF-8."""
    strange = (b"\x01" + head[1:], b"\x00\x7f\xff\xff\xff", head[:3], b"") if head else (b"\xff\xfe", b"\x00")
    while True:
        data = bytearray(sound)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        yield chance.choice(
            (
                head + sound[: chance.randrange(len(sound))],
                head + bytes(data),
                head + chance.randbytes(chance.randrange(40)),
                head + b"\xff" * chance.randrange(40),
                chance.choice(strange) + sound,
                head + chance.choice((b"\xed\xa0\x80", CYCLE, b"{}", b"null", b"[]", b"1e999999")),
            )
        )


def records(head: bytes, sound: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yields the records of partition 0; every SOUND-th is sound, and some are as deep or huge as JSON can be."""
    chance = random.Random(head + sound)
    bad = malformed(chance, head, sound)
    for number in range(RECORDS):
        key = b"k%d" % number
        if number % SOUND == 0:
            yield 0, key, head + sound
        else:
            yield 0, key, head + chance.choice((DEEP, HUGE)) if number % 500 == 1 else next(bad)


@pytest.mark.parametrize("converter", KINDS)
def test_each_malformed_record_is_one_dead_letter(
    spark: SparkSession, broker: EmbeddedKafka, registry: Apicurio, tmp_path: Path, topic_name: str, converter: str
) -> None:
    """Every record is in the output or a dead letter, once, a sound one in the output; the log is read to its end."""
    kind, text, sound = KINDS[converter]
    settings: dict[str, Any] = {"value.converter": converter, **HOISTS}
    head = b""
    if text is not None:
        with SchemaRegistryClient({"url": registry.url}) as client:
            number = client.register_schema(f"s-{uuid4().hex[:8]}", Schema(text, kind))
        head = struct.pack(">bI", 0, number)
        settings["value.converter.schema.registry.url"] = registry.url
    if converter == "keyfold.Json":
        settings["value.converter.schemas.enable"] = "false"
    topic = create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="delete")
    produce(broker.bootstrap, topic, list(records(head, sound)))
    deployment = Deployment(tmp_path, broker.bootstrap, topic)
    dead = f"{topic}.dead"
    deployment.settings |= settings | {
        "transforms": "look",
        "value.converter.auto.register.schemas": "true",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    if text is None:
        del deployment.settings["value.converter.auto.register.schemas"]
    state = deployment.run_once(spark)
    sent = {one.key for one in consume_all(broker.bootstrap, deployment.output)}
    letters = [one.key for one in consume_all(broker.bootstrap, dead)]
    assert len(letters) == len(set(letters))
    assert not sent & set(letters)
    assert sent | set(letters) == {b"k%d" % number for number in range(RECORDS)}
    assert {b"k%d" % number for number in range(0, RECORDS, SOUND)} <= sent
    assert len(letters) > RECORDS // 4
    assert {log.position for log in state.logs} == {RECORDS}


def test_each_change_event_that_is_cut_off_is_one_dead_letter(
    spark: SparkSession, broker: EmbeddedKafka, registry: Apicurio, tmp_path: Path, topic_name: str
) -> None:
    """Also where the row is whole, and what ends too early is behind it."""
    row = {"n": 7, "name": None, "tags": ["a"]}
    buffer = io.BytesIO()
    event = {"before": None, "after": row, "source": {"table": "rows"}, "op": "u"}
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(EVENT), event)
    with SchemaRegistryClient({"url": registry.url}) as client:
        number = client.register_schema(f"s-{uuid4().hex[:8]}", Schema(json.dumps(EVENT), "AVRO"))
    data = struct.pack(">bI", 0, number) + buffer.getvalue()
    topic = create_topic(broker.bootstrap, topic_name, 1, cleanup_policy="delete")
    produce(broker.bootstrap, topic, [(0, b"k%d" % length, data[:length]) for length in range(1, len(data) + 1)])
    deployment, dead = Deployment(tmp_path, broker.bootstrap, topic), f"{topic}.dead"
    deployment.settings |= ROWS | {
        "value.converter": "keyfold.Avro",
        "value.converter.schema.registry.url": registry.url,
        "transforms": "look",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": dead,
    }
    deployment.run_once(spark)
    assert [one.key for one in consume_all(broker.bootstrap, deployment.output)] == [b"k%d" % len(data)]
    assert {one.key for one in consume_all(broker.bootstrap, dead)} == {b"k%d" % one for one in range(1, len(data))}
