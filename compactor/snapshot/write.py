"""Writes one snapshot: steps 15 and 16 of docs/protocol.md, the mark, the data files and the manifest."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import UNSET

from compactor.errors import FoldError
from compactor.failpoints import hit
from compactor.model.actions import AddSnapshot
from compactor.model.state import CatalogState
from compactor.ports import TableVersion
from compactor.snapshot import location, manifest
from compactor.snapshot.content import APPEND, records_of
from compactor.snapshot.data_files import write_data
from compactor.snapshot.manifest import Manifest, SnapshotInputs, WrittenFiles
from compactor.snapshot.typed_files import earlier_columns, write_typed
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def snapshot_id(now_ms: int, random: str) -> str:
    """Makes the name of a new snapshot: UTC time and a short random end."""
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%dT%H%M%SZ}-{random}"


def write_snapshot(
    spark: SparkSession,
    storage: Storage,
    place: Storage,
    state: CatalogState,
    topic: str,
    name: str,
    now_ms: int,
    inputs: SnapshotInputs,
    copy: Callable[[str], WrittenFiles] | None = None,
) -> AddSnapshot:
    """Writes the snapshot `name` of `topic` to `place` (the snapshot location), complete with its manifest.

    These are steps 15 and 16. Its data files are written of the runs; or `copy` makes them, given its folder. Its
    vector holds the ends that the logs have in `state`, whatever is published and ingested meanwhile: each is the end
    of a fold that was sent completely. Raises FoldError if records are missing, SnapshotError if bytes are no text or a
    registry does not answer, StorageError.
    """
    logs = state.logs_of(topic)
    path = f"{state.connector}/{topic}/{name}"
    # 15: the mark first, then the data files
    location.write_mark(place, path, state, storage)
    if copy is not None:
        made = copy(path)
    elif inputs.typed is None:
        made = write_data(spark, storage, place.sub(path), logs, inputs)
    else:
        earlier = earlier_columns(place, state, topic)
        made = write_typed(spark, storage, place.sub(path), logs, inputs, inputs.typed, earlier)
    hit("snapshot.write")
    written = manifest.manifest_of(state, logs, made, now_ms, inputs)
    _check_counts(written, made.left_out, records_of(logs, inputs.mode))
    # 16a to 16c: the topic's table
    if inputs.typed is not None and inputs.typed.tables is not None:
        inputs.typed.tables.commit(_table_version(written, state, name, inputs.typed.settings, place.sub(path)))
    # 16: the manifest: from now on the snapshot is complete
    place.write(f"{path}/{manifest.NAME}", manifest.encode(written))
    hit("snapshot.manifest")
    return AddSnapshot(
        topic=topic,
        id=name,
        path=path,
        created_ms=now_ms,
        source_offsets=written.source_offsets,
        records=written.records,
        bytes=sum(file.bytes for file in made.files),
    )


def _table_version(written: Manifest, state: CatalogState, name: str, settings: str, folder: Storage) -> TableVersion:
    return TableVersion(
        connector=written.connector,
        catalog_id=state.catalog_id,
        epoch=state.epoch,
        topic=written.topic,
        snapshot=name,
        appends=written.snapshot_mode == APPEND,
        settings=settings,
        source_offsets=written.source_offsets,
        output_offsets=written.output_offsets,
        generations={} if written.generations is UNSET else written.generations,
        folder=folder,
        files=[file.path for file in written.files],
        has_unique_keys=len(written.source_offsets) == 1 or written.scope == "topic",
    )


def _check_counts(written: Manifest, left_out: int, kept: int | None) -> None:
    if kept is not None and kept != written.records + left_out:
        raise FoldError(
            f"Connector {written.connector}: a snapshot of topic {written.topic} has {written.records} records and "
            f"left out {left_out}; the runs hold {kept} records.",
            "Nothing was published of it; see whether files in storage.location were touched.",
        )
