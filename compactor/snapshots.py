"""The snapshots of one connector: when one is due, and steps 15 to 17 of docs/protocol.md."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from compactor import snapshot
from compactor.actions import AddSnapshot, AnyAction, State, apply
from compactor.catalog import Catalog
from compactor.failpoints import hit
from compactor.outside import Outside
from compactor.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage import Storage

_log = structlog.get_logger()


class Snapshots:
    """What is made of base runs; nothing at all without a `shelf`, the snapshot location."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        catalog: Catalog,
        outside: Outside,
        settings: EngineSettings,
        shelf: Storage | None,
    ) -> None:
        self._spark = spark
        self._storage = storage
        self._catalog = catalog
        self._outside = outside
        self._settings = settings
        self._shelf = shelf

    def due(self, now_ms: int) -> bool:
        """Whether snapshot.interval.ms has passed since the newest snapshot."""
        interval, state = self._settings.snapshot_interval_ms, self._catalog.state
        if self._shelf is None or interval < 0 or not state.logs:
            return False
        newest = max((taken.created_ms for taken in state.snapshots), default=0)
        return now_ms - newest >= interval or newest > now_ms  # a clock that was set back must not stop them

    def settle(self) -> None:
        """What a life that ended between a snapshot's commit and LATEST has left undone."""
        if self._shelf is not None:
            snapshot.settle(self._shelf, self._catalog.state)

    def take(self, now_ms: int) -> tuple[AddSnapshot, ...]:
        """Steps 15 to 17 for every open topic that has a base run: its vector is where those end."""
        if self._shelf is None:
            return ()
        state = self._catalog.state
        topics = sorted({log.topic for log in state.logs if log.base and state.topics[log.topic].closed is None})
        return tuple(self._one(self._shelf, topic, now_ms) for topic in topics if self._is_whole(state, topic))

    def _is_whole(self, state: State, topic: str) -> bool:
        """A topic with a partition that is set aside gets no new snapshot: it would lack records, or be old."""
        held = [log.partition for log in state.logs if log.topic == topic and log.quarantine]
        if held:
            _log.warning("no snapshot while partitions are set aside", topic=topic, partitions=held)
        return not held

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


def _adds(state: State, taken: AddSnapshot, keep: int) -> Sequence[AnyAction]:
    """The new snapshot in, those beyond snapshot.retention.count out."""
    return [taken, *snapshot.expired(apply(state, [taken]), taken.topic, keep)]
