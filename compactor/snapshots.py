"""The snapshots of one connector: when one is due, and steps 15 to 17 of docs/protocol.md."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from compactor import inspection, snapshot
from compactor.actions import AddSnapshot, AnyAction, State, apply
from compactor.failpoints import hit
from compactor.isolation import Isolation, may_be_a_file
from compactor.outside import Outside
from compactor.record import TopicPartition
from compactor.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage import Storage


class Snapshots:
    """What is made of base runs; nothing at all without a `shelf`, the snapshot location."""

    def __init__(
        self,
        spark: SparkSession,
        isolation: Isolation,
        outside: Outside,
        settings: EngineSettings,
        shelf: Storage | None,
        uncertain: Callable[[], Collection[TopicPartition]],
    ) -> None:
        self._spark = spark
        self._storage = isolation.storage
        self._catalog = isolation.catalog
        self._outside = outside
        self._settings = settings
        self._shelf = shelf
        self._isolation = isolation
        self._uncertain = uncertain

    def due(self, now_ms: int) -> bool:
        """Whether snapshot.interval.ms has passed since the newest snapshot of a topic of which one can be taken."""
        interval, state = self._settings.snapshot_interval_ms, self._catalog.state
        if self._shelf is None or interval < 0:
            return False
        return any(_old(state, topic, interval, now_ms) for topic in self._topics(state))

    def settle(self) -> None:
        """What a life that ended between a snapshot's commit and LATEST has left undone."""
        if self._shelf is not None:
            snapshot.settle(self._shelf, self._catalog.state)

    def take(self, now_ms: int) -> tuple[AddSnapshot, ...]:
        """Steps 15 to 17 for every topic that has a base run: its vector is where those end."""
        if self._shelf is None:
            return ()
        state = self._catalog.state
        topics = [topic for topic in self._topics(state) if any(log.base for log in state.logs if log.topic == topic)]
        return tuple(taken for topic in topics for taken in self._try(self._shelf, topic, now_ms))

    def _topics(self, state: State) -> list[str]:
        """The open topics of which a snapshot would be whole and would say where to go on.

        One with a partition that is set aside would lack records, or be old.
        """
        held = {log.topic for log in state.logs if log.quarantine} | {tp.topic for tp in self._uncertain()}
        published = {log.topic for log in state.logs if log.published > log.start or log.base}
        return sorted(topic for topic in published - held if state.topics[topic].closed is None)

    def _try(self, shelf: Storage, topic: str, now_ms: int) -> Iterator[AddSnapshot]:
        """The snapshot of `topic`; none where its base runs turn out to be damaged, which are set aside then."""
        try:
            yield self._one(shelf, topic, now_ms)
        except Exception as error:
            logs = [log for log in self._catalog.state.logs if log.topic == topic]
            if not may_be_a_file(error) or not self._isolation.set_aside(logs, inspection.kept, now_ms):
                raise

    def _one(self, shelf: Storage, topic: str, now_ms: int) -> AddSnapshot:
        state = self._catalog.state
        extra = snapshot.Extra(
            output_starts=dict(self._outside.output_starts(state, topic)),
            resume_safe_ms=self._outside.resume_safe_ms(state, topic),
            policy=self._settings.policy,
        )
        name = snapshot.snapshot_id(now_ms, secrets.token_hex(3))
        taken = snapshot.write_snapshot(self._spark, self._storage, shelf, state, topic, name, now_ms, extra)
        keep = self._settings.snapshot_retention_count
        before = snapshot.standing(shelf, state, topic)
        self._catalog.commit(lambda state: _adds(state, taken, keep), now_ms)
        hit("snapshot.before-latest")
        state = self._catalog.refresh()
        snapshot.set_latest(shelf, taken)
        snapshot.sweep(shelf, state, topic, before)
        return taken


def _old(state: State, topic: str, interval_ms: int, now_ms: int) -> bool:
    """By the snapshot that was committed last: a clock that was set back must not stop them, nor take one each turn."""
    last = next((one.created_ms for one in reversed(state.snapshots) if one.topic == topic), None)
    return last is None or now_ms - last >= interval_ms or last > now_ms


def _adds(state: State, taken: AddSnapshot, keep: int) -> Sequence[AnyAction]:
    """The new snapshot in, those beyond snapshot.retention.count out."""
    return [taken, *snapshot.expired(apply(state, [taken]), taken.topic, keep)]
