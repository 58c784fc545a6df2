"""Looks through every file that keyfold has of a connector for erased keys: step E8 of docs/protocol.md.

Files of records are searched by their columns of keys. All others (commits, manifests, the logs and manifests of
tables, what a worker has noted) are searched for the bytes of the keys, decoded, if these are known.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import fastavro
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from msgspec import Struct

from compactor.errors import FoldError, MissingFileError, StorageError
from compactor.model.record import KEY_IDENTITY, as_compared
from compactor.runs.paths import RUNS, is_index
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.content import APPEND
from compactor.snapshot.data_files import TABLE
from compactor.snapshot.file_reader import open_parquet
from compactor.snapshot.partitions import without_values
from compactor.storage.base import FileInfo, Storage
from compactor.storage.lease import PROBE
from compactor.storage.limits import LARGE_BYTES
from connectors.machine_errors import refuse_machine
from connectors.operations.erase.key_matcher import NONE, KeyMatcher, Numbers, leaves
from connectors.operations.erase.receipt import (
    BYTES,
    FOREIGN,
    MOST_FINDINGS,
    REWRITTEN,
    TOMBSTONE,
    UNCOMPARED,
    UNFINISHED,
    UNSEARCHED,
    VALUE,
    Finding,
    Tombstone,
)
from connectors.operations.erase.unreadable import is_of_file

_log = structlog.get_logger()

RUN_LEVEL: Final = "runs"
SNAPSHOT_LEVEL: Final = "snapshots"
TABLE_LEVEL: Final = "tables"
NOTE_LEVEL: Final = "notes"
LEVELS: Final = (RUN_LEVEL, SNAPSHOT_LEVEL, TABLE_LEVEL, NOTE_LEVEL)
"""Runs; data files of snapshots; a table's files; everything else: commits, requests, manifests, receipts."""

_TYPED_KEYS: Final = ("_key", "_rest_key")
_VACUUM_MS: Final = 4_200_000
"""After so long the vacuum has removed what a dead writer left: its grace of an hour, and ten minutes to the next."""
_PLACES: Final = {"partition": ("partition", "_partition", "_source_partition"), "offset": ("offset", "_offset")}
_AVRO: Final = ".avro"
_PARQUET: Final = ".parquet"
_TABLES: Final = ("delta", "iceberg")


class SearchPlaces(Struct, frozen=True):
    """The places to search: the connector's storage, and the snapshot location, which has a folder of its name."""

    connector: str
    catalog_id: str
    storage: Storage
    snapshots: Storage | None


class SearchResult(Struct, frozen=True):
    """What was found in which files; `searched` counts them by level."""

    findings: tuple[Finding, ...]
    files: tuple[str, ...]
    searched: dict[str, int]

    def of(self, level: str, *kinds: str) -> list[Finding]:
        """Returns the findings of `kinds` in a level."""
        return [finding for finding in self.findings if finding.level == level and finding.what in kinds]


