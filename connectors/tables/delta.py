"""A table in Delta's format: `<snapshot.location>/<connector>/<topic>/delta`, written with `deltalake`.

A commit replaces the version that was read, or fails (`max_commit_retries=0`): by itself the library would commit on
top of whatever a newer owner has committed.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from compactor.errors import SnapshotError
from compactor.ports import TableVersion
from compactor.snapshot.partitions import PartitionField, folder_of
from compactor.storage.base import Storage
from compactor.storage.limits import LARGE_BYTES
from connectors.clock import SYSTEM_CLOCK
from connectors.tables.columns import DELTA, TableFormat
from connectors.tables.delta_log import entry_path, last_commit
from connectors.tables.positions import PLACE
from connectors.tables.table_files import TableChange, TableConflictError, TableFile, TableHead
from connectors.tables.table_partitions import (
    foreign,
    noted_partitions,
    plain_text,
    remove_empty_folders,
    values_in,
    with_partitions,
)

_KEPT_BY: Final = frozenset({"delta.deletedFileRetentionDuration", "delta.logRetentionDuration"})
"""Properties by which a table's owner says how long its older versions stay."""
_OWN_FILE: Final = re.compile(r"(?:.*/)?part-\d{8}T\d{6}Z-[0-9A-Za-z]+-[0-9a-f]{16}\.parquet")
"""What `write` names a file: by a snapshot's id."""
_ENTRY: Final = re.compile(r"_delta_log/(\d{20})\.")
"""An entry of the log, its checksum or a checkpoint, of this version."""
_PLAIN: Final = frozenset({"NONE", "INT", "STRING"})
"""Parquet's types that may have statistics. Others are not made Python's: a date beyond year 9999 cannot be."""
_LONGEST: Final = 32
"""Characters of a text in the statistics."""


