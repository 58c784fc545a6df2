"""Builds, writes and reads a snapshot's manifest: what its files hold, and the offsets at which a reader resumes.

Offsets are the next to read. The text is canonical: same snapshot, same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import FoldError, StorageError
from compactor.json_types import decoded_as
from compactor.model.log import PartitionLog, generation_of
from compactor.model.state import BY_OFFSET, BYTES, CatalogState
from compactor.model.times import LAST_MS
from compactor.ports import ColumnTypes, Tables
from compactor.settings import CompactionPolicy
from compactor.snapshot.content import APPEND, LATEST, end_of, records_of
from compactor.snapshot.partitions import PartitionField
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES

VERSION: Final = 1
TYPED_VERSION: Final = 2
"""The format of typed snapshots: they have no columns `key` and `value`, which readers of format 1 look for."""
NAME: Final = "_manifest.json"
"""Readers that are given a whole folder skip names that begin with an underscore."""

NAMES: Final = (NAME, "manifest.json")
"""What a manifest may be called: the second name is that of older snapshots."""


class DataFile(Struct, frozen=True, kw_only=True):
    """One Parquet file; `path` is relative to the manifest's folder."""

    path: str
    bytes: int
    sha256: str
    records: int


class Column(Struct, frozen=True):
    """A column's name and Arrow type."""

    name: str
    type: str


class Unplaced(Struct, frozen=True):
    """A record of which the key or the value fits no column, or cannot be read: it is in `column` as it is."""

    column: str
    partition: int
    offset: int
    reason: str


class Typed(Struct, frozen=True, kw_only=True):
    """What a typed snapshot says of its columns.

    `partition_by` are the fields by which files lie in folders, in Hive's manner; each file has these columns as well.
    `settings` differs if the columns of two snapshots are made in other ways. `renamed`: the field of each column that
    has another name. `unplaced` counts records by the column that holds them whole, `first` has some of them. `kept` is
    what the next snapshot begins its columns with, by side. `converters` has by side what reads and writes the bytes
    that the columns are of: its `class`, and its settings, nothing secret. `schemas` has by side those that the
    records were read with, that of the most first. Older snapshots have neither.
    """

    value_format: str
    key_format: str
    metadata_columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    settings: str
    renamed: dict[str, str] = {}
    unplaced: dict[str, int] = {}
    first: tuple[Unplaced, ...] = ()
    kept: dict[str, str] = {}
    converters: dict[str, dict[str, str]] = {}
    schemas: dict[str, tuple[str, ...]] = {}


class Misfits(Struct, frozen=True):
    """How many records are whole in `column`; `first` says partition, offset and reason of the first, if known."""

    column: str
    records: int
    first: str


class TypedInputs(Struct, frozen=True, kw_only=True):
    """What a typed snapshot is made by: the types of keys and values, None if they stay bytes.

    `metadata`: the metadata columns that it has. `by_default`: the sides for which no setting says that they are typed.
    `tables`: what keeps a table of each topic equal to it. `partitions`: the levels of folders that files lie in.
    """

    key: ColumnTypes | None
    value: ColumnTypes | None
    metadata: tuple[str, ...]
    by_default: frozenset[str] = frozenset()
    tables: Tables | None = None
    partitions: tuple[PartitionField, ...] = ()

    def after(self, newest: Manifest | None) -> TypedInputs | None:
        """Returns what the snapshot after `newest` is made by: a side of bytes stays so unless a setting says typed.

        None: both sides are bytes.
        """
        if newest is None:
            return self
        formats = {"key": BYTES, "value": BYTES}
        if newest.typed is not UNSET:
            formats = {"key": newest.typed.key_format, "value": newest.typed.value_format}
        stay = {side for side in self.by_default if formats[side] == BYTES}
        key, value = (None if side in stay else types for side, types in (("key", self.key), ("value", self.value)))
        return None if key is None and value is None else replace(self, key=key, value=value)

    @property
    def settings(self) -> str:
        """What decides how the columns are made, as one text."""
        sides = (types.settings if types is not None else "bytes" for types in (self.value, self.key))
        by = map(str, self.partitions)
        return " ".join([*sides, *self.metadata, *by, *([self.tables.settings] if self.tables is not None else [])])


