"""Takes the snapshots of one connector: when one is due, of which topics, and in which order its steps are done.

A snapshot is the live records of a topic as plain Parquet, with a manifest that says at which offsets to resume. The
base runs are the table already: their records are copied without tombstones and without a shuffle. With
`snapshot.mode=append` it is every record that is kept (`content`). If the newest snapshot has the same records, its
files are copied. A snapshot is made in this order: mark, data, manifest, catalog commit, LATEST. So no reader ever
finds a manifest without all its files, nor data without the mark of its catalog.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

import structlog

from compactor.catalog.catalog import Catalog
from compactor.errors import (
    FencedError,
    KeyfoldError,
    OutOfRoomError,
    SnapshotError,
    SnapshotHiddenError,
    SnapshotStorageError,
    StorageError,
)
from compactor.failpoints import hit
from compactor.model.actions import AddSnapshot, DropSnapshot
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.ports import Broker, TableVersion
from compactor.quarantine import verify
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import EngineSettings
from compactor.snapshot import listing, location, manifest, pins
from compactor.snapshot.content import has_content, is_complete
from compactor.snapshot.folders import SnapshotFolders
from compactor.snapshot.location import SnapshotBackoff, snapshot_storage
from compactor.snapshot.manifest import SnapshotInputs, TypedInputs, WrittenFiles
from compactor.snapshot.repeat import Repeated, copy_data, find_repeated
from compactor.snapshot.write import snapshot_id, write_snapshot
from compactor.spark.errors import briefly
from compactor.spark.job_errors import is_cancelled
from compactor.storage.base import Storage
from compactor.turns import turn

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE_TYPED: Final = Lock()
"""Held while a typed snapshot is taken: its tasks wait for registries, and several would hold all of Spark's places."""
_log = structlog.get_logger()


