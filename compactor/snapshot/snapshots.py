"""The snapshots of one connector: when one is due, and steps 15 to 17 of docs/protocol.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from compactor.catalog.catalog import Catalog
from compactor.errors import SnapshotError, SnapshotStorageError, StorageError
from compactor.failpoints import hit
from compactor.model.actions import AddSnapshot, AnyAction
from compactor.model.record import TopicPartition
from compactor.model.state import State, apply
from compactor.ports import Broker
from compactor.quarantine import verify
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import EngineSettings
from compactor.snapshot import location as shelf
from compactor.snapshot import shelfowner, snapshot
from compactor.snapshot.location import SnapshotFailure, SnapshotStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage.base import Storage

_log = structlog.get_logger()


class Snapshots:
    """What is made of base runs; nothing at all without a `location` for snapshots.

    What that location refuses is a ShelfError, what only an operator can mend is a SnapshotError. Either holds up
    snapshots and nothing else: folds and publishing go on.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog: Catalog,
        quarantine: QuarantineManager,
        broker: Broker,
        settings: EngineSettings,
        location: Storage | None,
        uncertain: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._spark = spark
        self._catalog = catalog
        self._broker = broker
        self._settings = settings
        self._shelf = None if location is None else SnapshotStorage(location)
        self._trouble: SnapshotFailure | None = None
        self._troubled: frozenset[str] | None = frozenset()  # None: all topics
        self._named: set[tuple[str, str]] = set()
        self._quarantine = quarantine
        self._uncertain = uncertain

    def due(self, now_ms: int) -> bool:
        """Whether snapshot.interval.ms has passed since the newest snapshot of a topic of which one can be taken.

        Not while what `failed` was told of still waits for its next try.
        """
        return self._shelf is not None and bool(self._due(self._catalog.state, now_ms))

    def _due(self, state: State, now_ms: int) -> list[str]:
        """The topics of which snapshots are to be taken by the clock: all topics together, once one of them is due.

        A topic that has failed alone is left out of that: it is taken when it is due itself and its wait is over.
        """
        interval, topics = self._settings.snapshot_interval_ms, self._topics(state)
        if interval < 0:
            return []
        waits = shelf.waits(self._trouble, now_ms)
        if waits and self._troubled is None:
            return []
        troubled = self._troubled or frozenset()
        old = {topic for topic in topics if _old(state, topic, interval, now_ms)}
        together = set(topics) - troubled if old - troubled else set()
        return sorted(together if waits else together | (old & troubled))

    def failed(self, error: SnapshotStorageError | SnapshotError, now_ms: int) -> None:
        """One that was due failed at `now_ms`: they wait, longer each time, until one succeeds; `describe` shows it.

        Where `error` names topics, only those of these topics wait.
        """
        alone = error.topics if isinstance(error, SnapshotError) else None
        self._troubled = None if alone is None else alone | (self._troubled or frozenset())
        self._trouble = shelf.failed(self._trouble, error, now_ms)
        _log.error("snapshot failed", error=str(error), times=self._trouble.failures, retry_ms=self._trouble.retry_ms)
        self._note()

    def settle(self) -> None:
        """What a life that ended, or slept, between a snapshot's commit and LATEST has left undone.

        Where the location does not let it, LATEST names an older snapshot until it does.
        """
        if self._shelf is None:
            return
        try:
            snapshot.settle(self._shelf, self._catalog.state)
        except SnapshotStorageError as error:
            _log.warning("LATEST or current may be of an older snapshot", error=str(error))

    def begin(self) -> None:
        """At the start of a life: settles, and forgets what an earlier one has noted."""
        self.settle()
        self._note()

    def _note(self) -> None:
        with suppress(StorageError):  # it is shown in the log as well
            shelf.note(self._catalog.storage, self._trouble)

    def take(self, now_ms: int, *, asked: bool = True) -> tuple[AddSnapshot, ...]:
        """Steps 15 to 17 for every topic that has a base run: its vector is where those end.

        Where nobody `asked` for them, only for the topics that are due. Raises SnapshotError where the location is
        another catalog's, before anything is written; and where topics cannot be taken, after all others were.
        """
        if self._shelf is None:
            return ()
        state = self._catalog.state
        based = {log.topic for log in state.logs if log.base}
        topics = [topic for topic in (self._topics(state) if asked else self._due(state, now_ms)) if topic in based]
        if topics:
            shelfowner.claim(self._shelf, state, self._catalog.storage)
        found: list[AddSnapshot] = []
        refused: dict[str, SnapshotError] = {}
        for topic in topics:
            try:
                found += self._try(self._shelf, topic, now_ms)
            except SnapshotError as error:
                refused[topic] = error
        self._worked({one.topic for one in found})
        for first in refused.values():
            raise SnapshotError(first.message, first.action, frozenset(refused)) from first
        return tuple(found)

    def _worked(self, topics: Collection[str]) -> None:
        """Snapshots of `topics` were taken: a trouble that did not let them is over."""
        if self._trouble is None or not topics:
            return
        self._troubled = (self._troubled or frozenset()) & set(self._topics(self._catalog.state)) - set(topics)
        if not self._troubled:
            self._trouble = None
            self._note()

    def _topics(self, state: State) -> list[str]:
        """The open topics of which a snapshot would be whole and would say where to go on.

        One with a partition that is set aside would lack records, or be old.
        """
        held = {log.topic for log in state.logs if log.quarantine} | {tp.topic for tp in self._uncertain()}
        published = {log.topic for log in state.logs if log.published > log.start or log.base}
        return sorted(topic for topic in published - held if state.topics[topic].closed is None)

    def _try(self, shelf: SnapshotStorage, topic: str, now_ms: int) -> Iterator[AddSnapshot]:
        """The snapshot of `topic`; none where its base runs turn out to be damaged, which are set aside then."""
        try:
            yield self._one(shelf, topic, now_ms)
        except (SnapshotStorageError, SnapshotError):
            raise
        except Exception as error:
            logs = [log for log in self._catalog.state.logs if log.topic == topic]
            if not self._quarantine.suspects_damage(error) or not self._quarantine.quarantine_damaged(
                logs, verify.published_range, now_ms
            ):
                raise

    def _one(self, shelf: SnapshotStorage, topic: str, now_ms: int) -> AddSnapshot:
        state = self._catalog.state
        extra = snapshot.Extra(
            output_starts=dict(self._broker.output_starts(state, topic)),
            resume_safe_ms=self._broker.resume_safe_ms(state, topic),
            policy=self._settings.policy,
            strings=self._settings.snapshot_strings,
        )
        name = snapshot.snapshot_id(now_ms, secrets.token_hex(3))
        try:
            taken = snapshot.write_snapshot(
                self._spark, self._catalog.storage, shelf, state, topic, name, now_ms, extra
            )
        except (SnapshotStorageError, SnapshotError):
            with suppress(SnapshotStorageError):  # a location that is full must not fill up with what was begun
                self._remove(shelf, state, topic, name, "it could not be completed")
            raise
        keep = self._settings.snapshot_retention_count
        before = snapshot.standing(shelf, state, topic)
        named = _ids(state, topic)
        self._catalog.commit(lambda state: _adds(state, taken, keep), now_ms)
        _log.info("snapshot taken", topic=topic, id=taken.id, records=taken.records, bytes=taken.bytes)
        hit("snapshot.before-latest")
        state = self._catalog.refresh()
        with _later("LATEST may name an older snapshot, and old snapshots may still be there", taken):
            self._lead(shelf, state, taken)
            self._sweep(shelf, state, topic, before, named - _ids(state, topic))
        return taken

    def _lead(self, shelf: SnapshotStorage, state: State, taken: AddSnapshot) -> None:
        """LATEST and `current` lead to `taken`; not in a folder that an operator has given away meanwhile."""
        if shelfowner.owns(shelf, state):
            snapshot.set_latest(shelf, taken)
            with _later("current may lead to an older snapshot", taken):
                snapshot.set_current(shelf, taken)

    def _sweep(
        self, shelf: SnapshotStorage, state: State, topic: str, before: Collection[str], dropped: Collection[str]
    ) -> None:
        """Removes what may go; logs once in a life of each snapshot of another catalog that it stays."""
        keep = self._settings.snapshot_retention_count
        found = snapshot.unreferenced(shelf, state, topic, before, dropped, keep)
        for name, why in found.removable.items():
            self._remove(shelf, state, topic, name, why)
        for name in found.others:
            if (topic, name) not in self._named:
                self._named.add((topic, name))
                _log.warning("snapshot of another catalog is left as it is", topic=topic, id=name)

    def _remove(self, shelf: SnapshotStorage, state: State, topic: str, name: str, why: str) -> None:
        snapshot.remove(shelf, f"{state.connector}/{topic}/{name}")
        _log.info("snapshot removed", topic=topic, id=name, why=why)


@contextmanager
def _later(what: str, taken: AddSnapshot) -> Iterator[None]:
    """What the location refuses once a snapshot is there: the next vacuum and the next snapshot make up for it."""
    try:
        yield
    except SnapshotStorageError as error:
        _log.warning(what, topic=taken.topic, id=taken.id, error=str(error))


def _ids(state: State, topic: str) -> set[str]:
    return {one.id for one in state.snapshots if one.topic == topic}


def _old(state: State, topic: str, interval_ms: int, now_ms: int) -> bool:
    """By the snapshot that was committed last: a clock that was set back must not stop them, nor take one each turn."""
    last = next((one.created_ms for one in reversed(state.snapshots) if one.topic == topic), None)
    return last is None or now_ms - last >= interval_ms or last > now_ms


def _adds(state: State, taken: AddSnapshot, keep: int) -> Sequence[AnyAction]:
    """The new snapshot in, those beyond snapshot.retention.count out."""
    return [taken, *snapshot.expired(apply(state, [taken]), taken.topic, keep)]