class WrittenFiles(Struct, frozen=True, kw_only=True):
    """A snapshot's data files by name, how many records they leave out, and their columns."""

    files: tuple[DataFile, ...]
    left_out: int
    schema: tuple[Column, ...]
    typed: Typed | UnsetType = UNSET


class Manifest(Struct, frozen=True, kw_only=True):
    """The manifest's fields in their order; times are UTC, ISO 8601. Older ones have no `catalog_id`.

    `generations`, by partition, are there once one of them is above 1: the source offsets count within them.
    `snapshot_mode`, `start_offsets` and `rejected_excluded` are there in snapshots of the mode `append`: the offset of
    each partition from which on its records are kept, and how many records in between could not be read, so that they
    are in no file. `key_identity` is there if keys are not compared by their bytes, `order` if records are not ordered
    by offset, `scope` if a key has one record over all partitions, and `fill` if values are filled. `typed` is there if
    the fields of keys or values are columns.
    """

    format_version: int = VERSION
    connector: str
    catalog_id: str | None = None
    topic: str
    output_topic: str | None
    output_topic_id: str | None
    isolation_level: str = "read_committed"
    snapshot_mode: str | UnsetType = UNSET
    created_at: str
    resume_safe_until: str | None
    start_offsets: dict[str, int] | UnsetType = UNSET
    source_offsets: dict[str, int]
    output_offsets: dict[str, int]
    generations: dict[str, int] | UnsetType = UNSET
    key_identity: str | UnsetType = UNSET
    order: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    fill: str | UnsetType = UNSET
    records: int
    tombstones_excluded: int
    rejected_excluded: int | UnsetType = UNSET
    policy: dict[str, str | int | float]
    schema: tuple[Column, ...]
    typed: Typed | UnsetType = UNSET
    files: tuple[DataFile, ...]


class SnapshotInputs(Struct, frozen=True, kw_only=True):
    """What a snapshot needs besides the catalog: from Kafka, how readers resume; from the settings, how it is written.

    `output_starts`: the output's first offset by partition. `resume_safe_ms`: how long the output can be resumed from a
    position; None: for ever. `strings` are the columns, of key and value, that are written as UTF-8 text. `mode` says
    which records it holds (`compactor.snapshot.content`). A data file is closed once it has `file_bytes` bytes. `typed`
    is there if keys or values become columns of their types.
    """

    output_starts: dict[int, int]
    resume_safe_ms: int | None
    policy: CompactionPolicy
    strings: frozenset[str] = frozenset()
    mode: str = LATEST
    file_bytes: int = 128 << 20
    typed: TypedInputs | None = None


def manifest_of(
    state: CatalogState, logs: Sequence[PartitionLog], written: WrittenFiles, now_ms: int, inputs: SnapshotInputs
) -> Manifest:
    """Builds the manifest of a snapshot of `logs`, one topic's, in the files that were `written`."""
    appends = inputs.mode == APPEND
    topic = state.topics[logs[0].topic]
    placed = [log for log in logs if topic.outputs is UNSET or log.partition < topic.outputs]
    since_ms = min(_stood_ms(log, now_ms) for log in logs)
    safe = None if inputs.resume_safe_ms is None else since_ms + inputs.resume_safe_ms
    return Manifest(
        format_version=VERSION if inputs.typed is None else TYPED_VERSION,
        connector=state.connector,
        catalog_id=state.catalog_id,
        topic=topic.topic,
        output_topic=topic.output,
        output_topic_id=topic.output_id,
        snapshot_mode=APPEND if appends else UNSET,
        created_at=iso(now_ms) or "",
        resume_safe_until=iso(safe),
        start_offsets=by_partition({log.partition: log.start for log in logs}) if appends else UNSET,
        source_offsets=vector(logs, inputs.mode),
        output_offsets=by_partition(_output_offsets(placed, inputs.output_starts) if topic.output else {}),
        generations=_generations(logs),
        key_identity=UNSET if state.identity == BYTES else state.identity,
        order=UNSET if state.order == BY_OFFSET else state.order,
        scope=state.scope if state.is_of_topics else UNSET,
        fill=state.fill,
        records=sum(file.records for file in written.files),
        tombstones_excluded=0 if appends else written.left_out,
        rejected_excluded=written.left_out if appends else UNSET,
        policy=named(inputs.policy),
        schema=written.schema,
        typed=written.typed,
        files=written.files,
    )


