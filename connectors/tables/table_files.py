"""What a table format gives: the files of a table's newest version, and a change that is committed as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from connectors.tables.columns import TableFormat


class TableConflictError(Exception):
    """Somebody else has committed since the table was read: nothing was committed, read it again."""


class TableFile(NamedTuple):
    """A data file of a table; `handle` is the format's own. `is_whole`: none of its rows is marked as deleted.

    `places` reads the columns `positions.PLACE`, by these names. `partition` is the same for all of one partition.
    """

    handle: Any
    bytes: int
    is_whole: bool
    places: Callable[[], pa.Table]
    partition: str = ""


class TableHead(NamedTuple):
    """A table's newest version. `noted` are the properties of our last commit, as far as they are still there."""

    handle: Any
    schema: pa.Schema
    files: Sequence[TableFile]
    noted: Mapping[str, str]


class TableChange(Protocol):
    """The next version of a table, of which nothing is visible before `commit`."""

    def write(self, rows: pa.Table) -> None:
        """Writes rows of one partition, with the version's columns, as one file; several threads may call it."""

    def commit(self, removed: Sequence[TableFile], properties: Mapping[str, str]) -> None:
        """Commits what was written, without the files `removed`. Raises TableConflictError."""

    def discard(self) -> None:
        """Removes what was written, after a conflict."""


class TableFiles(Protocol):
    """One table in its format. Methods raise what the format's library raises."""

    @property
    def format(self) -> TableFormat:
        """The types and names of the format."""

    def noted(self) -> Mapping[str, str] | None:
        """Reads the properties of our last commit, as `TableHead` has them; None if there is no table."""

    def head(self) -> TableHead | None:
        """Reads the newest version; None if there is no table. Raises SnapshotError if it cannot be written to."""

    def begin(
        self, head: TableHead | None, schema: pa.Schema, replaced: Sequence[str] | None, keys: Sequence[str] = ()
    ) -> TableChange:
        """Begins the next version with the columns of `schema`.

        `replaced`: every file is, and so are the columns of these names; None: some files stay. `keys`: the paths of
        the columns by which rows are told from now on, of which none is null; without any there is no such promise.
        """

    def expire(self, keep: int) -> None:
        """Removes all versions but the newest `keep`, and the files that no version needs any more."""

    def drop(self) -> None:
        """Removes the table with all its versions and files, and what an earlier call has left of it."""

    def purge(self) -> str | None:
        """Removes all versions but the newest, with what the format's own files say of them; returns why some stay."""