class DeltaFiles:
    """The Delta table of a topic, in the folder `place`. Implements `TableFiles`."""

    format: TableFormat = DELTA

    def __init__(
        self,
        place: Storage,
        version: TableVersion,
        options: dict[str, str] | None = None,
        partitions: Sequence[PartitionField] = (),
    ) -> None:
        self._partitions = partitions
        self._place = place
        self._version = version
        self._options = options
        # The id of our transactions: the table keeps the epoch of the last one.
        self._app = _app_of(version)

    def noted(self) -> Mapping[str, str] | None:
        """Reads the properties of our last commit."""
        try:
            return self._noted_in(self._opened())
        except TableNotFoundError:
            return None

    def head(self) -> TableHead | None:
        """Reads the newest version."""
        try:
            table = self._opened()
        except TableNotFoundError:
            return None
        noted = self._noted_in(table)
        self._check_partitions(table.metadata().partition_columns, noted)
        return TableHead(table, pa.schema(table.schema().to_arrow()), list(self._files(table)), noted)

    def begin(
        self,
        head: TableHead | None,
        schema: pa.Schema,
        replaced: Sequence[str] | None,
        keys: Sequence[str] = (),  # noqa: ARG002 - Delta has no primary key
    ) -> TableChange:
        """Begins the next version."""
        if head is not None and replaced is None and len(schema) > len(head.schema):
            _add_columns(head, schema)
        table = None if head is None else head.handle
        days = [pa.field(field.name, pa.string()) for field in self._partitions if field.name not in schema.names]
        return _DeltaChange(
            self._place,
            table,
            pa.schema([*schema, *days]),
            self._version,
            self._options,
            self._partitions,
            whole=replaced is not None,
        )

    def _check_partitions(self, columns: Sequence[str], noted: Mapping[str, str]) -> None:
        """Raises SnapshotError for partitions that somebody else has made, and for others than are wanted."""
        where = f"Connector {self._version.connector}: the Delta table {self._place.location}"
        if list(columns) == [field.name for field in self._partitions]:
            return
        if list(columns) != [field.name for field in noted_partitions(noted)]:
            raise foreign(where, ", ".join(columns))
        raise SnapshotError(
            f"{where} is partitioned by {', '.join(columns) or 'nothing'}, and Delta's tables keep theirs.",
            "Set snapshot.partition.by as it was, set another snapshot.location, or move the table away.",
        )

    def expire(self, keep: int) -> None:
        """Removes files that the newest `keep` versions do not need; those of others' open commits stay."""
        table = self._opened()
        if "delta.deletedFileRetentionDuration" in table.metadata().configuration:
            table.vacuum(dry_run=False)  # the table's own rule
            return
        newest = table.version()
        entries = (_ENTRY.match(info.path) for info in self._place.walk("_delta_log"))
        oldest = min((int(entry[1]) for entry in entries if entry), default=0)  # others went with an erasure
        kept = list(range(max(oldest, newest - keep + 1), newest + 1))
        removable = table.vacuum(0, dry_run=True, enforce_retention_duration=False, keep_versions=kept)
        self._place.delete_all(removable)

    def drop(self) -> None:
        """Removes the folder, the log first: no reader finds a table of which files are gone."""
        for folder in ("_delta_log", ""):
            self._place.delete_folder(folder)

    def purge(self) -> str | None:
        """Removes the files and the log entries of all versions but the newest, which gets a checkpoint.

        An entry has the least and the greatest values of its file. Of files that no version names only ours go: another
        writer may be about to commit its own. Entries and checkpoints also name the files that were removed, by paths
        that have the values of their partitions. So a commit of nothing comes first, and the checkpoint has no such
        file.
        """
        try:
            table = self._opened()
        except TableNotFoundError:
            return None
        rules = sorted(_KEPT_BY.intersection(table.metadata().configuration))
        if rules:
            return f"the table sets {' and '.join(rules)}"
        if self._names_removed(entry_path(table.version())):
            table = self._forget(table)
        newest = table.version()
        table.create_checkpoint()
        self._forget_removed(newest)
        named = {unquote(row["path"]) for row in pa.table(table.get_add_actions()).to_pylist()}
        unneeded = set(table.vacuum(0, dry_run=True, enforce_retention_duration=False))
        there = {info.path for info in self._place.walk("")}
        own = {path for path in there if _OWN_FILE.fullmatch(path)} - named
        old = {path for path in there if (entry := _ENTRY.match(path)) and int(entry[1]) < newest}
        self._place.delete_all(sorted(unneeded | own | old))
        return remove_empty_folders(self._place)

    def _names_removed(self, entry: str) -> bool:
        return self._place.exists(entry) and b'"remove"' in self._place.read(entry, LARGE_BYTES)

    def _forget(self, table: DeltaTable) -> DeltaTable:
        """Commits nothing, with the properties of our last commit; returns the table with that version."""
        said = CommitProperties(last_commit(self._place, table.version()), max_commit_retries=0)
        try:
            table.create_write_transaction([], "append", table.schema(), commit_properties=said)
        except CommitFailedError as error:
            raise TableConflictError from error
        return self._opened()

    def _forget_removed(self, version: int) -> None:
        """Writes the checkpoint of `version` again without the files that were removed."""
        path, hint = f"_delta_log/{version:020}.checkpoint.parquet", "_delta_log/_last_checkpoint"
        with self._place.open_input(path) as opened:
            actions = pq.read_table(opened)
        kept = actions.filter(pc.is_null(actions["remove"]))
        if kept.num_rows == actions.num_rows:
            return
        written = pa.BufferOutputStream()
        pq.write_table(kept, written)
        data = written.getvalue().to_pybytes()
        self._place.write(path, data)
        said = {**json.loads(self._place.read(hint)), "size": kept.num_rows, "sizeInBytes": len(data)}
        self._place.write(hint, json.dumps(said).encode())

    def _opened(self) -> DeltaTable:
        return DeltaTable(self._place.location, storage_options=self._options)

    def _noted_in(self, table: DeltaTable) -> Mapping[str, str]:
        epoch = table.transaction_version(self._app)
        return last_commit(self._place, table.version()) or ({} if epoch is None else _known_by(self._version, epoch))

    def _files(self, table: DeltaTable) -> Iterator[TableFile]:
        marked = set[str]()
        if "deletionVectors" in (table.protocol().reader_features or ()):
            marked = {path.rpartition("/")[2] for path in pa.table(table.deletion_vectors())["filepath"].to_pylist()}
        for row in pa.table(table.get_add_actions()).to_pylist():
            path, size = unquote(row["path"]), row["size_bytes"]
            is_whole = path.rpartition("/")[2] not in marked
            yield TableFile(path, size, is_whole, partial(self._places, path, size), str(row.get("partition")))

    def _places(self, path: str, size: int) -> pa.Table:
        with self._place.open_input(path, size) as opened:
            return pq.read_table(opened, columns=list(PLACE))