def would_repeat(
    newest: Manifest, state: CatalogState, logs: Sequence[PartitionLog], schema: pa.Schema, inputs: SnapshotInputs
) -> bool:
    """Returns whether a snapshot of `logs`, one topic's, would say and hold what `newest` does, but for its times.

    A base run that is as long holds the same: between the same offsets a clean leaves out tombstones only, which no
    snapshot has, and retention whole files. Without a fold a log of the same first and last offset holds the same.
    """
    left_out = left_out_of(newest, logs)
    if not _has_same_columns(newest, schema, inputs.typed):
        return False
    again = manifest_of(state, logs, repeated(newest, left_out), 0, inputs)
    times = {"created_at": newest.created_at, "resume_safe_until": newest.resume_safe_until}
    bounded = newest.resume_safe_until is not None
    return (
        replace(again, **times) == replace(newest, tombstones_excluded=again.tombstones_excluded)
        and newest.records + left_out == records_of(logs, inputs.mode)
        and bounded == (inputs.resume_safe_ms is not None)
    )


def repeated(newest: Manifest, left_out: int) -> WrittenFiles:
    """Returns the files of a snapshot that repeats `newest`, and leaves out `left_out` records."""
    return WrittenFiles(files=newest.files, left_out=left_out, schema=newest.schema, typed=newest.typed)


def _has_same_columns(newest: Manifest, schema: pa.Schema, typed: TypedInputs | None) -> bool:
    """Returns whether the records of `newest` would become the same columns now: of `schema`, or `typed`.

    A typed snapshot has those that its records had; what makes them of these is in its settings.
    """
    if typed is None:
        return newest.typed is UNSET and newest.schema == columns(schema)
    return newest.typed is not UNSET and newest.typed.settings == typed.settings


def left_out_of(newest: Manifest, logs: Sequence[PartitionLog]) -> int:
    """Returns how many records another snapshot with the files of `newest` leaves out.

    A clean may have dropped tombstones since `newest`.
    """
    if newest.rejected_excluded is not UNSET:
        return newest.rejected_excluded
    return sum(log.base.tombstones for log in logs if log.base)


def is_fresh(newest: Manifest, inputs: SnapshotInputs, now_ms: int) -> bool:
    """Returns whether readers have at `now_ms` at least half of the time left in which they can go on from `newest`.

    True if there is no limit, and if no time can be promised: another snapshot would promise none either. False if its
    time is damaged.
    """
    if newest.resume_safe_until is None or not inputs.resume_safe_ms:
        return True
    try:
        left = datetime.fromisoformat(newest.resume_safe_until) - datetime.fromtimestamp(now_ms / 1000, UTC)
    except (ValueError, TypeError):  # no time, or one without a zone
        return False
    return left >= timedelta(milliseconds=inputs.resume_safe_ms) / 2


