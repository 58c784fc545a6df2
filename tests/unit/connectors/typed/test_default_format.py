"""Which snapshots are typed if no setting says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from compactor.snapshot.manifest import NAME, TypedInputs, encode
from connectors.config.connector import ConnectorConfig
from connectors.runtime.components import typed_of
from tests.support.engine import row
from tests.support.typed_snapshots import TypedConnector

JSON = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
KEYS = {"key.converter": "org.apache.kafka.connect.storage.StringConverter"}
OUTPUT = {"output.value.converter": "keyfold.Avro", "output.value.converter.schema.registry.url": "http://127.0.0.1:1"}


def _typed(settings: dict[str, str], worker: dict[str, str] | None = None) -> tuple[set[str], set[str]]:
    """Returns the sides that are typed, and those that are so by default."""
    given = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", "snapshot.location": "s"}
    config = ConnectorConfig.model_validate({**given, **settings})
    made = typed_of(config, config.chain_spec(worker))
    if made is None:
        return set(), set()
    return {side for side in ("key", "value") if getattr(made, side) is not None}, set(made.by_default)


@pytest.mark.parametrize(
    ("settings", "typed", "by_default"),
    [
        ({}, set(), set()),
        ({"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter"}, set(), set()),
        (JSON, {"value"}, {"value"}),
        ({**JSON, **KEYS}, {"key", "value"}, {"key", "value"}),
        ({**JSON, **KEYS, "snapshot.key.format": "bytes"}, {"value"}, {"value"}),
        ({**JSON, **KEYS, "snapshot.key.format": "typed"}, {"key", "value"}, {"value"}),
        ({**JSON, "snapshot.value.format": "bytes"}, set(), set()),
        ({"snapshot.value.format": "typed"}, {"value"}, set()),
        ({**JSON, **KEYS, "snapshot.string.columns": "value"}, set(), set()),
        (OUTPUT, {"value"}, {"value"}),
        ({**JSON, "snapshot.table": "delta"}, {"value"}, set()),
        ({"snapshot.table": "iceberg"}, {"value"}, set()),
        ({**JSON, "snapshot.partition.by": "day(_timestamp)"}, {"value"}, set()),
        ({"snapshot.key.format": "typed", "snapshot.partition.by": "day(_timestamp)"}, {"key"}, set()),
    ],
)
def test_what_has_a_converter_is_typed(settings: dict[str, str], typed: set[str], by_default: set[str]) -> None:
    """A side with another converter than Bytes is typed, unless a setting says what it is, or needs it."""
    assert _typed(settings) == (typed, by_default)


def test_without_snapshots_nothing_is_made() -> None:
    """The converters of columns are not loaded for a connector that takes none."""
    given = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", **JSON}
    config = ConnectorConfig.model_validate(given)
    assert typed_of(config, config.chain_spec()) is None


def test_the_converters_of_the_worker_count() -> None:
    """A connector without converters has the worker's."""
    assert _typed({}, JSON) == ({"value"}, {"value"})


def _columns(connector: TypedConnector, typed: TypedInputs | None) -> list[str]:
    """Folds one more record, takes a snapshot, and returns its columns."""
    connector.snapshots.typed = typed
    offset = len(connector.connector.catalog.state.snapshots)
    connector.fold([row(0, offset, f"k{offset}".encode(), json.dumps({"a": offset}).encode())])
    return connector.take().table.column_names


def test_bytes_stay_bytes(tmp_path: Path) -> None:
    """A topic that has snapshots of bytes gets further ones, until a setting says typed; then they stay typed."""
    connector = TypedConnector(tmp_path, JSON, metadata=["_key"])
    explicit = connector.snapshots.typed
    assert explicit is not None
    default = replace(explicit, by_default=frozenset({"value"}))
    assert _columns(connector, None)[:2] == ["key", "value"]
    assert _columns(connector, default)[:2] == ["key", "value"]
    assert _columns(connector, explicit) == ["a", "_key", "_rest"]
    assert _columns(connector, default) == ["a", "_key", "_rest"]


def test_a_topic_without_snapshots_is_typed(tmp_path: Path) -> None:
    """The first snapshot of a topic is typed by default."""
    connector = TypedConnector(tmp_path, JSON, metadata=["_key"])
    typed = connector.snapshots.typed
    assert typed is not None
    assert _columns(connector, replace(typed, by_default=frozenset({"value"}))) == ["a", "_key", "_rest"]


def test_a_snapshot_that_no_catalog_names_counts(tmp_path: Path) -> None:
    """What lies in the location decides if the catalog is new; a damaged manifest is passed over."""
    before = TypedConnector(tmp_path / "before", JSON)
    assert _columns(before, None)[:2] == ["key", "value"]
    connector = TypedConnector(tmp_path, JSON, metadata=["_key"])
    typed = connector.snapshots.typed
    assert typed is not None
    unnamed = encode(before.newest().manifest)
    connector.shelf.write(f"c/t/20250101T000000Z-abc123/{NAME}", unnamed)
    connector.shelf.write(f"c/t/20250102T000000Z-abc123/{NAME}", b"{")
    assert _columns(connector, replace(typed, by_default=frozenset({"value"})))[:2] == ["key", "value"]
