"""Makes the table of a topic equal its state, by steps 16a to 16c of docs/protocol.md.

1. The table's newest version is read. Of what catalog, epoch and snapshot our last commit was, its properties say.
2. Rows are compared by their places. A file with a row that the state has no longer is replaced, all others stay.
3. The rows that no file has any more are written, from the snapshot's files.
4. One commit changes the table, if its version is still that of 1. Otherwise all begins again with 1.
"""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import structlog
from pydantic_core import ValidationError

from compactor.errors import KeyfoldError, SnapshotError
from compactor.failpoints import hit
from compactor.ports import TableVersion
from compactor.snapshot.typed_table import KEY
from connectors.errors import NoThreadError
from connectors.known_values import hide_all, without_credentials
from connectors.tables import plan
from connectors.tables.columns import TableFormat, fitting, names_in, rows_of, united
from connectors.tables.plan import TablePlan
from connectors.tables.positions import PLACE, SnapshotPlaces
from connectors.tables.table_files import TableChange, TableConflictError, TableFiles, TableHead
from connectors.tables.time_limit import CALLS_S, Calls, run_within

_log = structlog.get_logger()

_TRIES: Final = 5
_ROWS_AT_ONCE: Final = 10_000_000
"""Rows of which places are compared at once, which takes 0.7 GB of memory. If there are more, the places in those files
of the table that stay are read once for each so many rows."""
_WRITERS: Final = 2
"""Files that are written at once: each holds its rows in memory."""
_LONGEST: Final = 64 << 10
"""The longest error (characters) that is searched for secrets, which takes some 30 ms; a longer one is not quoted."""
_SHOWN: Final = 500
"""Characters of an error that are quoted."""
_SAMPLE: Final = 1_000
"""Rows by which the size of all is told: of 5,000 columns they take 40 MB."""
_NAMED: Final = 3
"""Faults of an answer that are named."""