class Snapshots:
    """Takes snapshots of logs; none at all without a `place` (the snapshot location) for them.

    What that location refuses is a SnapshotStorageError, what only an operator can mend is a SnapshotError. Either
    holds up snapshots and nothing else: cleaning and publishing go on. Topics with a partition that is `uncertain` are
    left out.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        quarantine: QuarantineManager,
        broker: Broker,
        settings: EngineSettings,
        place: Storage | None,
        uncertain: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._spark = spark
        self._storage = catalog.storage
        self._catalog = catalog
        self._broker = broker
        self._settings = settings
        keep = settings.snapshot_retention_count
        self._folders = None if place is None else SnapshotFolders(snapshot_storage(place), catalog.storage, keep)
        # Which topics wait after a failure; replaced by `failed` and after each `take`.
        self._backoff = SnapshotBackoff()
        # By topic: when (ms) its newest snapshot was last seen to say all that a new one would. Changed by `take`.
        self._unchanged: dict[str, int] = {}
        self._quarantine = quarantine
        self._uncertain = uncertain
        # What makes columns of keys and values; None: they are columns of bytes. Set before the first snapshot.
        self.typed: TypedInputs | None = None
        self.lost_turn = False
        """Whether the last `take` left out a topic because another connector took a typed snapshot just then."""

    def due(self, now_ms: int) -> bool:
        """Returns whether snapshot.interval.ms has passed since the newest snapshot of a topic that can have one.

        Or since it was seen that nothing has changed since that one. Not while topics wait for their next try after
        what `failed` was called with, nor while another connector takes a typed snapshot: that may last for an hour, in
        which folds and vacuum go on.
        """
        if self._folders is None or (self.typed is not None and ONE_TYPED.locked()):
            return False
        return bool(self._due(self._catalog.state, now_ms))

    def failed(self, error: SnapshotStorageError | SnapshotError, now_ms: int) -> None:
        """Lets snapshots wait after `error` of one that was due, longer each time; `describe` shows it.

        If `error` names topics, only snapshots of these topics wait.
        """
        self._backoff = self._backoff.failed(error, now_ms)
        failure = self._backoff.failure
        assert failure is not None
        _log.error("snapshot failed", error=str(error), times=failure.failures, retry_ms=failure.retry_ms)
        self._note()

    def repair(self) -> None:
        """Does what an owner that ended, or slept, between a snapshot's commit and LATEST has left undone.

        If the location refuses, LATEST names an older snapshot until it does not.
        """
        if self._folders is None:
            return
        try:
            listing.repair_latest(self._folders.place, self._catalog.state)
        except SnapshotStorageError as error:
            _log.warning("LATEST or current may be of an older snapshot", error=str(error))

    def begin(self) -> None:
        """Repairs LATEST at the start of a worker's run, and forgets the failure that an earlier one has noted."""
        self.repair()
        self._note()

    def take(
        self, now_ms: int, *, asked: bool = True, again: bool = True, only: str | None = None
    ) -> tuple[AddSnapshot, ...]:
        """Takes a snapshot of every topic that has what its mode asks for: base runs, or records that are published.

        If no command `asked` for them, it takes only the topics that are due. Without `again`, it leaves out a topic if
        that would repeat the newest snapshot while readers have time to go on from it. With `only` it takes that topic
        alone. Raises SnapshotError if the location is another catalog's, before anything is written; and if topics
        cannot be taken, after all others were.

        If the output of a topic hides what was published, the topic is left out, with an error: the manifest's output
        offsets stand at what readers of the output can see.
        """
        self.lost_turn = False
        if self._folders is None:
            return ()
        state = self._catalog.state
        mode = self._settings.snapshot_mode
        filled = {log.topic for log in state.logs if has_content(log, mode)}
        wanted = filled if only is None else filled & {only}
        topics = [topic for topic in (self._topics(state) if asked else self._due(state, now_ms)) if topic in wanted]
        if topics:
            location.claim(self._folders.place, state, self._storage)
        hidden = self._broker.hidden(state, topics) if topics else {}
        taken: list[AddSnapshot] = []
        refused: dict[str, SnapshotError] = {topic: _hidden(state, topic, why) for topic, why in hidden.items()}
        for topic in self._quarantine.until_stopped([topic for topic in topics if topic not in hidden]):
            try:
                taken += self._try(self._folders, topic, now_ms, asked=asked, again=again)
            except SnapshotError as error:
                refused[topic] = error
        unchanged = {topic for topic in topics if self._unchanged.get(topic) == now_ms}
        self._succeeded({snapshot.topic for snapshot in taken} | unchanged)
        for first in refused.values():
            raise type(first)(first.message, first.action, frozenset(refused)) from first
        return tuple(taken)

    def remove(self, topic: str, ids: Collection[str], now_ms: int) -> tuple[str, ...]:
        """Removes those of the snapshots `ids` of `topic` that this catalog owns; a pinned one stays. Returns which go.

        If the newest one is to go, another takes its place first; if none can be taken, the newest stays. It goes on
        with what an earlier call has begun. Raises as `take`.
        """
        folders, state = self._folders, self._catalog.state
        if folders is None:
            return ()
        newest = next(reversed(state.snapshots_of(topic)), None)
        if newest is not None and newest.id in ids:
            self.take(now_ms, only=topic)
            newest = next(reversed(self._catalog.state.snapshots_of(topic)), None)
        pinned = pins.pinned_ids(folders.place, self._catalog.state.snapshots_of(topic))
        kept = {*pinned, *([newest.id] if newest is not None else [])}
        there = set(ids).intersection(listing.list_ids(folders.place, state, topic)) - kept
        own = [name for name in sorted(there) if self._owns(folders, topic, name)]
        self._catalog.commit(lambda state: _drops(state, topic, own), now_ms)
        hit("erase.dropped")
        for name in own:
            folders.delete(state, topic, name, "a key is erased")
        return tuple(own)

    def purge_table(self, topic: str) -> str | None:
        """Removes all versions of the topic's table but the newest; returns why some stay. Raises SnapshotError."""
        folders, state = self._folders, self._catalog.state
        if folders is None or self.typed is None or self.typed.tables is None:
            return None
        folder = folders.place.sub(state.connector, topic)
        version = TableVersion.of_no_snapshot(state.connector, topic, state.catalog_id, state.epoch, folder)
        return self.typed.tables.purge(version)

    def _owns(self, folders: SnapshotFolders, topic: str, name: str) -> bool:
        state = self._catalog.state
        path = f"{state.connector}/{topic}/{name}"
        return name in listing.ids(state, topic) or location.catalog_of(folders.place, path) == state.catalog_id

    def _due(self, state: CatalogState, now_ms: int) -> list[str]:
        """Returns the topics of which a snapshot is due by snapshot.interval.ms."""
        interval_ms, topics = self._settings.snapshot_interval_ms, self._topics(state)
        if interval_ms < 0:
            return []
        old = [topic for topic in topics if _is_old(state, topic, self._unchanged.get(topic), interval_ms, now_ms)]
        return self._backoff.due(topics, old, now_ms)

    def _topics(self, state: CatalogState) -> list[str]:
        """Returns the open topics of which a snapshot would be complete and would say at which offsets to resume.

        One of a topic with a partition in quarantine would lack records, or be old; so would one of a generation that
        was not published and folded yet.
        """
        mode = self._settings.snapshot_mode
        held = {log.topic for log in state.logs if log.quarantine or not is_complete(log, mode)}
        held |= {tp.topic for tp in self._uncertain()}
        published = {log.topic for log in state.logs if log.published > log.start or has_content(log, mode)}
        return sorted(topic for topic in published - held if state.topics[topic].closed is None)

    def _succeeded(self, topics: Collection[str]) -> None:
        before = self._backoff
        self._backoff = before.succeeded(topics, self._topics(self._catalog.state)) if topics else before
        if before.failure and not self._backoff.failure:
            self._note()

    def _note(self) -> None:
        with suppress(StorageError):  # it is shown in the log as well
            location.write_note(self._storage, self._backoff.failure)

    def _try(
        self, folders: SnapshotFolders, topic: str, now_ms: int, *, asked: bool, again: bool
    ) -> Iterator[AddSnapshot]:
        """Takes the snapshot of `topic`; none if its runs are damaged, which go into quarantine then.

        Raises SnapshotError for whatever else has ended its jobs: a snapshot ends nothing but itself.
        """
        try:
            if taken := self._take(folders, topic, now_ms, asked=asked, again=again):
                yield taken
        except (SnapshotStorageError, SnapshotError):
            raise
        except Exception as error:
            logs = self._catalog.state.logs_of(topic)
            if self._quarantine.suspects_damage(error) and self._quarantine.quarantine_damaged(
                logs, verify.published_range, now_ms
            ):
                return
            if self._quarantine.is_stopping or not _is_of_job(error):
                raise
            raise SnapshotError(
                f"Connector {self._catalog.state.connector}: no snapshot of topic {topic} could be taken: "
                f"{briefly(error)}",
                "It is tried again. If that lasts, see what the machine lacks, or set snapshot.value.format=bytes.",
            ) from error

    def _take(
        self, folders: SnapshotFolders, topic: str, now_ms: int, *, asked: bool, again: bool
    ) -> AddSnapshot | None:
        """Takes the snapshot of `topic` by steps 15 to 17; without `again` none that would repeat a fresh one."""
        state, place = self._catalog.state, folders.place
        inputs = self._inputs(place, state, topic)
        newest = find_repeated(place, state, topic, inputs)
        if newest and not again and manifest.is_fresh(newest.manifest, inputs, now_ms):
            self._unchanged[topic] = now_ms
            say = _log.info if asked else _log.debug  # by interval it would be a line of each idle topic each time
            say("nothing has changed since the newest snapshot", topic=topic, id=newest.id)
            return None
        before, named = listing.list_ids(place, state, topic), listing.ids(state, topic)
        pinned = pins.pinned_ids(place, state.snapshots_of(topic))
        # 15, 16: the mark of the catalog, the data files, the manifest
        taken = self._copy(folders, state, newest, now_ms, inputs) if newest and place.copies_files else None
        if taken is None:
            with self._turn(inputs, asked=asked) as mine:
                if not mine:
                    self.lost_turn = True
                    return None
                if inputs.typed is not None:
                    inputs = self._inputs(place, state, topic)  # what was read before a wait may be an hour old
                with self._new(folders, state, topic, now_ms) as name:
                    taken = write_snapshot(self._spark, self._storage, place, state, topic, name, now_ms, inputs)
        # 17: a commit names it; what was in the location before that commit cannot be a newer owner's
        keep = self._settings.snapshot_retention_count
        try:
            self._catalog.commit(
                lambda state: [taken, *listing.expired(apply(state, [taken]), topic, keep, pinned)], now_ms
            )
        except FencedError:
            folders.withdraw(state, taken)
            raise
        self._unchanged.pop(topic, None)
        _log.info("snapshot taken", topic=topic, id=taken.id, records=taken.records, bytes=taken.bytes)
        if inputs.typed is not None:
            _warn_of_misfits(place, taken)
        hit("snapshot.before-latest")
        # 17: then LATEST and current follow, and of what the catalog does not name its own snapshots go
        folders.lead(self._catalog.refresh(), taken, before, named)
        return taken

    def _turn(self, inputs: SnapshotInputs, *, asked: bool) -> AbstractContextManager[bool]:
        """Yields True while no other typed snapshot is taken; False if one is, and no command `asked` for this one.

        Otherwise it waits for the other's end, and yields False if a stop comes before.
        """
        if inputs.typed is None:
            return nullcontext(enter_result=True)
        return turn(ONE_TYPED, lambda: self._quarantine.is_stopping or not asked)

    def _copy(
        self, folders: SnapshotFolders, state: CatalogState, newest: Repeated, now_ms: int, inputs: SnapshotInputs
    ) -> AddSnapshot | None:
        """Makes a snapshot of the files of `newest` by steps 15 and 16; None if these cannot be copied.

        It is written under another id then: if the answer of a copy was lost, the copy may still appear in this folder.
        """
        place, topic = folders.place, newest.manifest.topic

        def copy(path: str) -> WrittenFiles:
            return copy_data(place, newest, path, self._quarantine.until_stopped)

        try:
            with self._new(folders, state, topic, now_ms) as name:
                return write_snapshot(self._spark, self._storage, place, state, topic, name, now_ms, inputs, copy)
        except SnapshotStorageError as error:
            _log.warning("snapshot cannot be copied, it is written anew", topic=topic, id=newest.id, error=str(error))
            return None

    @contextmanager
    def _new(self, folders: SnapshotFolders, state: CatalogState, topic: str, now_ms: int) -> Iterator[str]:
        """Yields the id of a new snapshot; removes what is begun of it if it cannot be completed.

        A request that an object store has not answered may still be carried out, and a task of a failed job may still
        write. So the mark stays there, by which the next snapshot removes what came of it.
        """
        name = snapshot_id(now_ms, secrets.token_hex(3))
        try:
            yield name
        except Exception as error:
            of_location, of_job = isinstance(error, SnapshotStorageError), _is_of_job(error)
            if not (of_location or of_job or isinstance(error, SnapshotError)):
                raise
            comes_late = of_job or (of_location and not folders.place.is_folder)
            with suppress(SnapshotStorageError):  # a location that is full must not fill up with what was begun
                folders.delete(state, topic, name, "it could not be completed", but_mark=comes_late)
            raise

    def _inputs(self, place: Storage, state: CatalogState, topic: str) -> SnapshotInputs:
        typed = self.typed
        if typed is not None and typed.by_default:
            typed = typed.after(listing.newest_manifest(place, state, topic))
        return SnapshotInputs(
            output_starts=dict(self._broker.output_starts(state, topic)),
            resume_safe_ms=self._broker.resume_safe_ms(state, topic),
            policy=self._settings.policy,
            strings=self._settings.snapshot_string_columns,
            mode=self._settings.snapshot_mode,
            file_bytes=self._settings.snapshot_file_bytes,
            typed=typed,
        )


