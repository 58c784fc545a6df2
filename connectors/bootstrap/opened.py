"""Opens the newest snapshot of a topic: its state, and the changes that follow it in the output topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from compactor.errors import FoldError, MissingFileError
from compactor.snapshot.manifest import Manifest
from compactor.storage.base import Storage
from compactor.storage.locations import NO_OPTIONS, StoreOptions, open_storage
from connectors.bootstrap.changes import Changes
from connectors.bootstrap.output_log import Clients
from connectors.bootstrap.position import ReaderPosition, first_position
from connectors.bootstrap.records import TableRecord
from connectors.bootstrap.snapshot_files import RecordColumns, SnapshotFiles, check_keys, newest_snapshot
from connectors.bootstrap.table import READY_S, Beginning, Table
from connectors.bootstrap.table_state import TableState
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import ConfigError, SnapshotGoneError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

T = TypeVar("T")

_TRIES: Final = 10
"""How often a snapshot is looked for: each time the one before was removed while it was read."""

KafkaSettings = Mapping[str, str | int | float | bool]
"""Settings of librdkafka's clients, `bootstrap.servers` among them."""


def open_table(
    location: str,
    kafka: KafkaSettings | Clients | None = None,
    *,
    store: StoreOptions = NO_OPTIONS,
    clock: Clock = SYSTEM_CLOCK,
) -> OpenedTable:
    """Opens the newest snapshot in `location`, a topic's folder: `<snapshot.location>/<connector>/<topic>`.

    `location` is a path or the URL of an object store, which is reached as the environment says, or `store`. `kafka`
    has the settings of the clients that read the output topic; without it only the state can be read. Raises UsageError
    if there is no snapshot, StorageError.
    """
    clients = kafka if isinstance(kafka, Clients) or kafka is None else Clients(kafka, kafka)
    return OpenedTable(open_storage(location, store), clients, clock)


def resume(position: ReaderPosition | str, kafka: KafkaSettings | Clients, *, clock: Clock = SYSTEM_CLOCK) -> Changes:
    """Returns the changes from a stored position on, as `ReaderPosition.encode` has returned it.

    Raises ResumeError if what changed since may be missing, and UnreachableError.
    """
    begun = position if isinstance(position, ReaderPosition) else ReaderPosition.decode(position)
    return Changes(kafka if isinstance(kafka, Clients) else Clients(kafka, kafka), begun, clock)


class OpenedTable:
    """A topic's newest snapshot: its state by `arrow`, `duckdb` or `records`, then `changes`; or both as a `table`.

    A snapshot may be removed while it is read, as newer ones come. As long as nothing of it was handed out, the newest
    is read in its place. Afterwards SnapshotGoneError is raised: open it again.
    """

    def __init__(self, place: Storage, clients: Clients | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._place = place
        self._clients = clients
        self._clock = clock
        # What is read; another one takes its place if it is removed before anything of it was handed out.
        self._files = _tried(lambda: newest_snapshot(place))
        self._is_handed_out = False

    @property
    def snapshot(self) -> str:
        """The id of the snapshot."""
        return self._files.id

    @property
    def manifest(self) -> Manifest:
        """What the snapshot's manifest says."""
        return self._files.manifest

    def arrow(self) -> pa.Table:
        """Reads the state into memory, with the columns of the snapshot's files."""
        table = self._whole(lambda files: pa.concat_tables(files.tables()))
        self._is_handed_out = True
        return table

    def duckdb(self, connection: DuckDBPyConnection | None = None) -> DuckDBPyRelation:
        """Returns a relation over `arrow`, of `connection` or DuckDB's default one; ConfigError without DuckDB."""
        try:
            import duckdb
        except ImportError:
            raise ConfigError("DuckDB is not installed.", "pip install duckdb, or use arrow().") from None
        state: Any = self.arrow()
        return (connection or duckdb).from_arrow(state)

    def records(self) -> Iterator[TableRecord]:
        """Yields the state record by record, some ten thousand of them in memory at a time."""
        batches = self._whole(_begun)
        columns = RecordColumns(self._files)
        try:
            for batch in batches:
                self._is_handed_out = True
                yield from columns.records(columns.plain(batch))
        except MissingFileError as error:
            raise self._gone(error) from error

    @property
    def position(self) -> ReaderPosition:
        """The position of a reader that has the state and no change. Raises ResumeError if there is no output topic."""
        return first_position(self.manifest, self.snapshot)

    def changes(self) -> Changes:
        """Returns the changes from the end of the snapshot on, by the keys that its records have.

        Raises ResumeError, UnreachableError, and BootstrapError if the snapshot does not have the keys as bytes.
        """
        self.check_keys()
        self._is_handed_out = True
        return Changes(self._reached(), self.position, self._clock)

    def check_keys(self) -> None:
        """Raises BootstrapError if the records have other keys than changes: typed ones, or none."""
        check_keys(self._files)

    def table(self, ready_s: float = READY_S) -> Table:
        """Returns a table that stays current once it is entered: `with open_table(…).table() as customers`.

        `ready_s`: how long (s) it may take to read what came after the snapshot. Raises as `changes` does, and
        BootstrapError if the snapshot's records cannot be told apart by key.
        """
        clients, place, clock = self._reached(), self._place, self._clock

        def begin() -> Beginning:
            newest = OpenedTable(place, clients, clock)
            state = newest._whole(TableState)
            return Beginning(newest.snapshot, state, newest.changes())

        return Table(begin, ready_s, clock)

    def _reached(self) -> Clients:
        if self._clients is None:
            raise ConfigError(
                "The output topic cannot be read without the settings of Kafka's clients.",
                'Give open_table the second argument, for example {"bootstrap.servers": "127.0.0.1:9092"}.',
            )
        return self._clients

    def _whole(self, read: Callable[[SnapshotFiles], T]) -> T:
        """Returns what `read` makes of the snapshot, or of a newer one if that was removed meanwhile."""

        def again() -> T:
            try:
                return read(self._files)
            except MissingFileError as error:
                if self._is_handed_out:
                    raise self._gone(error) from error
                newest = newest_snapshot(self._place)
                if newest.id == self._files.id:
                    raise FoldError(
                        f"Snapshot {newest.id} in {self._place.location} lacks a file: {error.message}",
                        "Take a new snapshot: keyfold snapshot CONNECTOR.json.",
                    ) from error
                self._files = newest
                raise

        return _tried(again)

    def _gone(self, error: MissingFileError) -> SnapshotGoneError:
        return SnapshotGoneError(
            f"Snapshot {self.snapshot} in {self._place.location} was removed while it was read: {error.message}",
            "Open the table again, which begins with the newest. A larger snapshot.retention.count gives more time.",
        )


def _begun(files: SnapshotFiles) -> Iterator[pa.RecordBatch]:
    """Returns the batches of `files`, of which the first are opened."""
    batches = files.batches()
    first = next(batches, None)

    def rest() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield first
        yield from batches

    return rest()


def _tried(read: Callable[[], T]) -> T:
    """Returns what `read` does; calls it again if a file was missing, at most _TRIES times."""
    for _ in range(_TRIES - 1):
        try:
            return read()
        except MissingFileError:
            continue
    return read()
