"""Opens the newest snapshot of a topic: its state, and the changes that follow it in the output topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from compactor.errors import FoldError, MissingFileError
from compactor.snapshot.manifest import Manifest
from compactor.storage.base import Storage
from compactor.storage.locations import NO_OPTIONS, StoreOptions, open_storage
from connectors.bootstrap.changes import ChangeDecoder, Changes
from connectors.bootstrap.output_log import Clients
from connectors.bootstrap.position import ReaderPosition, first_position
from connectors.bootstrap.records import TableRecord
from connectors.bootstrap.snapshot_files import RecordColumns, SnapshotFiles, check_keys, newest_snapshot
from connectors.bootstrap.table import READY_S, Beginning, Table
from connectors.bootstrap.table_state import TableState
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import BootstrapError, ConfigError, SnapshotGoneError

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
    converters: Mapping[str, str] | None = None,
    store: StoreOptions = NO_OPTIONS,
    clock: Clock = SYSTEM_CLOCK,
) -> OpenedTable:
    """Opens the newest snapshot in `location`, a topic's folder: `<snapshot.location>/<connector>/<topic>`.

    `location` is a path or the URL of an object store, which is reached as the environment says, or `store`. `kafka`
    has the settings of the clients that read the output topic; without it only the state can be read. `converters` are
    settings by which changes of a typed snapshot are read, as a connector file has them, such as the password of a
    schema registry; what they leave open the manifest says. Raises UsageError if there is no snapshot, StorageError.
    """
    clients = kafka if isinstance(kafka, Clients) or kafka is None else Clients(kafka, kafka)
    return OpenedTable(open_storage(location, store), clients, clock, converters or {})


def resume(position: ReaderPosition | str, kafka: KafkaSettings | Clients, *, clock: Clock = SYSTEM_CLOCK) -> Changes:
    """Returns the changes from a stored position on, as `ReaderPosition.encode` has returned it.

    The changes are as the output has them. Raises ResumeError if what changed since may be missing, UnreachableError,
    and BootstrapError for a position of typed changes: these go on by `open_table(…).changes(position)`.
    """
    begun = _decoded(position)
    if begun.typed:
        raise BootstrapError(
            f"The position is of changes of topic {begun.topic} with typed keys or fields; here they would have bytes.",
            "Go on with open_table(location, kafka).changes(position), which reads them as before.",
        )
    return Changes(kafka if isinstance(kafka, Clients) else Clients(kafka, kafka), begun, clock)


class OpenedTable:
    """A topic's newest snapshot: its state by `arrow`, `duckdb` or `records`, then `changes`; or both as a `table`.

    A snapshot may be removed while it is read, as newer ones come. As long as nothing of it was handed out, the newest
    is read in its place. Afterwards SnapshotGoneError is raised: open it again.
    """

    def __init__(
        self, place: Storage, clients: Clients | None, clock: Clock = SYSTEM_CLOCK, converters: Mapping[str, str] = {}
    ) -> None:
        self._place = place
        self._clients = clients
        self._clock = clock
        # What is read; another one takes its place if it is removed before anything of it was handed out.
        self._files = _tried(lambda: newest_snapshot(place))
        self._is_handed_out = False
        self._converters = dict(converters)
        # The columns of a typed snapshot, read with its first record, as it may be gone later; the snapshot's id.
        self._columns: tuple[str, pa.Schema] | None = None

    @property
    def snapshot(self) -> str:
        """The id of the snapshot."""
        return self._files.id

    @property
    def manifest(self) -> Manifest:
        """What the snapshot's manifest says."""
        return self._files.manifest

    @property
    def has_fields(self) -> bool:
        """Whether records and changes have the columns of their values by name, in place of bytes."""
        return RecordColumns(self._files).has_fields

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

    def changes(self, position: ReaderPosition | str | None = None) -> Changes:
        """Returns the changes from the end of the snapshot on, or from a stored `position` on.

        They have typed keys, and fields, if the snapshot has. Raises ResumeError, UnreachableError, and BootstrapError
        or ConfigError if the snapshot lacks the keys, or nothing says by which converters changes are read.
        """
        clients, decoder = self._reached(), self._decoder()
        begun = self.position if position is None else _decoded(position)
        self._is_handed_out = True
        try:
            return Changes(clients, begun, self._clock, decoder)
        except BaseException:
            if decoder is not None:
                decoder.close()
            raise

    def check_changes(self) -> None:
        """Raises BootstrapError or ConfigError if `changes` would; no server is asked."""
        if (decoder := self._decoder()) is not None:
            decoder.close()

    def _decoder(self) -> ChangeDecoder | None:
        """Returns what gives changes typed keys and fields; None if the snapshot has bytes."""
        check_keys(self._files)
        if not self._files.is_typed:
            return None
        from connectors.bootstrap.typed_changes import TypedChanges  # converters, which most tables do not need

        columns = self._whole(lambda _: self._columns)
        assert columns is not None, "a typed snapshot's columns are read first"
        return TypedChanges(self._files, columns[1], self._converters)

    def table(self, ready_s: float = READY_S) -> Table:
        """Returns a table that stays current once it is entered: `with open_table(…).table() as customers`.

        `ready_s`: how long (s) it may take to read what came after the snapshot. Raises as `changes` does, and
        BootstrapError if the snapshot's records cannot be told apart by key.
        """
        clients, place, clock, converters = self._reached(), self._place, self._clock, self._converters

        def begin() -> Beginning:
            newest = OpenedTable(place, clients, clock, converters)
            newest.check_changes()
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
                if self._files.is_typed and (self._columns is None or self._columns[0] != self._files.id):
                    self._columns = self._files.id, self._files.columns()
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


def _decoded(position: ReaderPosition | str) -> ReaderPosition:
    return position if isinstance(position, ReaderPosition) else ReaderPosition.decode(position)


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
