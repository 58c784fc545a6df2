"""Snapshots: the live records of a topic as plain Parquet, with a manifest that says where to go on from.

The base runs are the table already: their files are copied without tombstones and without a shuffle.
Order of making: data, manifest, catalog commit, LATEST; of removing: the manifest first. So nobody ever finds
a manifest whose files are not all there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from compactor import manifest
from compactor.actions import AddSnapshot, DropSnapshot
from compactor.errors import FoldError
from compactor.failpoints import hit
from compactor.log import PartitionLog
from compactor.manifest import DataFile, Manifest
from compactor.policy import CompactionPolicy
from compactor.snapshotdata import TABLE, write_data
from compactor.state import State
from compactor.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATEST: Final = "LATEST"
_ID: Final = re.compile(r"\d{8}T\d{6}Z-[0-9A-Za-z]+")


class Extra(Struct, frozen=True, kw_only=True):
    """What the engine must be told: where the output begins by partition, and how long it can be resumed, in ms."""

    output_starts: dict[int, int]
    resume_safe_ms: int | None
    policy: CompactionPolicy


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
    fold that was sent completely. Raises FoldError where records are missing, StorageError.
    """
    logs = tuple(sorted((log for log in state.logs if log.topic == topic), key=lambda log: log.partition))
    path = f"{state.connector}/{topic}/{name}"
    files, tombstones = write_data(spark, storage, shelf.sub(path), logs)
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
    shelf.write(_latest(taken), f"{taken.id}\n".encode())


def _latest(taken: AddSnapshot) -> str:
    return f"{taken.path.rpartition('/')[0]}/{LATEST}"


def expired(state: State, topic: str, keep: int) -> tuple[DropSnapshot, ...]:
    """All snapshots of `topic` but the newest `keep`, of which there is at least one.

    The newest is the one that was committed last: a clock may have been set back since.
    """
    taken = [one for one in state.snapshots if one.topic == topic]
    return tuple(DropSnapshot(topic=topic, id=one.id) for one in taken[: -max(1, keep)])


def settle(shelf: Storage, state: State) -> None:
    """Lets every LATEST name its topic's newest snapshot: whoever committed one may have died or slept before it did.

    Only one that is there: a catalog that was restored may name some that a later one has dropped.
    """
    for taken in {one.topic: one for one in state.snapshots}.values():
        path = _latest(taken)
        named = shelf.exists(path) and shelf.read(path).strip() == taken.id.encode()
        if not named and shelf.exists(f"{taken.path}/{manifest.NAME}"):
            set_latest(shelf, taken)


def remove(shelf: Storage, path: str) -> None:
    """Removes the snapshot at `path`, complete or not: its manifest first."""
    shelf.delete(f"{path}/{manifest.NAME}")
    shelf.delete_folder(path)


def standing(shelf: Storage, state: State, topic: str) -> tuple[str, ...]:
    """The ids of all snapshots of `topic` on the shelf, complete or not."""
    return tuple(name for name in shelf.list(f"{state.connector}/{topic}") if _ID.fullmatch(name))


def sweep(shelf: Storage, state: State, topic: str, before: Collection[str]) -> tuple[str, ...]:
    """Removes what the catalog does not name: dropped snapshots, and those that were never completed.

    `before` was standing before the owner's last commit: so none of it can be a newer owner's, who may
    have taken over since. The ids that were removed.
    """
    folder = f"{state.connector}/{topic}"
    named = {one.id for one in state.snapshots if one.topic == topic}
    gone = tuple(name for name in before if name not in named)
    for name in gone:
        remove(shelf, f"{folder}/{name}")
    return gone


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
        schema=manifest.columns(TABLE),
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
