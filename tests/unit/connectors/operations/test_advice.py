"""`keyfold validate` warns of topics that hold something else than the settings suggest."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any, Final

import fastavro
import pytest

from connectors.config.connector import ConnectorConfig
from connectors.config.files import OtherFile
from connectors.operations.advice import advice
from connectors.operations.topic_samples import Sample
from connectors.placeholders import resolve
from tests.support.memory.schema_registry import MemoryRegistry, served
from tests.unit.connectors.chain.test_change_events import ENVELOPE as AVRO_ENVELOPE

PATTERN: Final = {"topics.regex": "shop\\..*"}
JSON: Final = {"value.converter": "keyfold.Json"}
PLAIN: Final = {**JSON, "value.converter.schemas.enable": "false"}
UNWRAP: Final = {"transforms": "row", "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState"}
EVENT: Final = {"before": None, "after": {"id": 1}, "source": {"table": "a"}, "op": "c", "ts_ms": 1}
ROW: Final = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int32"}]}
ENVELOPE: Final = {"type": "struct", "name": "shop.a.Envelope", "fields": [{"field": "after", **ROW}]}
DECLARED: Final = {"value.converter.schema.content": json.dumps(ENVELOPE)}
TRANSACTION: Final = {"status": "END", "id": "1", "event_count": 2, "data_collections": [], "ts_ms": 1}


def sample(value: Any, **headers: bytes) -> Sample:
    """Returns a record with `value` in JSON; in names of headers _ stands for a period."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Sample(b"k", data, [(name.replace("_", "."), text) for name, text in headers.items()])


def enveloped(schema: Any, payload: Any) -> Sample:
    return sample({"schema": schema, "payload": payload})


def named(name: str) -> Sample:
    """Returns a record of which the schema has a name, and nothing else."""
    return enveloped({"type": "struct", "name": name, "fields": []}, {})


def config(**settings: Any) -> ConnectorConfig:
    given = {"name": "c", "connector.class": "CompactedTopic", "key.converter": "keyfold.Json"}
    return ConnectorConfig.model_validate({**given, **settings})


def warnings(
    settings: dict[str, str], samples: dict[str, list[Sample]] | None = None, others: tuple[OtherFile, ...] = ()
) -> list[str]:
    """Returns the warnings as sentences."""
    own = config(**settings)
    return [str(fault) for fault in advice(own, own.chain_spec(), resolve, others, samples or {})]


@pytest.mark.parametrize(
    ("settings", "samples", "key", "said"),
    [
        (PATTERN, {"shop.a": [sample(EVENT)]}, "transforms", 'change events of Debezium in "shop.a"'),
        (PATTERN, {"shop.a": [enveloped(ENVELOPE, EVENT)]}, "transforms", "type=io.debezium.transforms.Extract"),
        (
            {"topics": "b,a"},
            {topic: [sample(EVENT)] for topic in ("a", "b", "c", "d", "e")},
            "transforms",
            '"a", "b", "c" and 2 more',
        ),
        ({"topics": "a"}, {"a": [sample(EVENT), Sample(b"k", None, [])]}, "transforms", 'in "a"'),
        (
            {"topics": "a", **JSON, "value.converter.schema.content": json.dumps(ENVELOPE)},
            {},
            "transforms",
            "each topic",
        ),
        (
            {"topics": "a", **JSON, **UNWRAP},
            {"a": [sample(EVENT)]},
            "value.converter.schemas.enable",
            'is true, and "a": messages have no schema',
        ),
        (
            {"topics": "a", **PLAIN, "output.value.converter": "keyfold.String"},
            {"a": [enveloped(ENVELOPE, EVENT)]},
            "transforms",
            "change events",
        ),
        (
            {"topics": "a", "snapshot.location": "s", "snapshot.value.format": "typed"},
            {},
            "snapshot.value.format",
            "typed makes one column of bytes",
        ),
        (
            {"topics": "a", "snapshot.location": "s", "snapshot.table": "delta"},
            {},
            "snapshot.table",
            "it makes one column of bytes",
        ),
        (
            {
                "topics": "a",
                "snapshot.location": "s",
                "snapshot.key.format": "typed",
                "snapshot.metadata.columns": "_offset",
            },
            {},
            "snapshot.key.format",
            "lacks _key",
        ),
        (PATTERN, {"shop.x": [sample(b"v", keyfold_source_topic=b"x")]}, "topics.regex", "what keyfold publishes"),
        (PATTERN, {"shop.transaction": [sample(TRANSACTION)]}, "topics.regex", "what Debezium writes of itself"),
        (PATTERN, {"shop.b": [named("io.debezium.connector.common.Heartbeat")]}, "topics.regex", "topics.exclude"),
        (PATTERN, {"shop.b": [named("io.debezium.connector.mysql.SchemaChangeValue")]}, "topics.regex", "no rows"),
    ],
)
def test_what_is_probably_not_meant_is_told(
    settings: dict[str, str], samples: dict[str, list[Sample]], key: str, said: str
) -> None:
    """Each warning names the setting that decides, and what to do."""
    assert any(text.startswith(f"{key}: ") and said in text for text in warnings(settings, samples))


