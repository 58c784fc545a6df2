"""Snapshots: the live records of a topic as plain Parquet, with a manifest that says where to go on from.

The base runs are the table already: their files are copied without tombstones and without a shuffle.
Order of making: mark, data, manifest, catalog commit, LATEST; of removing: the manifest first, the mark last. So nobody
ever finds a manifest whose files are not all there, nor data without the mark of its catalog.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from compactor.errors import FoldError
from compactor.failpoints import hit
from compactor.model.actions import AddSnapshot, DropSnapshot
from compactor.model.log import PartitionLog
from compactor.model.state import State
from compactor.settings import CompactionPolicy
from compactor.snapshot import manifest, shelfowner
from compactor.snapshot.data_files import columns, write_data
from compactor.snapshot.manifest import DataFile, Manifest
from compactor.storage.base import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST: Final = "LATEST"
CURRENT: Final = "current"
_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9A-Za-z]+")


class Extra(Struct, frozen=True, kw_only=True):
    """What the engine must be told: where the output begins by partition, and how long it can be resumed, in ms.

    `strings` are the columns, of key and value, that are written as UTF-8 text.
    """

    output_starts: dict[int, int]
    resume_safe_ms: int | None
    policy: CompactionPolicy
    strings: frozenset[str] = frozenset()


class Unreferenced(Struct, frozen=True, kw_only=True):
    """The snapshots in a topic's folder that its catalog does not name.

    `removable` are this catalog's own: why each may go, by id. `others` are the ids of all that nothing shows to be.
    """

    removable: dict[str, str]
    others: tuple[str, ...]


def snapshot_id(now_ms: int, random: str) -> str:
    """A new snapshot's name: UTC time and a short random end."""
    return f"{datetime.fromtimestamp(now_ms // 1000, UTC):%Y%m%dT%H%M%SZ}-{random}"


def write_snapshot(
    spark: SparkSession,
    storage: Storage,
    shelf: Storage,
    state: State,
    topic: str,
    name: str,
    now_ms: int,
    extra: Extra,
) -> AddSnapshot:
    """Steps 15 and 16: the snapshot `name` of `topic`, complete on `shelf` (the snapshot location) with its manifest.

    Its vector is where the base runs end, whatever is published and ingested meanwhile: that is always the end of a
    fold that was sent completely. Raises FoldError where records are missing, SnapshotError where bytes are no text,
    StorageError.
    """
    logs = tuple(sorted((log for log in state.logs if log.topic == topic), key=lambda log: log.partition))
    path = f"{state.connector}/{topic}/{name}"
    shelfowner.mark(shelf, path, state, storage)
    files, tombstones = write_data(spark, storage, shelf.sub(path), logs, extra.strings)
    hit("snapshot.write")
    written = _manifest(state, logs, files, tombstones, now_ms, extra)
    _check_counts(state.connector, topic, logs, written)
    shelf.write(f"{path}/{manifest.NAME}", manifest.encode(written))
    hit("snapshot.manifest")
    return AddSnapshot(
        topic=topic,
        id=name,
        path=path,
        created_ms=now_ms,
        source_offsets=written.source_offsets,
        records=written.records,
        bytes=sum(file.bytes for file in files),
    )


def set_latest(shelf: Storage, taken: AddSnapshot) -> None:
    """Step 17: LATEST names `taken`, which is in the catalog."""
    shelf.write(_beside(taken, LATEST), f"{taken.id}\n".encode())


def set_current(shelf: Storage, taken: AddSnapshot) -> None:
    """`current` leads to the data of `taken`, where the store has links."""
    shelf.link(_beside(taken, CURRENT), f"{taken.path}/data")


def _beside(taken: AddSnapshot, name: str) -> str:
    return f"{taken.path.rpartition('/')[0]}/{name}"


def expired(state: State, topic: str, keep: int) -> tuple[DropSnapshot, ...]:
    """All snapshots of `topic` but the newest `keep`, of which there is at least one.

    The newest is the one that was committed last: a clock may have been set back since.
    """
    taken = [one for one in state.snapshots if one.topic == topic]
    return tuple(DropSnapshot(topic=topic, id=one.id) for one in taken[: -max(1, keep)])


def settle(shelf: Storage, state: State) -> None:
    """Makes LATEST and `current` of every topic lead to its newest snapshot: who committed it may have died before.

    A snapshot that is not there any more is passed over: a restored catalog may name some that a later one has dropped.
    In a folder that is another catalog's nothing is changed.
    """
    if not state.snapshots or not shelfowner.owns(shelf, state):
        return
    newest = {one.topic: one for one in state.snapshots}.values()
    there = [taken for taken in newest if manifest.path_of(shelf, taken.path)]
    for taken in there:
        path = _beside(taken, LATEST)
        if not shelf.exists(path) or shelf.read(path).strip() != taken.id.encode():
            set_latest(shelf, taken)
    for taken in there:
        set_current(shelf, taken)