def _is_of_job(error: Exception) -> bool:
    """Returns whether a Spark job of a snapshot has failed, by itself, or for want of memory or disk."""
    return isinstance(error, OutOfRoomError) or not (isinstance(error, KeyfoldError) or is_cancelled(error))


def _drops(state: CatalogState, topic: str, names: Collection[str]) -> tuple[DropSnapshot, ...]:
    named = listing.ids(state, topic)
    return tuple(DropSnapshot(topic=topic, id=name) for name in names if name in named)


def _hidden(state: CatalogState, topic: str, why: str) -> SnapshotHiddenError:
    return SnapshotHiddenError(
        f"Connector {state.connector}: no snapshot of topic {topic} is taken: {why}",
        "It is taken once they do; see the brokers' logs if that lasts.",
    )


def _is_old(state: CatalogState, topic: str, unchanged_ms: int | None, interval_ms: int, now_ms: int) -> bool:
    """Returns whether a snapshot is due, by the one committed last; a clock set back neither stops nor repeats them.

    `unchanged_ms` is when that one was last seen to be as a new one would be, None if it was not.
    """
    newest = next(reversed(state.snapshots_of(topic)), None)
    if newest is None:
        return True
    last_ms = newest.created_ms if unchanged_ms is None else unchanged_ms
    return now_ms - last_ms >= interval_ms or last_ms > now_ms


def _warn_of_misfits(place: Storage, taken: AddSnapshot) -> None:
    """Logs how many records of the snapshot fit no column, and why the first does not: its table looks whole."""
    for misfits in manifest.misfits(place, taken.path):
        _log.warning(
            "records of a snapshot fit no column, they are whole in a column of their own",
            topic=taken.topic,
            id=taken.id,
            column=misfits.column,
            records=misfits.records,
            of=taken.records,
            first=misfits.first,
        )