def test_dead_letters_are_known_by_their_headers() -> None:
    """As keyfold and Kafka Connect write them, whatever the letter's own value is."""
    letter = Sample(b"k", json.dumps(EVENT).encode(), [("__connect.errors.topic", b"t"), ("keyfold.source.topic", b"")])
    (told,) = warnings(PATTERN, {"shop.dead": [letter]})
    assert told.startswith('topics.regex: takes in "shop.dead": dead letters.')


def test_schemas_that_are_there_and_not_read_are_told() -> None:
    """With a converter that takes the envelope for the value: the remedy is its own setting."""
    settings = {"topics": "a", **PLAIN, "output.value.converter": "keyfold.String"}
    told = warnings({**settings}, {"a": [enveloped({"type": "struct", "fields": []}, {"id": 1})]})
    assert told == [
        'value.converter.schemas.enable: is false, and "a": each message has its schema. Set it to true, alone.'
    ]


@pytest.mark.parametrize(
    ("settings", "samples"),
    [
        ({**PATTERN, **JSON, **UNWRAP}, {"shop.a": [enveloped(ENVELOPE, EVENT)]}),
        (PATTERN, {"shop.a": [sample({"id": 1})]}),
        ({"topics": "a", **PLAIN}, {"a": [enveloped({"type": "struct"}, {"id": 1})]}),
        ({"topics": "a"}, {"a": [sample(b"v", keyfold_source_topic=b"x")]}),
        (
            PATTERN,
            {"shop.a": [sample(b"{"), sample(b"\xff"), sample(b"[" * 5_000), sample([1]), Sample(b"k", None, [])]},
        ),
        (PATTERN, {"shop.a": [sample(b'{"op":"c","source":1,"after":"' + b"x" * (1 << 20) + b'"}')]}),
    ],
)
def test_what_may_be_meant_is_not_told(settings: dict[str, str], samples: dict[str, list[Sample]]) -> None:
    """Rows, texts, what is too large to look into, an output that is named by itself."""
    assert warnings(settings, samples) == []


@pytest.mark.parametrize("unwraps", [False, True])
def test_change_events_in_avro_are_known_by_the_registry(unwraps: bool) -> None:
    """The converter of values asks it; without its answer nothing is said."""
    memory = MemoryRegistry()
    event = {"before": None, "after": {"id": 1, "name": "ann"}, "op": "c", "source": {"table": "t"}}
    buffer = io.BytesIO()
    buffer.write(struct.pack(">bI", 0, memory.add(AVRO_ENVELOPE)))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(AVRO_ENVELOPE), event)
    samples = {"a": [sample(buffer.getvalue())], "b": [sample(b"no Avro")], "c": [sample(b"\0\0\0\0\x09x")]}
    with served(memory) as url:
        avro = {"topics": "a", "value.converter": "keyfold.Avro", "value.converter.schema.registry.url": url}
        told = warnings({**avro, **(UNWRAP if unwraps else {})}, samples)
    assert [text.partition(":")[0] for text in told] == ([] if unwraps else ["transforms"])


def test_a_pattern_that_takes_in_what_other_files_write_is_told() -> None:
    """Their outputs and their letters, by name; what it leaves out is not told."""
    other = config(topics="shop.a", **{"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "shop.dead"})
    files = (OtherFile(Path("o.json"), "o", other), OtherFile(Path("p.json"), "p", None))
    (told,) = warnings({**PATTERN, "output.topic": "rows.${topic}"}, others=files)
    assert told.startswith('topics.regex: takes in "shop.a.compacted", "shop.dead", to which connector "o" in o.json')
    excluded = {**PATTERN, "output.topic": "rows.${topic}", "topics.exclude": "shop.dead, .*compacted"}
    assert warnings(excluded, others=files) == []
