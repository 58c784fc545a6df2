"""foreachBatch and tick(now): the two moments at which a connector's engine does anything.

    take(frame, now)   a micro-batch has come     → steps 3 and 4, then publish
    tick(now)          time has passed            → publish what the lag has let go

They are called from different threads; one lock per connector makes them turns. A micro-batch waits for its turn;
time does not, it passes again. What comes behind publishing (`compactor.maintenance`) has a thread of its own and
waits for no turn.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.errors import PublishInterruptedError, RejectedRecordError, TopicGoneError
from compactor.failpoints import hit
from compactor.ingest import ingest
from compactor.ingest.micro_batch import Batch, appends, first_rejected
from compactor.metrics import ClockWarnings, Counters
from compactor.model.actions import AnyAction
from compactor.model.publish_plan import PublishResult
from compactor.model.record import TopicPartition
from compactor.model.state import State
from compactor.ports import Broker
from compactor.publish.changelog import Changelog
from compactor.quarantine.isolation import Isolation
from compactor.runs.paths import RunningBatches, prefix
from compactor.runs.writer import RunTarget
from compactor.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from compactor.storage.base import Storage

COMMIT_SECONDS: Final = 0.5
"""So long a commit waits between two micro-batches that follow one another at once, before it gives up."""


class Engine:
    """One connector's engine: takes micro-batches in and sends what is due."""

    def __init__(
        self,
        spark: SparkSession,
        storage: Storage,
        catalog: Catalog,
        outside: Broker,
        settings: EngineSettings,
        isolation: Isolation,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.counters = Counters()
        self._storage = storage
        self._catalog = catalog
        self._outside = outside
        self._settings = settings
        self._changelog = Changelog(spark, storage, catalog, outside, isolation, clock_ms)
        self._turn = threading.RLock()
        self._closed = False
        self._sending = False
        self._running = RunningBatches(secrets.token_hex(4))
        self._clock_warnings = ClockWarnings(self.counters)

    def take(self, frame: DataFrame, now_ms: int) -> Batch:
        """Takes a micro-batch in (ingest.WRITTEN columns, of `intake`) and publishes what is due with it.

        Taking the same batch, or one that overlaps it, again changes nothing. Raises IngestError,
        StorageError, FencedError, and what publishing raises.
        """
        with self._turn:
            self._check_open()
            self._clock_warnings.observe(now_ms)
            try:
                return self._take(frame, now_ms)
            except BaseException:
                self._closed = True
                raise

    @property
    def intake(self) -> ingest.Intake:
        """How reading tasks put records into files, whose names carry the epoch and this life's name."""
        policy, named = self._settings.policy, prefix(self._catalog.epoch, self._running.life)
        target = RunTarget(storage=self._storage, prefix=named, max_bytes=policy.segment_bytes)
        return ingest.Intake(target=target, keyed=policy.compacts, folds=policy.folds_at_once)

    def close(self) -> None:
        """Waits for the turn that is under way, and lets no other begin.

        So it is after a failed micro-batch: what is true is for the next life of the connector to read.
        """
        self.close_soon()
        with self._turn:
            pass

    def close_soon(self) -> None:
        """Lets no turn begin any more, without waiting for the one that is under way."""
        self._closed = True

    def is_idle(self) -> bool:
        """Whether no turn is under way."""
        if not self._turn.acquire(blocking=False):
            return False
        self._turn.release()
        return True

    @property
    def interrupted(self) -> bool:
        """Whether a publish has begun and not ended well: one of its transactions may still be open."""
        return self._sending

    def settle(self, now_ms: int) -> None:
        """Makes sense of the committed positions before anything is read.

        So a store or a position that is not this connector's is found out before it has taken anything in. Raises
        PositionError, and what asking the brokers raises.
        """
        with self._turn:
            self._check_open()
            self._changelog.settle(now_ms)

    def tick(self, now_ms: int) -> None:
        """Does what is due because time has passed, with or without traffic.

        Nothing while another turn is under way, which publishes what is due by itself, nor once the engine is closed.
        """
        with self._if_free(0) as free:
            if free:
                self._clock_warnings.observe(now_ms)
                self._publish(now_ms)

    @contextmanager
    def _if_free(self, seconds: float) -> Iterator[bool]:
        """The turn, where it is or becomes free within `seconds`, and the engine is open; else False."""
        if not self._turn.acquire(timeout=seconds):
            yield False
            return
        try:
            yield not self._closed
        finally:
            self._turn.release()

    def _take(self, frame: DataFrame, now_ms: int) -> Batch:
        batch = ingest.gather(frame)
        self._refuse_rejected(batch)
        self._admit(batch, now_ms)
        hit("ingest.before-commit")
        self._catalog.commit(lambda state: appends(state, batch, now_ms), now_ms)
        self._running = self._running.after(part.file.path for part in batch.parts)
        hit("ingest.after-commit")
        self._count_ingested(batch)
        self._publish(now_ms)
        return batch

    def _count_ingested(self, batch: Batch) -> None:
        self.counters.add_all(
            {
                "batches": 1,
                "offsets_read": sum(read.hi - read.lo for read in batch.ranges),
                "records_read": sum(read.records for read in batch.ranges),
                "bytes_read": batch.bytes_read,
                "records_rejected": sum(part.rejected for part in batch.parts),
                "future_timestamps": sum(part.future for part in batch.parts),
                "offsets_lost": sum(read.start - read.lo for read in batch.ranges),
            }
        )
        for part in batch.parts:
            if part.future:
                self._clock_warnings.future_records(part.topic, part.partition, part.file.last)

    def _check_open(self) -> None:
        if self._closed:
            raise PublishInterruptedError(
                f"Connector {self._settings.connector}: its engine is closed, it does nothing more.",
                "The connector goes on from its catalog when it is started again.",
            )

    def finish(self, now_ms: int) -> None:
        """The end of `--once`: publishes what is due.

        Positions that this life did not move are committed again: nobody knows how old they are, and the next
        life may be as short.
        """
        with self._turn:
            self._check_open()
            self._publish(now_ms, replace(self._settings, first_refresh_ms=0))

    def running(self) -> RunningBatches:
        """The jobs whose files no commit names yet, though one may: a vacuum leaves them alone."""
        return self._running

    def uncertain(self) -> frozenset[TopicPartition]:
        """The logs of which it is not known how far they are published: nothing behind that touches them."""
        return self._changelog.uncertain()

    def commit(self, decide: Callable[[State], Sequence[AnyAction]], now_ms: int) -> bool:
        """Commits what `decide` makes of the newest state, in turn with everything else: it may look outside.

        False where it did not: while another turn is under way, and once the engine is closed.
        """
        with self._if_free(COMMIT_SECONDS) as free:
            if free:
                found = tuple(decide(self._catalog.state))
                self._catalog.commit(lambda _: found, now_ms)
            return free

    def _publish(self, now_ms: int, settings: EngineSettings | None = None) -> None:
        self._sending = True
        self._count_published(self._changelog.publish(settings or self._settings, now_ms))
        self._sending = False

    def _count_published(self, sent: Sequence[PublishResult]) -> None:
        self.counters.add_all(
            {
                "records_published": sum(one.records for one in sent),
                "bytes_published": sum(one.bytes for one in sent),
                "dead_letters": sum(one.dead_letters for one in sent),
                "records_refused": sum(one.refused for one in sent),
                "transactions": sum(one.transactions for one in sent),
            }
        )

    def _admit(self, batch: Batch, now_ms: int) -> None:
        """Topics and partitions seen for the first time; their output partitions exist before they are named."""
        if not _strangers(self._catalog.state, batch):
            return
        actions = self._outside.admit(self._catalog.state, batch.ranges)
        strangers = _strangers(self._catalog.commit(lambda _: actions, now_ms), batch)
        if strangers:
            raise TopicGoneError(
                f"Connector {self._settings.connector}: {strangers[0]} was read, and its topic is gone or another one "
                "since.",
                "Nothing of this batch was taken; the connector goes on with the topics that there are now.",
            )

    def _refuse_rejected(self, batch: Batch) -> None:
        found = None if self._settings.tolerate_rejected else first_rejected(batch)
        if found is None:
            return
        tp, offset, reason = found
        raise RejectedRecordError(
            f"Connector {self._settings.connector}: the record at topic {tp.topic}, partition {tp.partition}, "
            f"offset {offset} cannot be folded: {reason}.",
            "Set errors.tolerance=all to let such records go, and errors.deadletterqueue.topic.name to keep them; "
            "nothing of this batch was taken.",
        )


def _strangers(state: State, batch: Batch) -> list[TopicPartition]:
    """Partitions of `batch` that the catalog does not know, or knows under another topic id."""
    known = state.by_partition()
    return [
        read.tp
        for read in batch.ranges
        if read.tp not in known or state.topics[read.tp.topic].topic_id != read.topic_id
    ]
