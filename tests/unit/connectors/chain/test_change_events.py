"""configs/postgres-rows.json makes rows of change events, with a registry in memory; tests/registry has a real one."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from compactor.model.record import SOURCE as SCHEMA
from connectors.chain.chain import Chain
from connectors.chain.routing import routed
from connectors.chain.spec import chain_faults, chain_spec
from connectors.converters import registered
from connectors.rejection import Stage, rejection_of
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_chain import batch
from tests.unit.connectors.registry.test_schema_registry import registry

FILE: Final = Path(__file__).parents[4] / "configs" / "postgres-rows.json"
TOPIC: Final = "db.public.customers"
KEY: Final = {"type": "record", "name": "Key", "namespace": TOPIC, "fields": [{"name": "id", "type": "int"}]}
ROW: Final = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"], "default": None}],
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
    "namespace": TOPIC,
    "connect.name": f"{TOPIC}.Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": SOURCE},
        {"name": "op", "type": "string"},
    ],
}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> MemoryRegistry:
    found = MemoryRegistry()
    monkeypatch.setattr(registered, "SchemaRegistry", lambda _: registry(found))
    return found


def written(memory: MemoryRegistry, subject: str, schema: Any, one: Any) -> bytes:
    """Writes a value as Confluent's serializer does."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), one)
    return struct.pack(">bI", 0, memory.add(schema, subject)) + out.getvalue()


def read(memory: MemoryRegistry, data: bytes) -> Any:
    """Reads what `written` has written, and what a converter has."""
    (_, number), schema = struct.unpack(">bI", data[:5]), memory.schemas
    return fastavro.schemaless_reader(io.BytesIO(data[5:]), json.loads(schema[number - 1]["schema"]), None)


def test_the_file_makes_rows_of_change_events(memory: MemoryRegistry) -> None:
    """A change is the row with what is added, a delete a tombstone; what is no Avro is refused, alone."""
    file = json.loads(FILE.read_text())
    settings = {key: text if isinstance(text, str) else json.dumps(text) for key, text in file.items()}
    assert chain_faults(settings, str) == ()
    spec = chain_spec(settings)
    assert routed(spec, TOPIC, str) == "customers"
    key = written(memory, f"{TOPIC}-key", KEY, {"id": 1})
    row, source = {"id": 1, "name": "ann"}, {"table": "customers", "lsn": 12}
    change, gone = (
        written(memory, f"{TOPIC}-value", ENVELOPE, {"before": before, "after": after, "source": source, "op": op})
        for before, after, op in ((None, row, "c"), (row, None, "d"))
    )
    given = batch((key, change), (key, gone), (b"\x07", b"no Avro"), (key, None))
    topics = pa.array([TOPIC] * given.num_rows)
    found = Chain(spec, str).apply(given.set_column(SCHEMA.get_field_index("topic"), "topic", topics))
    assert found["key"].to_pylist() == [key, key, b"\x07"]
    first, second, third = found["value"].to_pylist()
    assert read(memory, first) == {**row, "__source_lsn": 12}
    assert (second, third) == (None, b"no Avro")
    assert found["rejected"].to_pylist()[:2] == [None, None]
    assert rejection_of(found["rejected"][2].as_py()).stage is Stage.VALUE_CONVERTER
    assert "customers.rows-value" in memory.subjects