class TopicTables:
    """The tables of one connector's topics. Implements `compactor.ports.Tables`."""

    def __init__(
        self,
        table: Callable[[TableVersion], TableFiles],
        file_bytes: int,
        keep: int,
        settings: str,
        stopped: Callable[[], bool],
        *,
        calls_s: float = CALLS_S,
        rows_at_once: int = _ROWS_AT_ONCE,
    ) -> None:
        self.table = table
        self._file_bytes = file_bytes
        self._keep = keep
        self.settings = settings
        self._stopped = stopped
        self._calls_s = calls_s
        self._rows_at_once = rows_at_once

    def commit(self, version: TableVersion) -> None:
        """Makes the topic's table equal `version`; see `compactor.ports.Tables`."""
        self._run(version, f"table-{version.topic}", partial(self._commit, version), "could not be committed")

    def purge(self, version: TableVersion) -> str | None:
        """Removes older versions of the topic's table; see `compactor.ports.Tables`."""
        held: list[str | None] = []

        def purged(calls: Calls) -> None:
            with calls.counted():
                held.append(self.table(version).purge())

        self._run(version, f"purge-{version.topic}", purged, "could not be rid of its older versions")
        return held[0] if held else None

    def owned(self, version: TableVersion) -> bool | None:
        """Returns whether the table is of the topic and catalog of `version`; None if there is none.

        Raises SnapshotError.
        """
        held: list[bool | None] = []

        def looked(calls: Calls) -> None:
            with calls.counted():
                held.append(_is_owned(self.table(version), version))

        self._run(version, f"look-{version.topic}", looked, "cannot be looked at")
        return held[0] if held else None

    def drop(self, version: TableVersion) -> None:
        """Removes the table with all its versions and files, if it is owned; or what an earlier call has left of it.

        Raises SnapshotError.
        """

        def dropped(calls: Calls) -> None:
            with calls.counted():
                table = self.table(version)
                is_owned = _is_owned(table, version)
            if is_owned is not False:
                table.drop()  # as long as it takes: it may have many files, and somebody waits for just that

        self._run(version, f"drop-{version.topic}", dropped, "could not be removed")

    def _run(self, version: TableVersion, name: str, job: Callable[[Calls], None], failed: str) -> None:
        """Runs `job` within `calls_s`. Raises SnapshotError, with `failed`, for what the format's library raises."""
        try:
            run_within(self._calls_s, self._stopped, name, job)
        except NoThreadError as error:
            raise SnapshotError(error.message, error.action) from error
        except KeyfoldError:
            raise
        except ValidationError as error:
            raise _failure(version, failed, error) from None  # it quotes what is not to be shown
        except Exception as error:
            raise _failure(version, failed, error) from error

    def _commit(self, version: TableVersion, calls: Calls) -> None:
        with calls.counted():
            table = self.table(version)
        for _ in range(_TRIES):
            try:
                self._try(table, version, calls)
                break
            except TableConflictError:
                _log.info("another commit came first, the table is read again", topic=version.topic)
        else:
            raise SnapshotError(
                f"Connector {version.connector}: others have committed to the table of topic {version.topic} "
                f"{_TRIES} times while it was written.",
                "It is tried again. Let other writers commit less often, or set another snapshot.table.name.",
            )
        calls.made()
        try:
            with calls.counted():
                table.expire(self._keep)
        except Exception as error:  # noqa: BLE001  # the table is there; the next commit expires them
            _log.warning("old versions of a table are still there", topic=version.topic, error=_shown(error))

    def _try(self, table: TableFiles, version: TableVersion, calls: Calls) -> None:
        # 1: the newest version
        with calls.counted():
            head = table.head()
        if head is not None:
            _check_owner(head, version)
            if head.noted.get("keyfold.snapshot.id") == version.snapshot:
                return
        hit("table.read")
        # 2: what changes
        rows = _SnapshotRows(version, table.format)
        schema, conflicts = _columns(table, head, rows.schema, version)
        properties = _properties(version, rows.schema)
        planned = self._plan(head, rows, version, properties, schema)
        # 3: the rows that no file has any more
        with calls.counted():
            change = table.begin(head, schema, conflicts if planned.whole else None, _identity(table, rows, version))
        try:
            records = self._write(change, rows, schema, planned, calls)
            hit("table.write")
            # 4: one commit
            with calls.counted():
                change.commit(planned.removed, properties)
        except TableConflictError:
            change.discard()
            raise
        hit("table.commit")
        _log.info(
            "table committed",
            topic=version.topic,
            id=version.snapshot,
            files_removed=len(planned.removed),
            records_written=records,
        )

    def _plan(
        self,
        head: TableHead | None,
        rows: _SnapshotRows,
        version: TableVersion,
        properties: Mapping[str, str],
        schema: pa.Schema,
    ) -> TablePlan:
        """Decides which files are replaced, and which rows are written."""
        if head is None:
            return TablePlan()
        has_places = {*PLACE} <= {*rows.schema.names} and {*rows.names_of_places} <= {*head.schema.names}
        places = SnapshotPlaces(len(rows), rows.places, self._rows_at_once)
        if version.appends:
            if not has_places:
                raise _needs_places(version)
            return plan.append_by_offsets(head, properties) or plan.append_by_places(head, places)
        if not (has_places and plan.is_comparable(head, properties, schema)):
            return TablePlan(removed=tuple(head.files))
        return plan.replace(head, places, self._file_bytes, rows.row_bytes)

    def _write(
        self, change: TableChange, rows: _SnapshotRows, schema: pa.Schema, planned: TablePlan, calls: Calls
    ) -> int:
        """Writes the rows of `planned`, a few files at once; returns how many rows."""
        written_rows = 0
        pending: deque[Future[None]] = deque()
        with ThreadPoolExecutor(_WRITERS, thread_name_prefix="table") as pool:
            for part in _files_of(rows.wanted(planned), self._file_bytes):
                calls.check()
                written_rows += part.num_rows
                pending.append(pool.submit(change.write, rows_of(part, schema)))
                if len(pending) > _WRITERS:
                    pending.popleft().result()
            for written in pending:
                written.result()
        return written_rows


