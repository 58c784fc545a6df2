"""Tables of snapshots that a test writes, in a folder, read by what people read them with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from compactor.ports import TableVersion
from compactor.storage.local import LocalStorage
from connectors.config.connector import ConnectorConfig
from connectors.runtime.open_tables import tables_of
from connectors.tables.table_files import TableChange, TableFiles, TableHead
from connectors.tables.topic_tables import TopicTables

SCHEMA = pa.schema([("name", pa.string()), ("n", pa.int32()), ("_partition", pa.int32()), ("_offset", pa.int64())])


class Tables:
    """The table of topic `t` of connector `c` in one format.

    It is below `folder`, or below `place`: then `delta()` reads it with `options`. `iceberg()` reads it by the catalog
    of `settings`, or the one in the folder.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        place: Any = None,
        options: Any = None,
        **settings: object,
    ) -> None:
        self.kind = kind
        self.folder = folder
        place = place or LocalStorage(str(folder))
        self._delta = place.sub("c", "t", "delta").location
        self._options = options
        catalog = {name.removeprefix("iceberg.catalog."): str(settings[name]) for name in settings if "catalog" in name}
        self._catalog = catalog or {"type": "sql", "uri": f"sqlite:///{folder}/iceberg.db"}
        given = {
            "name": "c",
            "connector.class": "keyfold.CompactedTopic",
            "topics": "t",
            "snapshot.location": place.location,
            "snapshot.table": kind,
            **settings,
        }
        self.config = ConnectorConfig.model_validate(given)
        self._identifier = self.config.iceberg_table("t")
        made = tables_of(self.config, place, lambda: False, (folder / "kept" / "c").as_uri())
        assert made is not None
        self.tables: TopicTables = made
        self._taken = 0

    def commit(self, rows: Sequence[Mapping[str, Any]], schema: pa.Schema = SCHEMA, **changes: Any) -> TableVersion:
        """Commits a snapshot of `rows`, each with its partition and offset."""
        self._taken += 1
        version = self.version(f"s{self._taken}", [rows], schema, **changes)
        self.tables.commit(version)
        return version

    def version(
        self, name: str, files: Sequence[Sequence[Mapping[str, Any]]], schema: pa.Schema = SCHEMA, **changes: Any
    ) -> TableVersion:
        """Writes the files of a snapshot."""
        folder = self.folder / "c" / "t" / name
        folder.mkdir(parents=True, exist_ok=True)
        for number, rows in enumerate(files):
            pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), folder / f"{number}.parquet")
        ends = {"0": 1 + max((row.get("_offset", 0) for rows in files for row in rows), default=0)}
        made = TableVersion(
            connector="c",
            catalog_id="catalog",
            epoch=1,
            topic="t",
            snapshot=name,
            appends=False,
            settings="settings",
            source_offsets=ends,
            output_offsets={"0": 7},
            generations={},
            folder=LocalStorage(str(folder)),
            files=[f"{number}.parquet" for number in range(len(files))],
        )
        return made._replace(**changes)

    def delta(self) -> DeltaTable:
        """Opens the Delta table."""
        return DeltaTable(self._delta, storage_options=self._options)

    def iceberg(self) -> Table:
        """Opens the Iceberg table."""
        return load_catalog("keyfold", **{**self._catalog, **(self._options or {})}).load_table(self._identifier)

    def rows(self) -> list[dict[str, Any]]:
        """Reads the table, by partition and offset."""
        table = self.delta().to_pyarrow_table() if self.kind == "delta" else self.iceberg().scan().to_arrow()
        table = table.rename_columns(
            ["_partition" if name == "_source_partition" else name for name in table.column_names]
        )
        return table.sort_by([("_partition", "ascending"), ("_offset", "ascending")]).to_pylist()

    def files(self) -> set[str]:
        """Returns the names of the data files of the newest version."""
        if self.kind == "delta":
            return {Path(path).name for path in self.delta().file_uris()}
        return {Path(task.file.file_path).name for task in self.iceberg().scan().plan_files()}

    def commits(self) -> list[str]:
        """Returns the snapshots of our commits, the newest last."""
        if self.kind == "delta":
            history = [commit.get("keyfold.snapshot.id") for commit in reversed(self.delta().history())]
        else:
            history = [each.summary["keyfold.snapshot.id"] for each in self.iceberg().snapshots() if each.summary]
        return [name for name in history if name]

    def delete(self, name: str) -> None:
        """Deletes rows by their name, as another writer does."""
        if self.kind == "delta":
            self.delta().delete(f"name = '{name}'")
        else:
            self.iceberg().delete(f"name = '{name}'")


def row(offset: int, name: str, n: int | None = 1, partition: int = 0) -> dict[str, Any]:
    """Returns a row of SCHEMA."""
    return {"name": name, "n": n, "_partition": partition, "_offset": offset}


class Disturbed:
    """The files of a table (`TableFiles`); once the table was read, `between` is called.

    That is after the next version was begun; with `early` before that.
    """

    def __init__(self, inner: TableFiles, between: Callable[[], object], *, early: bool = False) -> None:
        self._inner = inner
        self._between = between
        self._early = early
        self.format = inner.format

    def noted(self) -> Mapping[str, str] | None:
        """Reads what our last commit has noted."""
        return self._inner.noted()

    def head(self) -> TableHead | None:
        """Reads the newest version."""
        return self._inner.head()

    def begin(
        self, head: TableHead | None, schema: pa.Schema, replaced: Sequence[str] | None, keys: Sequence[str] = ()
    ) -> TableChange:
        """Begins the next version, on which `between` comes first."""
        if self._early:
            self._between()
        change = self._inner.begin(head, schema, replaced, keys)
        if not self._early:
            self._between()
        return change

    def expire(self, keep: int) -> None:
        """Removes old versions."""
        self._inner.expire(keep)

    def drop(self) -> None:
        """Removes the table."""
        self._inner.drop()

    def purge(self) -> str | None:
        """Removes all versions but the newest."""
        return self._inner.purge()
