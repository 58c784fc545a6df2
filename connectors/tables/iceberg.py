"""A table in Iceberg's format, written with `pyiceberg` to a catalog: an SQL catalog of its own unless one is set.

A commit is made on the table's version that was read, or fails: a transaction's own tries would commit on top of
whatever a newer owner has committed.
"""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow, write_file
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table, Transaction, WriteTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertCurrentSchemaId, AssertTableUUID
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)

from compactor.errors import SnapshotError
from compactor.snapshot.partitions import IDENTITY, PartitionField
from compactor.storage.base import Storage
from connectors.tables.catalog_files import CATALOG_FILES, BoundedFiles, FileBounds
from connectors.tables.columns import ICEBERG, TableFormat, far_times, names_in, optional
from connectors.tables.iceberg_columns import evolve, unused_schemas
from connectors.tables.iceberg_paths import metadata_of, paths_of
from connectors.tables.positions import PLACE
from connectors.tables.stores import names_code
from connectors.tables.table_files import TableChange, TableConflictError, TableFile, TableHead
from connectors.tables.table_partitions import (
    foreign,
    noted_partitions,
    remove_empty_folders,
    values_in,
    with_partitions,
)

MADE_WITH: Final = {
    "format-version": "2",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}
"""Properties of a new table. All engines read version 2; of the files of metadata the newest ones stay."""
_BOUNDS_OF: Final = "write.metadata.metrics.column."
"""Which statistics a file gets of a column: pyiceberg makes Python's values of bounds, or fails."""

