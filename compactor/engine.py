"""One connector's engine: ingests micro-batches and publishes what is due. Steps 4 to 12 of docs/protocol.md.

    take(batch, now)   a portion of a micro-batch is in files   → ingest it (step 4), then publish
    tick(now)          time has passed                          → publish what min.compaction.lag.ms has let go

Different threads call them, and a lock lets one at a time run: a turn. A batch waits for its turn; a tick does
not, as another one follows. What follows publishing (`compactor.maintenance`) has a thread of its own and waits
for no turn.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import structlog
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.errors import (
    TAKE_UP,
    KeyfoldError,
    MissingFileError,
    PortionTooLargeError,
    PublishInterruptedError,
    StoppedError,
    TopicGoneError,
)
from compactor.failpoints import hit
from compactor.ingest import ingest
from compactor.ingest.admission import without_late
from compactor.ingest.appends import Batch, appends, unknown_partitions
from compactor.ingest.filling import with_filled
from compactor.ingest.rejected import rejected_topics, without_topics
from compactor.ingest.truncates import pending, without_applied
from compactor.ingest.waiting import WaitingRecords
from compactor.metrics import ClockWarnings
from compactor.model.actions import AnyAction, CloseTopic, ReopenTopic
from compactor.model.order import TIMESTAMP
from compactor.model.publish_plan import PublishResult
from compactor.model.record import TopicPartition
from compactor.model.state import BY_OFFSET, CatalogState, apply, rejection_of
from compactor.ports import Broker, Fill
from compactor.publish.changelog import Changelog
from compactor.runs.paths import RunningBatches, prefix
from compactor.runs.writer import RunTarget
from compactor.settings import EngineSettings

_log: Final = structlog.get_logger()
Decided = TypeVar("Decided")

COMMIT_SECONDS: Final = 0.5
"""How long `commit` waits for a turn; micro-batches may follow one another at once."""


class Engine:
    """Ingests and publishes for one run of a connector, one turn at a time. Threads may share it."""

    def __init__(
        self,
        catalog: Catalog,
        broker: Broker,
        settings: EngineSettings,
        changelog: Changelog,
        fill: Fill | None = None,
    ) -> None:
        self.counters = changelog.counters
        self._catalog = catalog
        self._broker = broker
        self._settings = settings
        self._changelog = changelog
        self.positions = changelog.positions
        self._fill = fill
        self._waiting = None if fill is None else WaitingRecords(catalog.storage, fill)
        if fill is not None:
            fill.stop_with(lambda: self._closed)
        # The turn: held by the one thread that ingests, publishes or commits.
        self._turn = threading.RLock()
        # Set by a batch that failed, and by `close`; never unset: a new run has a new engine.
        self._closed = False
        # Set while a publish is under way, and left set by one that failed: its transaction may be open.
        self._publishing = False
        # The batches with files that no commit names yet; replaced after each commit. By its random id the file names
        # of two runs in one epoch differ.
        self._running = RunningBatches(secrets.token_hex(4))
        self._clock_warnings = ClockWarnings(self.counters)
        # The topics that this run has closed for a bad record, each with the reason; replaced by its turns, read by any
        # thread.
        self._aside: Mapping[str, str] = {}

    def take(
        self,
        batch: Batch,
        now_ms: int,
        paused: Callable[[], bool] = lambda: False,
        pinned: Mapping[TopicPartition, int] | None = None,
    ) -> Batch:
        """Ingests what the tasks of `intake` have written, and publishes what is due with it; returns what it took.

        Offsets that are ingested already are left out, so a batch may come again. So is what waits for other
        partitions, to be read again; `pinned`: the ends up to which these are read at most. Raises StoppedError if
        `paused` returns True while values are filled, and PortionTooLargeError: then nothing was taken, and the engine
        goes on.
        Whatever else it raises closes the engine: IngestError, StorageError, FencedError, and what publishing raises.
        """
        with self._turn:
            self._check_open()
            self._clock_warnings.observe(now_ms)
            try:
                return self._take(batch, now_ms, paused, pinned)
            except (PortionTooLargeError, StoppedError):
                raise
            except BaseException:
                self._closed = True
                raise

    @property
    def intake(self) -> ingest.Intake:
        """What reading tasks need to write level-0 files; file names hold the epoch and this engine's id.

        Records are not folded as they are read if keys have an identity and the output may be ahead of a log, as its
        catalog was set back. A record that the output has would be left out, and its key would be forgotten. Nor are
        they if they have another order than their offsets: the one that is left out may be the one that counts; nor if
        placeholders are filled: it may have what a later one lacks.
        """
        policy, named = self._settings.policy, prefix(self._catalog.epoch, self._running.engine_id)
        target = RunTarget(
            storage=self._catalog.storage,
            prefix=named,
            max_bytes=policy.segment_bytes,
            is_indexed=self._settings.fold.has_index,
            has_identities=self._catalog.state.key_identity is not None,
        )
        state = self._catalog.state
        ahead = state.key_identity is not None and bool(self.positions.uncertain())
        folds = policy.folds_at_once and not ahead and state.record_order == BY_OFFSET and self._fill is None
        return ingest.Intake(target=target, keyed=policy.compacts, folds=folds)

    def counts(self) -> dict[str, int]:
        """Returns all counts since this run of the connector began, with its commits to the catalog."""
        return {**self.counters.values(), "catalog_commits": self._catalog.commits}

    def close(self) -> None:
        """Allows no further turn, and waits for the one that is under way.

        A failed micro-batch closes the engine as well: the connector's next run reads the catalog again.
        """
        self.begin_close()
        with self._turn:
            if self._fill is not None:
                self._fill.close()

    def begin_close(self) -> None:
        """Allows no further turn, without waiting for the one that is under way."""
        self._closed = True

    def is_idle(self) -> bool:
        """Returns whether no turn is under way."""
        if not self._turn.acquire(blocking=False):
            return False
        self._turn.release()
        return True

    def is_settled(self) -> bool:
        """Returns whether all that is ingested is published, so that time makes nothing due but old positions."""
        state = self._catalog.state
        return all(log.published >= log.end for log in state.logs if state.topics[log.topic].closed is None)

    @property
    def topics_aside(self) -> frozenset[str]:
        """The topics that this run has set aside: nothing more of them is taken."""
        return frozenset(self._aside)

    @property
    def transaction_may_be_open(self) -> bool:
        """Whether a publish has begun and has not succeeded, so that it may have left a transaction open."""
        return self._publishing

    def resolve_positions(self, now_ms: int) -> None:
        """Reads the committed positions and decides from which offsets publishing goes on, before anything is ingested.

        Raises PositionError if the storage or a position is not this connector's, and what the broker raises.
        """
        with self._turn:
            self._check_open()
            self._changelog.resolve_positions(now_ms)

    def tick(self, now_ms: int) -> None:
        """Publishes what is due at `now_ms`, with or without new records.

        Does nothing once the engine is closed, or while another turn is under way, which publishes as well.
        """
        with self._if_free(0) as free:
            if free:
                self._clock_warnings.observe(now_ms)
                self._publish(now_ms)

    def renew_positions(self, now_ms: int) -> None:
        """Commits positions again before they expire, and publishes nothing, for a connector that is paused.

        Does nothing while another turn is under way, or once the engine is closed.
        """
        with self._if_free(0) as free:
            if free:
                self._publishing = True
                self._changelog.renew_positions(self._settings, now_ms)
                self._publishing = False

    @contextmanager
    def _if_free(self, seconds: float) -> Iterator[bool]:
        """Yields whether this is the caller's turn: it is free within `seconds`, and the engine is open."""
        if not self._turn.acquire(timeout=seconds):
            yield False
            return
        try:
            yield not self._closed
        finally:
            self._turn.release()

    def _take(
        self, batch: Batch, now_ms: int, paused: Callable[[], bool], pinned: Mapping[TopicPartition, int] | None
    ) -> Batch:
        if not self._settings.sets_topics_aside:
            self._without_rejected(batch, now_ms)  # before topics are added that only a refused batch has
        self._admit(batch, now_ms)
        if self._settings.applies_truncates:
            batch = without_applied(self._catalog.state, batch)
        ready = self._without_waiting(batch, now_ms, pinned)
        sound = self._without_truncated(self._without_rejected(ready, now_ms), now_ms)
        admitted = self._filled(self._without_late(sound, now_ms), now_ms, paused)
        hit("ingest.before-commit")
        self._catalog.commit(lambda state: self._appends(state, admitted, now_ms), now_ms)
        self._running = self._running.after(part.file.path for part in batch.parts)
        hit("ingest.after-commit")
        self._count_ingested(admitted)
        self._publish(now_ms)
        return ready

    def _appends(self, state: CatalogState, batch: Batch, now_ms: int) -> Sequence[AnyAction]:
        """Returns the actions of step 4, and those of step 5 if nothing comes between: it saves a commit."""
        actions = appends(state, batch, now_ms)
        if not actions:
            return ()
        return (*actions, *self._changelog.foreseen(apply(state, actions), self._settings, now_ms))

    def _without_waiting(self, batch: Batch, now_ms: int, pinned: Mapping[TopicPartition, int] | None) -> Batch:
        """Takes step 3w."""
        if self._waiting is None:
            return batch
        target = replace(self.intake.target, arrived_ms=now_ms)
        ask_ends = self._broker.ends if pinned is None else lambda _: pinned
        return self._waiting.without(self._catalog.state, batch, target, ask_ends)

    def _without_late(self, batch: Batch, now_ms: int) -> Batch:
        """Takes steps 3a and 3b. A tombstone that a clean drops meanwhile may decide or not."""
        target = replace(self.intake.target, arrived_ms=now_ms)
        return self._decided(lambda state: without_late(self._catalog.storage, state, batch, target))

    def _filled(self, batch: Batch, now_ms: int, paused: Callable[[], bool]) -> Batch:
        """Takes steps 3c and 3d."""
        fill = self._fill
        if fill is None:
            return batch
        target = replace(self.intake.target, arrived_ms=now_ms)
        storage = self._catalog.storage
        filled, counts = self._decided(
            lambda state: with_filled(storage, state, batch, target, fill, stopped=lambda: self._closed or paused())
        )
        self.counters.add_all(counts)
        return filled

    def _decided(self, decide: Callable[[CatalogState], Decided]) -> Decided:
        """Returns what `decide` makes of the catalog's state.

        It is asked again if a clean has ended meanwhile and a vacuum has removed what it replaced. Raises
        MissingFileError if a file is gone for another reason.
        """
        while True:
            state = self._catalog.state
            try:
                return decide(state)
            except MissingFileError:
                if self._catalog.state is state:
                    raise

    def _count_ingested(self, batch: Batch) -> None:
        self.counters.add_all(
            {
                "batches": 1,
                "offsets_read": sum(read.hi - read.lo for read in batch.ranges),
                "records_read": sum(read.records for read in batch.ranges),
                "bytes_read": batch.bytes_read,
                "records_superseded": sum(read.superseded for read in batch.ranges),
                "records_late": sum(read.late for read in batch.ranges),
                "records_filtered": sum(read.filtered for read in batch.ranges),
                "truncates": sum(read.truncates for read in batch.ranges),
                "records_rejected": sum(part.rejected for part in batch.parts),
                "records_without_key": sum(part.without_key for part in batch.parts),
                "future_timestamps": sum(part.future for part in batch.parts),
                "offsets_lost": sum(read.start - read.lo for read in batch.ranges),
            }
        )
        self.counters.add_by_topic("records_read", ((read.tp.topic, read.records) for read in batch.ranges))
        self.counters.add_by_topic("records_late", ((read.tp.topic, read.late) for read in batch.ranges))
        for part in batch.parts:
            if part.first_future_offset is None:
                continue
            self._clock_warnings.future_records(part.topic, part.partition, part.file.last)
            if self._catalog.state.record_order == TIMESTAMP:
                self._clock_warnings.future_winner(
                    part.topic, part.partition, part.first_future_offset, part.max_timestamp
                )

    def _check_open(self) -> None:
        if self._closed:
            raise PublishInterruptedError(
                f"Connector {self._settings.connector}: its engine is closed, it does nothing more.",
                "The connector goes on from its catalog when it is started again.",
            )

    def finish(self, now_ms: int) -> None:
        """Publishes what is due at the end of `--once`, and commits positions that this run has not moved again.

        Their age is not known, and the next run may be as short as this one.
        """
        with self._turn:
            self._check_open()
            self._publish(now_ms, replace(self._settings, first_refresh_ms=0))

    def running(self) -> RunningBatches:
        """Returns the jobs with files that no commit names yet; a vacuum leaves these files alone."""
        return self._running

    def commit(self, decide: Callable[[CatalogState], Sequence[AnyAction]], now_ms: int) -> bool:
        """Commits the actions that `decide` returns for the state, which may ask the brokers, in a turn of its own.

        Returns False if it did nothing, as another turn is under way or the engine is closed.
        """
        with self._if_free(COMMIT_SECONDS) as free:
            if free:
                actions = tuple(map(self._unless_aside, decide(self._catalog.state)))
                self._catalog.commit(lambda _: actions, now_ms)
            return free

    def _unless_aside(self, action: AnyAction) -> AnyAction:
        """Returns `action`; in place of one that opens a topic that is set aside, the one that closes it again.

        It was unknown to the brokers for a while, and closed for that.
        """
        if isinstance(action, ReopenTopic) and action.topic in self._aside:
            return CloseTopic(topic=action.topic, reason=self._aside[action.topic])
        return action

    def _publish(self, now_ms: int, settings: EngineSettings | None = None) -> None:
        self._publishing = True
        self._count_published(self._sent(settings or self._settings, now_ms))
        self._publishing = False

    def _sent(self, settings: EngineSettings, now_ms: int) -> Sequence[PublishResult]:
        """Publishes; topics with a record that brokers refuse are set aside one by one, and the others are published.

        A transaction that held such a record was aborted, so its neighbours are sent again.
        """
        while True:
            try:
                return self._changelog.publish(settings, now_ms)
            except KeyfoldError as error:
                if not error.is_of_record or error.topic is None or error.topic in self.topics_aside:
                    raise
                self._set_aside({error.topic: error}, now_ms)

    def _count_published(self, sent: Sequence[PublishResult]) -> None:
        self.counters.add_all(
            {
                "records_published": sum(result.records for result in sent),
                "bytes_published": sum(result.bytes for result in sent),
                "dead_letters": sum(result.dead_letters for result in sent),
                "records_refused": sum(result.refused for result in sent),
                "records_unchanged": sum(result.unchanged for result in sent),
                "transactions": sum(result.transactions for result in sent),
                "transactions_aborted": sum(result.aborted for result in sent),
            }
        )
        if self._catalog.state.is_of_topics:
            self.counters.add("records_late", sum(result.late for result in sent))
            self.counters.add_by_topic("records_late", ((result.topic, result.late) for result in sent))
        self.counters.add_by_topic("records_published", ((result.topic, result.records) for result in sent))
        self.counters.add_by_topic("dead_letters", ((result.topic, result.dead_letters) for result in sent))

    def _admit(self, batch: Batch, now_ms: int) -> None:
        """Adds topics and partitions that are read for the first time, once their output partitions exist."""
        if not unknown_partitions(self._catalog.state, batch):
            return
        actions = self._broker.admit(self._catalog.state, batch.ranges)
        unknown = unknown_partitions(self._catalog.commit(lambda _: actions, now_ms), batch)
        if unknown:
            raise TopicGoneError(
                f"Connector {self._settings.connector}: {unknown[0]} was read, and its topic is gone or another one "
                "since.",
                "Nothing of this batch was taken; the connector goes on with the topics that there are now.",
            )

    def _without_rejected(self, batch: Batch, now_ms: int) -> Batch:
        """Returns `batch` without the topics that are set aside, for a record of it among others.

        Raises RejectedRecordError if such a record stops the connector.
        """
        rejected = {} if self._settings.tolerate_rejected else rejected_topics(batch)
        errors = {topic: first.error(self._settings.connector) for topic, first in rejected.items()}
        self._set_aside({topic: error for topic, error in errors.items() if topic not in self.topics_aside}, now_ms)
        return without_topics(batch, self.topics_aside) if self.topics_aside else batch

    def _without_truncated(self, batch: Batch, now_ms: int) -> Batch:
        """Returns `batch` without the topics of which a truncate cannot be applied; the others have none.

        Raises TruncatedError for those that can be: their logs have to begin again. Otherwise
        RejectedRecordError if such a record stops the connector.
        """
        if not self._settings.applies_truncates:
            return batch
        truncates = pending(self._catalog.state, batch)
        if not self._settings.tolerate_rejected:
            self._set_aside(truncates.refused, now_ms)
            batch = without_topics(batch, truncates.refused)
        if error := truncates.error(self._settings.connector):
            raise error
        return batch

    def _set_aside(self, errors: Mapping[str, KeyfoldError], now_ms: int) -> None:
        """Closes the topics that have a bad record, each with its error, if the connector has others to go on with.

        Raises the first of `errors` otherwise. The positions of the topics stay.
        """
        if not errors:
            return
        state = self._catalog.state
        is_open = {name for name, topic in state.topics.items() if topic.closed is None}
        if not self._settings.sets_topics_aside or not is_open - errors.keys():
            raise next(iter(errors.values()))
        reasons = {
            name: rejection_of(error.message.removeprefix(f"Connector {self._settings.connector}: "))
            for name, error in errors.items()
        }
        self._catalog.commit(lambda _: [CloseTopic(topic=name, reason=why) for name, why in reasons.items()], now_ms)
        self._aside = {**self._aside, **reasons}
        for name, error in errors.items():
            _log.error("source topic set aside, the others go on", topic=name, error=str(error), next=TAKE_UP)