def remove(shelf: Storage, path: str) -> None:
    """Removes the snapshot at `path`, complete or not: its manifest first, its mark last."""
    for name in manifest.NAMES:
        shelf.delete(f"{path}/{name}")
    shelf.delete_folder(f"{path}/data")
    shelf.delete_folder(path)


def standing(shelf: Storage, state: State, topic: str) -> tuple[str, ...]:
    """The ids of all snapshots of `topic` on the shelf, complete or not."""
    return tuple(name for name in shelf.list(f"{state.connector}/{topic}") if _ID.fullmatch(name))


def unreferenced(
    shelf: Storage, state: State, topic: str, before: Collection[str], dropped: Collection[str] = (), keep: int = 0
) -> Unreferenced:
    """Which of the snapshots `before` (ids) of `topic` the catalog does not name, and which of these are its own.

    `before` was listed before the owner's last commit, which took the ids `dropped` out of the catalog: so none of it
    can be a newer owner's, who may have taken over since. What the catalog named is its own; of any other snapshot the
    mark, else the manifest, says whose it is. One of its own that is complete stays while it is among the newest `keep`
    by id: the catalog may be a restored copy, from before it was taken.
    """
    named = {one.id for one in state.snapshots if one.topic == topic}
    newest = sorted(named.union(before), reverse=True)[:keep]
    removable: dict[str, str] = {}
    others: list[str] = []
    for name in before:
        path = f"{state.connector}/{topic}/{name}"
        if name in dropped:
            removable[name] = "beyond snapshot.retention.count"
        elif name not in named and shelfowner.catalog_of(shelf, path) != state.catalog_id:
            others.append(name)
        elif name not in named and manifest.path_of(shelf, path) is None:
            removable[name] = "it was never completed"
        elif name not in named and name not in newest:
            removable[name] = "the catalog does not name it"
    return Unreferenced(removable=removable, others=tuple(others))


def others(shelf: Storage, state: State, topic: str) -> tuple[str, ...]:
    """The ids of the snapshots in the folder of `topic` that are not this catalog's: they stay as they are."""
    return unreferenced(shelf, state, topic, standing(shelf, state, topic)).others


def _check_counts(connector: str, topic: str, logs: Sequence[PartitionLog], written: Manifest) -> None:
    kept = sum(log.base.records for log in logs if log.base)
    if kept != written.records + written.tombstones_excluded:
        raise FoldError(
            f"Connector {connector}: a snapshot of topic {topic} has {written.records} records and left out "
            f"{written.tombstones_excluded} tombstones; the base runs hold {kept} records.",
            "Nothing was published of it; see whether files in storage.location were touched.",
        )


def _manifest(
    state: State, logs: Sequence[PartitionLog], files: Sequence[DataFile], tombstones: int, now_ms: int, extra: Extra
) -> Manifest:
    topic = state.topics[logs[0].topic]
    since_ms = min(_stood_ms(log, now_ms) for log in logs)
    safe = None if extra.resume_safe_ms is None else since_ms + extra.resume_safe_ms
    return Manifest(
        connector=state.connector,
        catalog_id=state.catalog_id,
        topic=topic.topic,
        output_topic=topic.output,
        output_topic_id=topic.output_id,
        created_at=manifest.iso(now_ms) or "",
        resume_safe_until=manifest.iso(safe),
        source_offsets=manifest.by_partition({log.partition: log.clean_end for log in logs}),
        output_offsets=manifest.by_partition(_output_offsets(logs, extra.output_starts) if topic.output else {}),
        records=sum(file.records for file in files),
        tombstones_excluded=tombstones,
        policy=manifest.named(extra.policy),
        schema=manifest.columns(columns(extra.strings)),
        files=tuple(files),
    )


def _stood_ms(log: PartitionLog, now_ms: int) -> int:
    """When a follower of the output was where the base run of `log` ends, at the latest: then its time begins.

    Not by `published`: what was sent beyond may be more than the catalog has heard of.
    """
    if log.folded_end == log.clean_end:
        return now_ms
    known = (time for time in (log.behind_ms, log.last_full_fold_ms) if time is not None)
    return min(next(known, 0), now_ms)


def _output_offsets(logs: Sequence[PartitionLog], starts: Mapping[int, int]) -> dict[int, int]:
    """Where a reader goes on: at the commit that the vector stands for, or an earlier one, never a later."""
    return {
        log.partition: log.base_output.output_offset if log.base_output else starts.get(log.partition, 0)
        for log in logs
    }