_OWN: Final = b"keyfold"
_DATA: Final = "data"
_OWN_FILE: Final = re.compile(
    rf"{_DATA}/(?:.*/)?00000-0-{_OWN[:4].hex()}-{_OWN[4:6].hex()}-{_OWN[6:].hex()}[-0-9a-f]+\.parquet"
)
"""What `write` names a file: pyiceberg takes a UUID, which begins with our name."""
_NO_CODE: Final = "It names code, which keyfold does not run. Remove it, or set another snapshot.table.name."
_TRANSFORMS: Final[dict[str, Transform[Any, Any]]] = {
    IDENTITY: IdentityTransform(),
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


class IcebergFiles:
    """The Iceberg table `identifier` of a topic. Implements `TableFiles`.

    `own` is the folder of its files, None if the catalog has another one. `bucket` is an object store that the worker
    itself reaches, below which the files may be; None if the catalog is not to say what is removed there.
    """

    format: TableFormat = ICEBERG

    def __init__(
        self,
        catalog: Catalog,
        identifier: tuple[str, ...],
        own: Storage | None,
        connector: str,
        partitions: Sequence[PartitionField] = (),
        bucket: Storage | None = None,
    ) -> None:
        self._partitions = partitions
        self._catalog = catalog
        self._identifier = identifier
        self._own = own
        self._bucket = bucket
        # For what goes by `bucket`; a catalog over REST has none, and bounds of its own.
        self._bounds = FileBounds.of(catalog.properties)
        self._where = f"Connector {connector}: the Iceberg table {'.'.join(identifier)}"
        if not isinstance(catalog, RestCatalog):  # `BoundedRestCatalog` leaves out what names code
            # As `Catalog` has it, but for the look; it does not hold the catalog, so that both go at once.
            of_table = partial(_file_io, self._where, catalog.properties)
            catalog._load_file_io = of_table  # type: ignore[method-assign]
            catalog.properties = {**catalog.properties, **CATALOG_FILES}

    def noted(self) -> Mapping[str, str] | None:
        """Reads the properties of our last commit."""
        try:
            return _noted(self._loaded())
        except NoSuchTableError:
            return None

    def head(self) -> TableHead | None:
        """Reads the newest version."""
        try:
            table = self._loaded()
        except NoSuchTableError:
            return None
        tasks = list(table.scan().plan_files())
        files = [
            TableFile(
                task,
                task.file.file_size_in_bytes,
                not task.delete_files,
                partial(_places, table, task),
                str(task.file.partition),
            )
            for task in tasks
        ]
        noted = _noted(table)
        self._check_partitions(table, noted)
        schema = schema_to_pyarrow(table.schema(), include_field_ids=False)
        return TableHead(table, optional(_small(schema)), files, noted)

    def begin(
        self, head: TableHead | None, schema: pa.Schema, replaced: Sequence[str] | None, keys: Sequence[str] = ()
    ) -> TableChange:
        """Begins the next version; a table that is not there is made, without a row. `keys` are identifier fields."""
        change = _IcebergChange(self._catalog, self._created(schema) if head is None else head.handle, self._partitions)
        if head is not None and schema != head.schema:
            kept = set(schema.names).difference(replaced or ())
            change.evolve(head.schema, schema, [name for name in head.schema.names if name not in kept])
        change.identify(keys)
        change.partition()
        return change

    def _check_partitions(self, table: Table, noted: Mapping[str, str]) -> None:
        """Raises SnapshotError for partitions that neither are wanted nor were ours before."""
        if _spec_of(table) not in (_those_of(table.schema(), by) for by in (self._partitions, noted_partitions(noted))):
            raise foreign(self._where, str(table.spec()))

    def expire(self, keep: int) -> None:
        """Removes all snapshots but the newest `keep` and those that branches and tags name, then their files.

        Schemas that none of the others needs go with them, once these are many.
        """
        table = self._loaded()
        if table.properties.get("gc.enabled", "true").lower() == "false":
            return
        named = {ref.snapshot_id for ref in table.metadata.refs.values()}
        snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
        old = [each for each in snapshots[:-keep] if each.snapshot_id not in named]
        if not old:
            return
        before = paths_of(table)
        table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
        newest = self._loaded()
        after = paths_of(newest)
        self._delete(table, sorted(before - after))
        unused = unused_schemas(newest)
        if unused is not None:
            same = AssertCurrentSchemaId.model_validate({"current-schema-id": newest.metadata.current_schema_id})
            self._catalog.commit_table(newest, (same, AssertTableUUID(uuid=newest.metadata.table_uuid)), (unused,))

    def _delete(self, table: Table, paths: Sequence[str]) -> None:
        """Removes files. Those in the worker's object store go by its own client: Arrow leaves an object for a folder.

        That object's name would have the value of the folder's partition. Raises ValueError for a file that is not to
        be touched: it is left to `BoundedFiles`.
        """
        root, bounds = None if self._bucket is None else f"{self._bucket.url('').rstrip('/')}/", self._bounds
        in_bucket = {path for path in paths if root and path.startswith(root) and bounds.refusal(path) is None}
        if self._bucket is not None and root is not None:
            self._bucket.delete_all(sorted(path.removeprefix(root) for path in in_bucket))
        for path in paths:
            if path not in in_bucket:
                with suppress(FileNotFoundError):
                    table.io.delete(path)

    def drop(self) -> None:
        """Takes the table out of its catalog, then removes its files; with `gc.enabled=false` these stay.

        A catalog over REST removes them itself. A table in a folder of its own leaves nothing there.
        """
        with suppress(NoSuchTableError):
            table = self._loaded()
            if table.properties.get("gc.enabled", "true").lower() == "false":
                self._catalog.drop_table(self._identifier)
                return
            if isinstance(self._catalog, RestCatalog):
                self._catalog.purge_table(self._identifier)
                return
            paths = paths_of(table) | metadata_of(table)
            self._catalog.drop_table(self._identifier)
            self._delete(table, sorted(paths))
        if self._own is not None:
            self._own.delete_folder("")
            with suppress(NamespaceNotEmptyError, NoSuchNamespaceError):
                self._catalog.drop_namespace(self._identifier[:-1])

    def purge(self) -> str | None:
        """Removes all snapshots that no branch or tag names, and their files, also those of a commit that was cut off.

        Of files that no version names only ours go: another writer may be about to commit its own. A commit that
        removes files has a manifest with their bounds, which later ones of the same kind keep. So an append of nothing
        comes first, which leaves that manifest out.
        """
        try:
            table = self._loaded()
        except NoSuchTableError:
            return None
        if table.properties.get("gc.enabled", "true").lower() == "false":
            return "the table sets gc.enabled=false"
        newest = table.current_snapshot()
        if newest is not None and any(each.deleted_files_count for each in newest.manifests(table.io)):
            change = _IcebergChange(self._catalog, table)
            change.forget(_noted(table))
        self.expire(1)
        table = self._loaded()
        if self._own is not None:
            named = {path.rpartition("/")[2] for path in paths_of(table)}
            cut_off = (info.path for info in self._own.walk(_DATA) if _OWN_FILE.fullmatch(info.path))
            self._own.delete_all([path for path in cut_off if path.rpartition("/")[2] not in named])
            if why := remove_empty_folders(self._own):
                return why
        current = table.metadata.current_snapshot_id
        names = sorted(name for name, ref in table.metadata.refs.items() if ref.snapshot_id != current)
        return f"branches or tags hold them: {', '.join(names)[:200]}" if names else None

    def _loaded(self) -> Table:
        """Reads the table's metadata. Raises NoSuchTableError, SnapshotError for a property that names code."""
        table = self._catalog.load_table(self._identifier)
        _refuse_code(self._where, table.properties)
        return table

    def _created(self, schema: pa.Schema) -> Table:
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        try:
            location = None if self._own is None else self._own.url("")
            table = self._catalog.create_table(self._identifier, schema, location=location, properties=MADE_WITH)
        except TableAlreadyExistsError as error:
            raise TableConflictError from error
        _refuse_code(self._where, table.properties)  # those of a catalog over REST
        return table


class _Transaction(Transaction):
    """A transaction that makes its metadata once after each of its updates.

    pyiceberg makes it, with a copy of all columns, each time that it looks at any of it: 26 times in a commit.
    """

    # What it was made for, and what was made.
    _made: tuple[object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with all updates so far."""
        if self._made is None or self._made[0] is not self._updates:
            self._made = self._updates, super().table_metadata
        return self._made[1]


class _IcebergChange:
    """The next version of an Iceberg table."""

    def __init__(self, catalog: Catalog, table: Table, partitions: Sequence[PartitionField] = ()) -> None:
        self._partitions = partitions
        self._catalog = catalog
        self._table = table
        self._transaction = _Transaction(table, autocommit=False)
        self._added: list[DataFile] = []
        self._lock = Lock()

    def evolve(self, old: pa.Schema, new: pa.Schema, lost: Sequence[str]) -> None:
        """Adds columns to those of `old`, and widens types.

        Those of `lost` go: one of the same name is another column from now on.
        """
        if lost:
            self.identify([path for path in self._identity() if path.partition(".")[0] not in lost])
            with self._transaction.update_schema(allow_incompatible_changes=True) as update:
                for name in lost:
                    update.delete_column(name)
        gone = set(lost)
        with self._transaction.update_schema() as update:
            evolve(update, pa.schema([field for field in old if field.name not in gone]), new)

    def identify(self, keys: Sequence[str]) -> None:
        """Makes the columns of the paths `keys` identifier fields, which are not null; those that were so may be."""
        before, wanted = self._identity(), set(keys)
        if before == wanted:
            return
        with self._transaction.update_schema(allow_incompatible_changes=True) as update:
            update.set_identifier_fields(*keys)
            for path in sorted(_with_parents(before) - _with_parents(wanted)):
                update.update_column(tuple(path.split(".")), required=False)
            for path in sorted(_with_parents(wanted) - _with_parents(before)):
                update.update_column(tuple(path.split(".")), required=True)

    def _identity(self) -> set[str]:
        return set(self._transaction.table_metadata.schema().identifier_field_names())

    def partition(self) -> None:
        """Gives the table its partitions, if it has others. Files of before keep theirs."""
        wanted = _those_of(self._transaction.table_metadata.schema(), self._partitions)
        if _spec_of(self._table) == wanted:
            return
        with self._transaction.update_spec() as update:
            for each in self._table.spec().fields:
                update.remove_field(each.name)
            for field in wanted:
                update.add_field(field.column, _TRANSFORMS[field.transform], field.name)

    def write(self, rows: pa.Table) -> None:
        """Writes a file."""
        metadata = self._transaction.table_metadata
        if unbounded := dict.fromkeys((f"{_BOUNDS_OF}{path}" for path in far_times(rows)), "counts"):
            metadata = metadata.model_copy(update={"properties": {**metadata.properties, **unbounded}})
        key = _partition_key(metadata.spec(), metadata.schema(), rows)
        mark = uuid.UUID(bytes=_OWN + secrets.token_bytes(9))
        task = WriteTask(mark, 0, metadata.schema(), rows.to_batches(), partition_key=key)
        written = list(write_file(self._table.io, metadata, iter([task])))
        with self._lock:
            self._added.extend(written)

    def commit(self, removed: Sequence[TableFile], properties: Mapping[str, str]) -> None:
        """Commits the files, with `properties` in the snapshot's summary and the table's own."""
        properties = with_partitions(properties, self._partitions)
        update = self._transaction.update_snapshot(properties).overwrite()
        for file in self._added:
            update.append_data_file(file)
        for gone in removed:
            update.delete_data_file(gone.handle.file)
        update.commit()
        self._commit(properties)

    def forget(self, properties: Mapping[str, str]) -> None:
        """Commits the files that are there, without a word of those that earlier commits removed."""
        self._transaction.update_snapshot(dict(properties)).fast_append().commit()
        self._commit(properties)

    def _commit(self, properties: Mapping[str, str]) -> None:
        self._transaction.set_properties(dict(properties))
        requirements = (*self._transaction._requirements, AssertTableUUID(uuid=self._table.metadata.table_uuid))
        try:
            made = self._catalog.commit_table(self._table, requirements, self._transaction._updates)
        except CommitFailedException as error:
            raise TableConflictError from error
        with suppress(Exception):  # the commit is made; a catalog that removes such files itself comes first
            self._catalog._delete_old_metadata(self._table.io, self._table.metadata, made.metadata)

    def discard(self) -> None:
        """Removes the files."""
        for file in self._added:
            with suppress(Exception):  # nothing names them
                self._table.io.delete(file.file_path)


def _refuse_code(where: str, properties: Mapping[str, Any]) -> None:
    """Raises SnapshotError if a table has a property that names code; the message begins with the table's name."""
    coded = next(filter(names_code, properties), None)
    if coded is not None:
        raise SnapshotError(f"{where} has the property {coded}.", _NO_CODE)


def _file_io(
    where: str, of_catalog: Mapping[str, Any], properties: Mapping[str, Any] = {}, location: str | None = None
) -> FileIO:
    """Returns what reads and writes a table's files; it would import the class that one of its `properties` names."""
    _refuse_code(where, properties)
    return BoundedFiles(load_file_io({**of_catalog, **properties}, location), FileBounds.of(of_catalog))


def _with_parents(paths: Iterable[str]) -> set[str]:
    """Returns `paths`, and those of the structs that they are in."""
    return {
        ".".join(parts[:depth]) for path in paths for parts in [path.split(".")] for depth in range(1, len(parts) + 1)
    }


def _spec_of(table: Table) -> list[PartitionField]:
    return _fields(table.spec(), table.schema())


def _those_of(schema: Schema, partitions: Sequence[PartitionField]) -> list[PartitionField]:
    """Returns those of which the table has the column."""
    return [field for field in partitions if field.column in schema.column_names]


def _fields(spec: PartitionSpec, schema: Schema) -> list[PartitionField]:
    named = ((schema.find_column_name(field.source_id) or "", str(field.transform)) for field in spec.fields)
    return [PartitionField(*pair) for pair in named]


def _partition_key(spec: PartitionSpec, schema: Schema, rows: pa.Table) -> PartitionKey | None:
    """Returns the partition that all `rows` are of; None if the table has none."""
    if spec.is_unpartitioned():
        return None
    values = zip(spec.fields, values_in(_fields(spec, schema), rows), strict=True)
    return PartitionKey([PartitionFieldValue(field, value) for field, value in values], spec, schema)


def _places(table: Table, task: FileScanTask) -> pa.Table:
    names = names_in(ICEBERG, PLACE)
    files = table.io.of_data() if isinstance(table.io, BoundedFiles) else table.io
    scan = ArrowScan(table.metadata, files, table.schema().select(*names), AlwaysTrue())
    return scan.to_table([task]).select(names).rename_columns(list(PLACE))


def _small(schema: pa.Schema) -> pa.Schema:
    """Returns `schema` with the types of typed snapshots in place of large ones."""
    from pyiceberg.io.pyarrow import _pyarrow_schema_ensure_small_types

    return _pyarrow_schema_ensure_small_types(schema)


def _noted(table: Table) -> dict[str, str]:
    return {name: text for name, text in table.properties.items() if name.startswith("keyfold.")}
