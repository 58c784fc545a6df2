"""A key whose bytes change with its schema, and so its partition, stays one key (compaction.scope=topic)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from connectors.chain.key_identity import AvroKeyIdentity, compared
from tests.support.memory.schema_registry import MemoryRegistry
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.output import apply_records
from tests.support.oracle.steps import AnyStep, Fold, Ingest, OfTopics, Restart, Settings, Snapshot, SourceRecord
from tests.unit.connectors.chain.test_key_identity import avro, encoded, memory
from tests.unit.connectors.chain.test_output_converters import PLAIN_OUTPUT, WITH_SCHEMAS, applied, enveloped

__all__ = ["avro", "memory"]  # fixtures

STEPS: Final[tuple[AnyStep, ...]] = (OfTopics(), Restart(Settings(state_index="always")))


def of(kind: str) -> dict[str, Any]:
    """Returns Avro's schema of a key with an id of this type."""
    return {"type": "record", "name": "Key", "fields": [{"name": "id", "type": kind}]}


def told(oracle: Oracle, *keys: bytes) -> dict[bytes | None, bytes | None]:
    """Returns what a reader has once records of `keys`, in partitions of their own, were published one by one."""
    oracle.run(STEPS)
    for number, key in enumerate(keys):
        record = SourceRecord(3 + number % 2, key, b"%d" % number, time=10 * number, fixed=True)
        oracle.run([Ingest((record,))])
    oracle.run([Fold(), Snapshot()])
    (taken,) = oracle.simulation.components.catalog.state.snapshots
    output = oracle.simulation.broker.output.records.values()
    living = [pair for records in output for pair in apply_records(records).items()]
    assert taken.records == len(living)
    return dict(living)


def test_an_int_that_becomes_a_long_in_avro_is_one_live_key(
    memory: MemoryRegistry, avro: AvroKeyIdentity, tmp_path: Path
) -> None:
    """With the identity `avro`: the earlier bytes get a tombstone in their own output partition."""
    as_int, as_long = memory.add(of("int")), memory.add(of("long"))
    first, second = encoded(of("int"), as_int, {"id": 7}), encoded(of("long"), as_long, {"id": 7})
    assert first != second
    oracle = Oracle(None, tmp_path, any_case=True, of_topics=True)
    oracle.simulation.compares_by(lambda key: compared(avro, (), key))
    assert told(oracle, first, second) == {second: b"1"}


@pytest.mark.parametrize("identity", ["bytes", "json"])
def test_a_key_in_json_that_is_written_without_its_schema_is_one_live_key(tmp_path: Path, identity: str) -> None:
    """With a plain output.key.converter: int32 and int64 are written alike, so the key never changes its bytes."""
    kinds = ({"type": "struct", "name": "k", "fields": [{"field": "id", "type": kind}]} for kind in ("int32", "int64"))
    read = [enveloped(kind, {"id": 7}) for kind in kinds]
    settings = {**WITH_SCHEMAS, **PLAIN_OUTPUT, "compaction.key.identity": identity}
    written = applied(settings, *((key, enveloped({"type": "string"}, "v")) for key in read))["key"].to_pylist()
    assert len(set(read)) == 2
    assert written == [b'{"id":7}'] * 2
    assert told(Oracle(None, tmp_path, of_topics=True), *written) == {b'{"id":7}': b"1"}