class _SnapshotRows:
    """The rows of a snapshot's files, with the names that columns have in a table of `table`."""

    def __init__(self, version: TableVersion, table: TableFormat) -> None:
        self._version = version
        # By path, read once; files themselves are open one at a time, as a snapshot with partitions has thousands.
        self._footers: dict[str, pq.FileMetaData] = {}
        for path in version.files:
            with self._opened(path) as file:
                self._footers[path] = file.metadata
                self.schema: pa.Schema = file.schema_arrow
                """The snapshot's, with its own names: all files have the same."""
        self._names = names_in(table, self.schema.names)
        self.names_of_places: Final = names_in(table, PLACE)

    def __len__(self) -> int:
        return sum(footer.num_rows for footer in self._footers.values())

    def named(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Returns the paths of the snapshot's columns `paths` in the table."""
        names = dict(zip(self.schema.names, self._names, strict=True))
        return tuple(".".join([names[top], *below]) for top, *below in (path.split(".") for path in paths))

    def have(self, paths: Sequence[str]) -> bool:
        """Returns whether no row has null in a column of `paths`, as the statistics of the files say."""
        return all(_nulls(footer, paths) == 0 for footer in self._footers.values())

    def row_bytes(self) -> float:
        """Returns how many bytes of Arrow a row takes, by the first ones."""
        first = next((batch for file in self._each() for batch in file.iter_batches(_SAMPLE)), None)
        return first.nbytes / first.num_rows if first is not None else 1.0

    def places(self) -> Iterator[pa.Table]:
        """Reads the places of all rows, file by file."""
        return (file.read(columns=list(PLACE)) for file in self._each())

    def wanted(self, planned: TablePlan) -> Iterator[tuple[str, pa.Table]]:
        """Yields the rows of `planned`, those of one partition one after the other, with the folder of their file."""
        first = 0
        for path, file in zip(self._version.files, self._each(), strict=True):
            folder = path.rpartition("/")[0]
            yield from ((folder, part.rename_columns(self._names)) for part in self._wanted(file, first, planned))
            first += file.metadata.num_rows

    @staticmethod
    def _wanted(file: pq.ParquetFile, first: int, planned: TablePlan) -> Iterator[pa.Table]:
        for group in range(file.num_row_groups):
            rows = slice(first, first + file.metadata.row_group(group).num_rows)
            first = rows.stop
            if planned.wanted is None:
                yield file.read_row_group(group)
                continue
            held = planned.wanted(rows, partial(file.read_row_group, group, columns=list(PLACE)))
            if held.all():
                yield file.read_row_group(group)
            elif held.any():
                yield file.read_row_group(group).filter(pa.array(held))

    def _each(self) -> Iterator[pq.ParquetFile]:
        for path in self._version.files:
            with self._opened(path) as file:
                yield file

    @contextmanager
    def _opened(self, path: str) -> Iterator[pq.ParquetFile]:
        with (
            self._version.folder.open_input(path) as source,
            pq.ParquetFile(source, metadata=self._footers.get(path)) as file,
        ):
            yield file


def _nulls(footer: pq.FileMetaData, paths: Sequence[str]) -> int | None:
    """Counts the nulls in the columns of `paths`; None if there is no such column, or nothing says so."""
    numbers = [number for number in range(footer.num_columns) if footer.schema.column(number).path in paths]
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    each = [group.column(number).statistics for group in groups for number in numbers]
    if len(numbers) != len(paths) or not all(said is not None and said.has_null_count for said in each):
        return None
    return sum(said.null_count for said in each)


def _shown(error: Exception) -> str:
    """Returns what a library says, without what was sent to a catalog or a store: their answers may repeat that.

    Secrets are hidden here, as commands that show this text later know no value of a placeholder; and in the whole
    text, as half of one is not recognised.
    """
    text = _without_input(error) if isinstance(error, ValidationError) else str(error)
    if len(text) > _LONGEST:
        return f"a text of {len(text)} characters (not shown)"
    return without_credentials(hide_all(text))[:_SHOWN]


def _failure(version: TableVersion, failed: str, error: Exception) -> SnapshotError:
    return SnapshotError(
        f"Connector {version.connector}: the table of topic {version.topic} {failed}: "
        f"{type(error).__name__}: {_shown(error)}.",
        "It is tried again. If that lasts, see whether the table's catalog and files can be reached.",
    )


def _without_input(error: ValidationError) -> str:
    """Returns what is wrong in an answer, without the pieces of it that pydantic quotes: each may be half a secret."""
    told = error.errors(include_url=False, include_context=False, include_input=False)[:_NAMED]
    return "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in told)


def _needs_places(version: TableVersion) -> SnapshotError:
    return SnapshotError(
        f"Connector {version.connector}: rows cannot be appended to the table of topic {version.topic}: which it has "
        f"is told by the columns {' and '.join(PLACE)}.",
        "Let snapshot.metadata.columns have both.",
    )


def _files_of(tables: Iterator[tuple[str, pa.Table]], most: int) -> Iterator[pa.Table]:
    """Gathers rows of one folder to about `most` bytes of Arrow, of which Parquet makes less."""
    held: list[pa.Table] = []
    size, before = 0, ""
    for folder, table in tables:
        if held and folder != before:
            yield pa.concat_tables(held)
            held, size = [], 0
        before = folder
        held.extend([table] if table.num_rows else [])
        size += table.nbytes
        if size >= most:
            yield pa.concat_tables(held)
            held, size = [], 0
    if held:
        yield pa.concat_tables(held)


def _columns(
    table: TableFiles, head: TableHead | None, schema: pa.Schema, version: TableVersion
) -> tuple[pa.Schema, tuple[str, ...]]:
    wanted = fitting(schema, table.format)
    if head is None:
        return wanted, ()
    kept = pa.schema([field for field in head.schema if field.name.lower() not in table.format.reserved])
    columns, conflicts = united(kept, wanted)
    if conflicts and version.appends:
        raise SnapshotError(
            f"Connector {version.connector}: column {conflicts[0]} of the table of topic {version.topic} has another "
            "type now, and rows that are there keep the old one.",
            "Set another snapshot.table.name, or move the table away.",
        )
    return columns, conflicts


def _identity(table: TableFiles, rows: _SnapshotRows, version: TableVersion) -> tuple[str, ...]:
    """Returns the columns by which the rows of the table are told: the key's, and the partition if that says more.

    None are, if the format has no such columns, a row has null there, or rows are appended.
    """
    if version.appends or KEY not in rows.schema.names:
        return ()
    keys = table.format.identity(KEY, rows.schema.field(KEY).type)
    paths = keys if version.has_unique_keys else (*keys, PLACE[0])
    return rows.named(paths) if keys and rows.have(paths) else ()


def _properties(version: TableVersion, schema: pa.Schema) -> dict[str, str]:
    """Returns what a commit says of itself."""
    return {
        "keyfold.connector": version.connector,
        "keyfold.catalog.id": version.catalog_id,
        "keyfold.epoch": str(version.epoch),
        "keyfold.topic": version.topic,
        "keyfold.snapshot.id": version.snapshot,
        "keyfold.source.offsets": json.dumps(dict(version.source_offsets)),
        "keyfold.output.offsets": json.dumps(dict(version.output_offsets)),
        "keyfold.generations": json.dumps(dict(version.generations)),
        "keyfold.settings": _digest(version.settings),
        "keyfold.columns": _digest(str(schema.remove_metadata())),
    }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _is_owned(table: TableFiles, version: TableVersion) -> bool | None:
    noted = table.noted()
    return None if noted is None else _names(noted, version)


def _names(noted: Mapping[str, str], version: TableVersion) -> bool:
    """Returns whether our last commit was of the topic and catalog of `version`."""
    return (noted.get("keyfold.catalog.id"), noted.get("keyfold.topic")) == (version.catalog_id, version.topic)


def _check_owner(head: TableHead, version: TableVersion) -> None:
    """Raises SnapshotError if the table is not this topic's, or a newer owner has committed to it."""
    noted = head.noted
    where = f"Connector {version.connector}: the table of topic {version.topic}"
    if not noted and head.files:
        raise SnapshotError(f"{where} has rows, and keyfold did not write them.", _OTHER)
    if noted and not _names(noted, version):
        said = f"topic {noted['keyfold.topic']} of catalog {noted['keyfold.catalog.id']}"
        raise SnapshotError(f"{where} belongs to {said}.", _OTHER)
    if int(noted.get("keyfold.epoch", 0)) > version.epoch:
        raise SnapshotError(
            f"{where} was committed by the owner of epoch {noted['keyfold.epoch']}; this one has {version.epoch}.",
            "A newer owner writes it. If the catalog was restored from an older copy, move the table away.",
        )


_OTHER: Final = "Set another snapshot.table.name or snapshot.location, or move that table away."