def encode(manifest: Manifest) -> bytes:
    """Encodes `manifest` as JSON, indented by 2."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode(data: bytes) -> Manifest:
    """Decodes what `encode` has written. Raises FoldError if it is damaged or of a later format."""
    try:
        decoded = decoded_as(data, Manifest)
    except UNDECODABLE as error:
        raise FoldError(
            f"A manifest cannot be read: {why(error)}.", "Take an older snapshot, or make a new one."
        ) from None
    if decoded.format_version not in {VERSION, TYPED_VERSION}:
        raise FoldError(
            f"A manifest has format {decoded.format_version}, this keyfold reads {VERSION} and {TYPED_VERSION}.",
            "Use a newer keyfold.",
        )
    return decoded


def mode_of(manifest: Manifest) -> str:
    """Returns which records the snapshot of `manifest` holds, by `snapshot.mode`."""
    return LATEST if manifest.snapshot_mode is UNSET else manifest.snapshot_mode


def path_of(place: Storage, folder: str) -> str | None:
    """Finds the path of the manifest of the snapshot in `folder`; None if that has none."""
    return next((path for name in NAMES if place.exists(path := f"{folder}/{name}")), None)


def read(place: Storage, folder: str) -> Manifest:
    """Reads the manifest of the snapshot in `folder`, by any of NAMES. Raises MissingFileError and as `decode` does."""
    path = path_of(place, folder) or f"{folder}/{NAME}"
    try:
        return decode(place.read(path, LARGE_BYTES))
    except FoldError as error:
        raise FoldError(f"{place.location}/{path}: {error.message}", error.action) from None


def misfits(place: Storage, folder: str) -> tuple[Misfits, ...]:
    """Reads how many records of the snapshot in `folder` fit no column, by the column that holds them whole.

    Returns nothing if the manifest cannot be read: who has just taken the snapshot has it all the same.
    """
    try:
        typed = read(place, folder).typed
    except (StorageError, FoldError):
        return ()
    if typed is UNSET:
        return ()
    first = {each.column: each for each in reversed(typed.first)}
    return tuple(
        Misfits(column, records, f"partition {each.partition}, offset {each.offset}: {each.reason}" if each else "")
        for column, records in typed.unplaced.items()
        for each in [first.get(column)]
    )


def iso(ms: int | None) -> str | None:
    """Formats `ms` since the epoch as ISO 8601; None if it is None, or lies beyond the calendar's year 9999."""
    if ms is None or ms > LAST_MS:
        return None
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def columns(schema: pa.Schema) -> tuple[Column, ...]:
    """Returns `schema` as a manifest has it."""
    return tuple(Column(field.name, str(field.type)) for field in schema)


def vector(logs: Iterable[PartitionLog], mode: str) -> dict[str, int]:
    """Returns the source offsets up to which a snapshot of `logs`, one topic's, has their records."""
    return by_partition({log.partition: end_of(log, mode) for log in logs})


def by_partition(offsets: Mapping[int, int]) -> dict[str, int]:
    """Returns `offsets` as JSON has them, by partition number as text, rising."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def named(policy: CompactionPolicy) -> dict[str, str | int | float]:
    """Returns the fields of `policy` under Kafka's names."""
    fields: dict[str, Any] = {name.replace("_", "."): value for name, value in msgspec.structs.asdict(policy).items()}
    return {**fields, "cleanup.policy": ",".join(policy.cleanup_policy)}


def _generations(logs: Sequence[PartitionLog]) -> dict[str, int] | UnsetType:
    numbers = {log.partition: generation_of(log) for log in logs}
    return by_partition(numbers) if any(number > 1 for number in numbers.values()) else UNSET


def _stood_ms(log: PartitionLog, now_ms: int) -> int:
    """Returns the time in ms at which a reader of the output had reached the end of `log`'s base run, at the latest.

    The time in which it can resume counts from then on. `published` does not decide it: more may have been sent than
    the catalog knows.
    """
    if log.folded_end == log.clean_end:
        return now_ms
    known = (time for time in (log.behind_ms, log.last_full_fold_ms) if time is not None)
    return min(next(known, 0), now_ms)


def _output_offsets(logs: Sequence[PartitionLog], starts: Mapping[int, int]) -> dict[int, int]:
    """Returns the offsets at which a reader resumes, by partition: at the vector's commit or an earlier one."""
    return {
        log.partition: log.base_output.output_offset if log.base_output else starts.get(log.partition, 0)
        for log in logs
    }
