"""The snapshots of one connector: when one is due, and steps 15 to 17 of docs/protocol.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from compactor import inspection, shelf, snapshot
from compactor.actions import AddSnapshot, AnyAction
from compactor.errors import StorageError
from compactor.failpoints import hit
from compactor.isolation import Isolation
from compactor.outside import Outside
from compactor.record import TopicPartition
from compactor.settings import EngineSettings
from compactor.shelf import Shelf, ShelfError, Trouble
from compactor.state import State, apply

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage import Storage

_log = structlog.get_logger()


class Snapshots:
    """What is made of base runs; nothing at all without a `location` for snapshots.

    What that location refuses is a ShelfError: it concerns no log, and nothing but snapshots.
    """

    def __init__(
        self,
        spark: SparkSession,
        isolation: Isolation,
        outside: Outside,
        settings: EngineSettings,
        location: Storage | None,
        uncertain: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._spark = spark
        self._storage = isolation.storage
        self._catalog = isolation.catalog
        self._outside = outside
        self._settings = settings
        self._shelf = None if location is None else Shelf(location)
        self._trouble: Trouble | None = None
        self._isolation = isolation
        self._uncertain = uncertain

    def due(self, now_ms: int) -> bool:
        """Whether snapshot.interval.ms has passed since the newest snapshot of a topic of which one can be taken.

        Not while what `failed` was told of still waits for its next try.
        """
        interval, state = self._settings.snapshot_interval_ms, self._catalog.state
        if self._shelf is None or interval < 0 or shelf.waits(self._trouble, now_ms):
            return False
        return any(_old(state, topic, interval, now_ms) for topic in self._topics(state))

    def failed(self, error: ShelfError, now_ms: int) -> None:
        """One that was due failed at `now_ms`: they wait, longer each time, until one succeeds; `describe` shows it."""
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
        except ShelfError as error:
            _log.warning("LATEST may name an older snapshot", error=str(error))

    def begin(self) -> None:
        """At the start of a life: settles, and forgets what an earlier one has noted."""
        self.settle()
        self._note()

    def _note(self) -> None:
        with suppress(StorageError):  # it is shown in the log as well
            shelf.note(self._storage, self._trouble)

    def take(self, now_ms: int) -> tuple[AddSnapshot, ...]:
        """Steps 15 to 17 for every topic that has a base run: its vector is where those end."""
        if self._shelf is None:
            return ()
        state = self._catalog.state
        topics = [topic for topic in self._topics(state) if any(log.base for log in state.logs if log.topic == topic)]
        found = tuple(taken for topic in topics for taken in self._try(self._shelf, topic, now_ms))
        if self._trouble is not None and found:
            self._trouble = None
            self._note()
        return found

    def _topics(self, state: State) -> list[str]:
        """The open topics of which a snapshot would be whole and would say where to go on.

        One with a partition that is set aside would lack records, or be old.
        """
        held = {log.topic for log in state.logs if log.quarantine} | {tp.topic for tp in self._uncertain()}
        published = {log.topic for log in state.logs if log.published > log.start or log.base}
        return sorted(topic for topic in published - held if state.topics[topic].closed is None)

    def _try(self, shelf: Shelf, topic: str, now_ms: int) -> Iterator[AddSnapshot]:
        """The snapshot of `topic`; none where its base runs turn out to be damaged, which are set aside then."""
        try:
            yield self._one(shelf, topic, now_ms)
        except ShelfError:
            raise
        except Exception as error:
            logs = [log for log in self._catalog.state.logs if log.topic == topic]
            if not self._isolation.blames(error) or not self._isolation.set_aside(logs, inspection.kept, now_ms):
                raise

    def _one(self, shelf: Shelf, topic: str, now_ms: int) -> AddSnapshot:
        state = self._catalog.state
        extra = snapshot.Extra(
            output_starts=dict(self._outside.output_starts(state, topic)),
            resume_safe_ms=self._outside.resume_safe_ms(state, topic),
            policy=self._settings.policy,
        )
        name = snapshot.snapshot_id(now_ms, secrets.token_hex(3))
        try:
            taken = snapshot.write_snapshot(self._spark, self._storage, shelf, state, topic, name, now_ms, extra)
        except ShelfError:
            with suppress(ShelfError):  # a location that is full must not fill up with what was begun
                snapshot.remove(shelf, f"{state.connector}/{topic}/{name}")
            raise
        keep = self._settings.snapshot_retention_count
        before = snapshot.standing(shelf, state, topic)
        self._catalog.commit(lambda state: _adds(state, taken, keep), now_ms)
        hit("snapshot.before-latest")
        state = self._catalog.refresh()
        try:
            snapshot.set_latest(shelf, taken)
            snapshot.sweep(shelf, state, topic, before)
        except ShelfError as error:  # the snapshot is there; the next vacuum and the next snapshot make up for the rest
            _log.warning("LATEST may name an older snapshot", topic=topic, id=taken.id, error=str(error))
        return taken


def _old(state: State, topic: str, interval_ms: int, now_ms: int) -> bool:
    """By the snapshot that was committed last: a clock that was set back must not stop them, nor take one each turn."""
    last = next((one.created_ms for one in reversed(state.snapshots) if one.topic == topic), None)
    return last is None or now_ms - last >= interval_ms or last > now_ms


def _adds(state: State, taken: AddSnapshot, keep: int) -> Sequence[AnyAction]:
    """The new snapshot in, those beyond snapshot.retention.count out."""
    return [taken, *snapshot.expired(apply(state, [taken]), taken.topic, keep)]