class _DeltaChange:
    """The next version of a Delta table; without a `table` the first one."""

    def __init__(
        self,
        place: Storage,
        table: DeltaTable | None,
        schema: pa.Schema,
        version: TableVersion,
        options: dict[str, str] | None,
        partitions: Sequence[PartitionField],
        *,
        whole: bool,
    ) -> None:
        self._partitions = partitions
        self._place = place
        self._table = table
        self._schema = schema
        self._version = version
        self._options = options
        self._whole = whole
        # Files that are complete; threads append to it.
        self._added: list[AddAction] = []

    def write(self, rows: pa.Table) -> None:
        """Writes a file."""
        values = values_in(self._partitions, rows) if self._partitions else []
        folder = folder_of(self._partitions, values)
        path = f"{folder}{'/' if folder else ''}part-{self._version.snapshot}-{secrets.token_hex(8)}.parquet"
        of_log = {field.name for field in self._partitions}  # Delta has them in its log alone
        held = rows.select([name for name in rows.column_names if name not in of_log])
        with self._place.open_output(path) as stream:
            with pq.ParquetWriter(stream, held.schema, compression="zstd") as writer:
                writer.write_table(held)
            size = stream.tell()
        with self._place.open_input(path) as opened:
            stats = _statistics(pq.read_metadata(opened))
        said = {field.name: plain_text(field, value) for field, value in zip(self._partitions, values, strict=True)}
        self._added.append(
            AddAction(
                path, size, said, modification_time=SYSTEM_CLOCK.now_ms(), data_change=True, stats=json.dumps(stats)
            )
        )

    def commit(self, removed: Sequence[TableFile], properties: Mapping[str, str]) -> None:
        """Commits the files."""
        transaction = Transaction(_app_of(self._version), self._version.epoch)
        commit = CommitProperties(
            with_partitions(properties, self._partitions), max_commit_retries=0, app_transactions=[transaction]
        )
        try:
            if self._table is None:
                create_table_with_add_actions(
                    self._place.location,
                    Schema.from_arrow(self._schema),
                    self._added,
                    partition_by=[field.name for field in self._partitions],
                    name=self._version.topic,
                    commit_properties=commit,
                    storage_options=self._options,
                )
            elif self._whole:
                self._table.create_write_transaction(
                    list(self._added), "overwrite", self._schema, commit_properties=commit
                )
            else:
                now = SYSTEM_CLOCK.now_ms()
                gone = [RemoveAction(file.handle, data_change=True, deletion_timestamp=now) for file in removed]
                self._table.create_write_transaction(
                    [*self._added, *gone], "append", self._schema, commit_properties=commit
                )
        except CommitFailedError as error:
            raise TableConflictError from error
        except DeltaError as error:
            if self._table is None and "already exists" in str(error):
                raise TableConflictError from error
            raise

    def discard(self) -> None:
        """Removes the files."""
        with suppress(Exception):  # nothing names them
            self._place.delete_all([action.path for action in self._added])


def _app_of(version: TableVersion) -> str:
    return f"keyfold/{version.catalog_id}/{version.topic}"


def _add_columns(head: TableHead, schema: pa.Schema) -> None:
    """Commits the columns of `schema` that the table lacks, right after the version that was read.

    Raises TableConflictError if another commit came first: the next one would stand on a version that was not read.
    """
    table: DeltaTable = head.handle
    read = table.version()
    known = set(head.schema.names)
    fields = [field for field in Schema.from_arrow(schema).fields if field.name not in known]
    try:
        table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
    except CommitFailedError as error:
        raise TableConflictError from error
    if table.version() != read + 1:
        raise TableConflictError


def _known_by(version: TableVersion, epoch: int) -> dict[str, str]:
    """Returns what the transaction's id alone says of our last commit, once the log has lost it."""
    return {"keyfold.catalog.id": version.catalog_id, "keyfold.topic": version.topic, "keyfold.epoch": str(epoch)}


def _statistics(metadata: Any) -> dict[str, Any]:
    """Returns Delta's statistics of a file, by which readers skip it: of whole numbers and short texts."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    stats: dict[str, Any] = {"numRecords": metadata.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for place in range(metadata.num_columns if groups else 0):
        chunks = [group.column(place) for group in groups]
        name = chunks[0].path_in_schema
        each = [chunk.statistics for chunk in chunks]
        if "." in name or not all(chunk is not None and chunk.has_null_count for chunk in each):
            continue
        stats["nullCount"][name] = sum(chunk.null_count for chunk in each)
        is_plain = all(chunk.logical_type.type in _PLAIN and chunk.has_min_max for chunk in each)
        if is_plain and all(_is_shown(chunk.min) and _is_shown(chunk.max) for chunk in each):
            stats["minValues"][name] = min(chunk.min for chunk in each)
            stats["maxValues"][name] = max(chunk.max for chunk in each)
    return stats


def _is_shown(value: Any) -> bool:
    return type(value) is int or (isinstance(value, str) and len(value) <= _LONGEST)