class KeySearch:
    """Searches for the keys of `matcher`; `tombstones` are those of the erasure.

    A temporary file that was written to since `since_ms` is of a writer at work, which had the tombstones before it.
    """

    def __init__(
        self, places: SearchPlaces, matcher: KeyMatcher, tombstones: Sequence[Tombstone], since_ms: int
    ) -> None:
        self._places = places
        self._matcher = matcher
        self._since_ms = since_ms
        # The offset of the last tombstone of a key in a partition: values above it came later.
        self._ends: dict[tuple[int, str, int], int] = {}
        for each in tombstones:
            at = each.key, each.topic, each.partition
            self._ends[at] = max(each.offset, self._ends.get(at, each.offset))
        self._with_tombstones = {topic for _, topic, _ in self._ends}
        self._found: list[Finding] = []
        self._kinds: set[tuple[str, str]] = set()  # kind and file of what is noted
        self._files: list[str] = []
        self._searched: Counter[str] = Counter()

    def everywhere(self) -> SearchResult:
        """Searches all files. Raises StorageError if a store does not answer."""
        self._storage()
        self._snapshot_location()
        return self._result()

    def snapshots(self) -> SearchResult:
        """Searches the snapshot location alone."""
        self._snapshot_location()
        return self._result()

    def _result(self) -> SearchResult:
        return SearchResult(tuple(self._found), tuple(self._files), dict(self._searched))

    def _storage(self) -> None:
        storage = self._places.storage
        for info in storage.walk(""):
            if info.path.startswith(f"{RUNS}/"):
                if not is_index(info.path):  # it has hashes of keys
                    self._try(storage, info, RUN_LEVEL, self._run_rows)
            else:
                self._try(storage, info, NOTE_LEVEL, self._bytes)
        self._unfinished(storage, "", RUN_LEVEL)

    def _unfinished(self, storage: Storage, folder: str, level: str) -> None:
        for info in storage.unfinished(folder):
            # What a store is asked for the time by has no content, and stays.
            if info.modified_ms < self._since_ms and info.path.rpartition("/")[2] != PROBE:
                self._note(UNFINISHED, level, storage, info, until_ms=info.modified_ms + _VACUUM_MS)

    def _snapshot_location(self) -> None:
        place = self._places.snapshots
        if place is None:
            return
        name = self._places.connector
        foreign: dict[str, bool] = {}
        for info in place.walk(name):
            parts = info.path.removeprefix(f"{name}/").split("/")
            folder = f"{name}/{'/'.join(parts[:2])}"
            if len(parts) > 2 and parts[1] in _TABLES:
                self._table_file(place, info, parts)
            elif len(parts) > 2 and listing.is_id(parts[1]) and info.path.endswith(_PARQUET):
                if folder not in foreign:
                    foreign[folder] = self._is_foreign(place, folder)
                self._snapshot_file(place, info, parts[0], folder, foreign=foreign[folder])
            else:
                self._try(place, info, NOTE_LEVEL, self._bytes)
        self._unfinished(place, name, SNAPSHOT_LEVEL)

    def _is_foreign(self, place: Storage, folder: str) -> bool:
        """Returns whether a snapshot says that it is of another catalog; one that cannot be read does not."""
        try:
            return location.catalog_of(place, folder) not in (None, self._places.catalog_id)
        except StorageError as error:
            if not is_of_file(error):
                raise
            return False

    def _table_file(self, place: Storage, info: FileInfo, parts: Sequence[str]) -> None:
        if info.path.endswith(_AVRO):
            self._try(place, info, TABLE_LEVEL, self._avro)
        elif not info.path.endswith(_PARQUET):
            self._try(place, info, TABLE_LEVEL, self._bytes)
        elif parts[2] == "_delta_log":
            self._try(place, info, TABLE_LEVEL, self._checkpoint)
        else:
            self._try(place, info, TABLE_LEVEL, self._rows_of(parts[0], None))

    def _snapshot_file(self, place: Storage, info: FileInfo, topic: str, folder: str, *, foreign: bool) -> None:
        before = len(self._found)
        self._try(place, info, SNAPSHOT_LEVEL, self._rows_of(topic, folder))
        if foreign:
            self._found[before:] = [msgspec.structs.replace(each, what=FOREIGN) for each in self._found[before:]]

    def _try(
        self, storage: Storage, info: FileInfo, level: str, search: Callable[[Storage, FileInfo, str], None]
    ) -> None:
        """Searches a file; one that cannot be read is noted, one that is gone meanwhile has nothing any more.

        Raises StorageError if it is the store that does not answer.
        """
        try:
            search(storage, info, level)
        except MissingFileError:
            return
        except StorageError as error:
            if not storage.exists(info.path):
                return
            if not is_of_file(error):
                raise
            self._unsearched(storage, info, level, error)
        except Exception as error:  # noqa: BLE001  # what a damaged file makes decoders raise has no class in common
            refuse_machine(error)
            self._unsearched(storage, info, level, error)
        self._files.append(f"{storage.location}/{info.path}")
        self._searched[level] += 1

    def _unsearched(self, storage: Storage, info: FileInfo, level: str, error: Exception) -> None:
        """Notes a file that cannot be searched. The log has no more of `error` than its class: it may quote a key."""
        self._note(UNSEARCHED, level, storage, info)
        file = f"{storage.location}/{without_values(info.path)}"
        _log.warning("file not searched for erased keys", file=file, error=type(error).__name__)

    def _note(self, what: str, level: str, storage: Storage, info: FileInfo, **more: Any) -> None:
        file = f"{storage.location}/{info.path}"
        if len(self._found) < MOST_FINDINGS or (what, file) not in self._kinds:
            self._kinds.add((what, file))
            self._found.append(Finding(what=what, level=level, file=file, **more))

    def _bytes(self, storage: Storage, info: FileInfo, level: str) -> None:
        if self._matcher.is_in(storage.read(info.path, LARGE_BYTES)):
            self._note(BYTES, level, storage, info)

    def _avro(self, storage: Storage, info: FileInfo, level: str) -> None:
        data = storage.read(info.path, LARGE_BYTES)
        self._leaves(list(fastavro.reader(io.BytesIO(data))), storage, info, level)

    def _checkpoint(self, storage: Storage, info: FileInfo, level: str) -> None:
        data = storage.read(info.path, LARGE_BYTES)
        self._leaves(pq.read_table(pa.BufferReader(data)).to_pylist(), storage, info, level)

    def _leaves(self, value: Any, storage: Storage, info: FileInfo, level: str) -> None:
        if any(map(self._matcher.is_in, leaves(value))):
            self._note(BYTES, level, storage, info)

    def _run_rows(self, storage: Storage, info: FileInfo, level: str) -> None:
        for row, key in self._matches(storage, info, ["key"]) or ():
            topic, partition, offset = row["topic"], row["partition"], row["offset"]
            at: dict[str, Any] = {"key": key, "topic": topic, "partition": partition, "offset": offset}
            if row["value"] is None:
                self._note(TOMBSTONE, level, storage, info, **at, until_ms=row["delete_horizon"])
            else:
                self._note(self._kind(**at), level, storage, info, **at)

    def _rows_of(self, topic: str, folder: str | None) -> Callable[[Storage, FileInfo, str], None]:
        """Returns the search of a file with rows of `topic`, of the snapshot in `folder` or of a table."""

        def search(storage: Storage, info: FileInfo, level: str) -> None:
            matches = self._matches(storage, info, None)
            if matches is None:
                if folder is None:  # a table's newest version is that of a snapshot from after the tombstones, if any
                    what = UNCOMPARED if topic in self._with_tombstones else UNSEARCHED
                    self._note(what, level, storage, info, topic=topic)
                elif not self._is_later(storage, folder, topic):
                    self._note(UNSEARCHED, level, storage, info, topic=topic)
                return
            for row, key in matches:
                partition, offset = (_first(row, names) for names in _PLACES.values())
                at: dict[str, Any] = {"key": key, "topic": topic, "partition": partition, "offset": offset}
                is_tombstone = "offset" in row and row["value"] is None  # only an untyped row has that column
                self._note(TOMBSTONE if is_tombstone else self._kind(**at), level, storage, info, **at)

        return search

    def _kind(self, key: int, topic: str, partition: int | None, offset: int | None) -> str:
        end = None if partition is None else self._ends.get((key, topic, partition))
        return VALUE if end is None or offset is None or offset < end else REWRITTEN

    def _matches(
        self, storage: Storage, info: FileInfo, columns: Sequence[str] | None
    ) -> list[tuple[Mapping[str, Any], int]] | None:
        """Returns the rows of a Parquet file that have a key, with its number; None if its keys cannot be compared.

        `columns` have the keys; None: those of a snapshot's or a table's rows do.
        """
        matches: list[tuple[Mapping[str, Any], int]] = []
        with open_parquet(storage, info.path, info.bytes) as opened:
            names = opened.schema_arrow.names
            is_run = columns is not None
            if columns is None and names == TABLE.names:
                columns = ["key"]
            present = [name for name in columns or _TYPED_KEYS if name in names]
            if not set(present) - {"_rest_key"}:
                return None
            wanted = [name for name in names if name in (_READ if columns else _TYPED_READ)]
            for group in range(opened.num_row_groups):
                table = opened.read_row_group(group, [*present, KEY_IDENTITY] if is_run else present)
                numbers = self._compared(table) if is_run else self._numbers(table)
                if numbers is None:
                    return None
                rows = np.flatnonzero(numbers != NONE)
                if len(rows):
                    held = opened.read_row_group(group, wanted).take(pa.array(rows)).to_pylist()
                    matches += zip(held, numbers[rows].tolist(), strict=True)
        return matches

    def _compared(self, run: pa.Table) -> Numbers:
        """Returns which rows of a run have a key, by what the connector compares keys by."""
        return self._matcher.numbers_kept(_one_chunk(run["key"]), _one_chunk(as_compared(run)["key"]))

    def _numbers(self, keys: pa.Table) -> Numbers | None:
        """Returns which rows have a key in one of the columns `keys`; None if one of these cannot be compared."""
        numbers = np.full(keys.num_rows, NONE)
        for column in keys.columns:
            compared = self._matcher.numbers(_one_chunk(column))
            if compared is None:
                return None
            numbers = np.maximum(numbers, compared)
        return numbers

    def _is_later(self, place: Storage, folder: str, topic: str) -> bool:
        """Returns whether the snapshot in `folder` was taken after each tombstone, so that it has no older value."""
        ends = {str(partition): end for (_, of, partition), end in self._ends.items() if of == topic}
        try:
            said = manifest.read(place, folder)
        except (MissingFileError, FoldError):
            return False
        except StorageError as error:
            if not is_of_file(error):
                raise
            return False
        is_latest = manifest.mode_of(said) != APPEND
        return bool(ends) and is_latest and all(said.source_offsets.get(name, 0) > end for name, end in ends.items())


_READ: Final = frozenset({"topic", "partition", "offset", "value", "delete_horizon"})
_TYPED_READ: Final = frozenset({"_partition", "_source_partition", "_offset"})
"""What is read of a row with an erased key. Typed rows have columns of any name besides."""


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def _first(row: Mapping[str, Any], names: Sequence[str]) -> int | None:
    return next((row[name] for name in names if name in row), None)


def snapshot_ids(result: SearchResult, *kinds: str) -> Iterator[tuple[str, str]]:
    """Yields topic folder and id of each snapshot of this catalog with findings of `kinds`."""
    seen: set[tuple[str, str]] = set()
    for finding in result.of(SNAPSHOT_LEVEL, *kinds):
        parts = finding.file.split("/")
        at = next((place for place, part in enumerate(parts) if listing.is_id(part)), None)
        if at is not None and (parts[at - 1], parts[at]) not in seen:
            seen.add((parts[at - 1], parts[at]))
            yield parts[at - 1], parts[at]
