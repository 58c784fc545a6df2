"""Publishes to the output what is publishable: steps 5 to 12 of docs/protocol.md, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from compactor.catalog.catalog import Catalog
from compactor.errors import KeyfoldError
from compactor.failpoints import hit
from compactor.fold.on_spark import MAX_RANGES_NAMED
from compactor.metrics import Counters
from compactor.model.actions import AnyAction
from compactor.model.log import PartitionLog
from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import BYTES, CatalogState
from compactor.ports import Broker
from compactor.publish.committed_positions import Positions
from compactor.publish.executors import PublishExecutor
from compactor.publish.measures import SupersededCount, oldest_sent
from compactor.publish.plan import bucket_plans, fold_plans, published_logs, publishes, target_of
from compactor.publish.publishable import YoungRecords, next_fold_end
from compactor.publish.topic_targets import some_topics, topic_targets
from compactor.publish.unchanged import sent_offsets
from compactor.quarantine import verify
from compactor.quarantine.quarantine import QuarantineManager
from compactor.runs.scan import whole
from compactor.settings import EngineSettings

MAX_LOGS_BESIDE_DAMAGE: Final = MAX_RANGES_NAMED
"""How many logs one publish sends at most while any log is damaged: for no more a scan passes over the row groups that
they do not need, and so over damaged pages of other logs. Logs that share a row group cannot be read apart."""

_log = structlog.get_logger()


class Changelog:
    """Publishes the logs of one connector: decides what is due, has it sent, and commits that to the catalog.

    `clock_ms` is for the log and for `counters.freshness` only.
    """

    def __init__(
        self,
        catalog: Catalog,
        broker: Broker,
        executor: PublishExecutor,
        quarantine: QuarantineManager,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self.counters = Counters()
        self._catalog = catalog
        self._broker = broker
        self._executor = executor
        self._quarantine = quarantine
        self._clock_ms = clock_ms
        self.positions = Positions(catalog, broker)
        # What it has read of young records, from publish to publish.
        self._young = YoungRecords(catalog.storage)
        # Publishes that have sent something, and by log the last of them: the oldest goes first if there is damage.
        self._turn = 0
        self._last_turn: dict[TopicPartition, int] = {}
        self._superseded = SupersededCount()

    def publish(self, settings: EngineSettings, now_ms: int) -> tuple[PublishResult, ...]:
        """Publishes what is due at `now_ms`. Returns what was sent, by partition.

        Whatever fails, the positions are read again next time: whether a transaction took effect is read back, not
        guessed. Damaged logs are quarantined and the others published without them; if the process of a Spark task
        has ended, everything is tried once more with Spark's fold. Raises what the publisher raises otherwise.
        """
        while True:
            try:
                return self._publish(settings, now_ms)
            except Exception as error:
                self.positions.forget()
                self.counters.add("transactions_aborted", error.aborted if isinstance(error, KeyfoldError) else 0)
                if not self._quarantine_damaged(error, now_ms) and not self._give_up_tasks(error):
                    raise

    def foreseen(self, state: CatalogState, settings: EngineSettings, now_ms: int) -> Sequence[AnyAction]:
        """Returns what step 5 would commit for `state`, a state that is about to be committed.

        Nothing if anything comes before that step: positions that are read or committed again, damage, or a look at the
        records that a lag may hold back.
        """
        has_more_to_do = (
            settings.policy.min_compaction_lag_ms > 0
            or not self.positions.are_known(state)
            or self.positions.stale_aside(state, settings, now_ms)
            or self.positions.to_renew(state)
            or _has_damage(state)
        )
        return () if has_more_to_do else fold_plans(state, self._targets(state, settings, now_ms), now_ms)

    def resolve_positions(self, now_ms: int) -> None:
        """Reads the committed positions that are not known yet, as every publish does first.

        Raises PositionError if going on could lose or repeat records, and what the broker raises.
        """
        try:
            self.positions.resolve(now_ms)
        except Exception:
            self.positions.forget()
            raise

    def renew_positions(self, settings: EngineSettings, now_ms: int) -> None:
        """Commits the positions again that are old enough to expire, and nothing else: no record is sent.

        Raises what the publisher raises, and what the broker raises.
        """
        try:
            self.positions.resolve(now_ms)
            state = self._catalog.state
            self._commit_again(state, self.positions.stale(state, settings, now_ms), settings, now_ms)
        except Exception:
            self.positions.forget()
            raise

    def _publish(self, settings: EngineSettings, now_ms: int) -> tuple[PublishResult, ...]:
        """Does steps 5 to 12 once.

        0. Read the committed positions that are not known; the catalog catches up with transactions that it missed. 5.
        Decide for each partition the end of its next fold, and commit it if it is beyond folded_end: from then on the
        fold has to end there. 6. For each bucket, in this process, in Spark tasks or with Spark's fold (`executors`):
        shut out older producers and check the epoch, 7. check that the group holds the positions that the plan was made
        from, 8. begin a transaction, 9. send the survivors of the fold, 10. add the new positions to the transaction,
        11. commit it; a large fold repeats 8 to 11 (`Publisher`; with Kafka `connectors.sinks.publisher`). 12. Commit
        the new published offsets to the catalog.
        """
        self.positions.resolve(now_ms)  # 0
        state = self._catalog.state
        self._commit_again(state, self.positions.stale_aside(state, settings, now_ms), settings, now_ms)
        targets = self._targets(state, settings, now_ms)  # 5
        if targets and self._renew(settings, now_ms):
            targets = self._targets(self._catalog.state, settings, now_ms)
        if not targets:
            return ()
        hit("publish.plan")
        began_ms = self._clock_ms() if self._clock_ms else None
        state = self._catalog.commit(lambda state: fold_plans(state, targets, now_ms), now_ms)
        sent = self._executor.send(state, bucket_plans(state, targets), settings)  # 6 to 11
        hit("publish.before-commit")
        known = sent_offsets(state, targets, sent) if settings.skips_unchanged else {}
        self._catalog.commit(lambda _: publishes(sent, known), now_ms)  # 12
        hit("publish.after-commit")
        self._remember(sent, now_ms)
        self.counters.add("records_superseded", self._superseded.add(state, targets, sent))
        if self._clock_ms is not None and began_ms is not None:
            ended_ms = self._clock_ms()
            for since_ms, records in oldest_sent(state, targets, sent):
                age_s = max(0, ended_ms - since_ms) / 1000
                self.counters.freshness = self.counters.freshness.with_sent(age_s, records)
            self._log_published(sent, ended_ms - began_ms)
        return sent

    def _renew(self, settings: EngineSettings, now_ms: int) -> bool:
        """Has the positions name all transactional ids, before records go by one that they do not name (steps 6 to 11).

        Returns whether any was committed again.
        """
        state = self._catalog.state
        targets = self.positions.to_renew(state)
        self._commit_again(state, targets, settings, now_ms)
        return bool(targets)

    def _commit_again(
        self, state: CatalogState, targets: Sequence[PublishTarget], settings: EngineSettings, now_ms: int
    ) -> None:
        """Takes steps 6 to 11 for positions alone; `targets` are renewals (`plan.renewal_of`)."""
        if not targets:
            return
        sent = self._executor.send(state, bucket_plans(state, targets), settings)
        self.positions.renewed(targets, now_ms)
        self.counters.add("transactions", sum(result.transactions for result in sent))

    def _targets(self, state: CatalogState, settings: EngineSettings, now_ms: int) -> list[PublishTarget]:
        """Returns what is due in `state`: folds to send, and positions to commit again before they expire."""
        if state.is_of_topics:
            return self._topic_targets(state, settings, now_ms)
        candidates = (self._target(state, log, settings, now_ms) for log in published_logs(state))
        targets = [target for target in candidates if target is not None]
        if not _has_damage(state):
            return targets
        # Those that have waited longest come first: otherwise the same ones would be sent every time.
        return sorted(targets, key=lambda target: self._last_turn.get(target.tp, 0))[:MAX_LOGS_BESIDE_DAMAGE]

    def _topic_targets(self, state: CatalogState, settings: EngineSettings, now_ms: int) -> list[PublishTarget]:
        """Returns what is due if a key has one winner over all partitions of a topic."""
        targets = topic_targets(
            state,
            self.positions.__getitem__,
            lambda log, resume: next_fold_end(log, resume, settings, now_ms, self._young),
            lambda tp: self.positions.is_stale(tp, settings, now_ms),
            bootstrap_fold=settings.bootstrap_fold_enable,
        )
        return some_topics(targets, self._last_turn, MAX_LOGS_BESIDE_DAMAGE) if _has_damage(state) else targets

    def _target(
        self, state: CatalogState, log: PartitionLog, settings: EngineSettings, now_ms: int
    ) -> PublishTarget | None:
        resume = self.positions[log.tp]
        if resume.hold:
            return None
        end = next_fold_end(log, resume, settings, now_ms, self._young)
        if end <= resume.start and not self.positions.is_stale(log.tp, settings, now_ms):
            return None
        return target_of(state, log, resume, end)

    def _remember(self, sent: Sequence[PublishResult], now_ms: int) -> None:
        """Keeps the committed positions, and by a count when each log was sent, as a clock may be set back."""
        self._turn += 1
        self._last_turn.update((result.tp, self._turn) for result in sent)
        self.positions.committed(sent, now_ms)

    def _quarantine_damaged(self, error: Exception, now_ms: int) -> bool:
        """Quarantines the logs with damaged files that caused `error`. Returns whether there were any."""
        if not self._quarantine.suspects_damage(error):
            return False
        state = self._catalog.state
        # Other keys, and winners of other logs, are looked for in all of it.
        needs = whole if state.is_of_topics or state.identity != BYTES else verify.unpublished_range
        return bool(self._quarantine.quarantine_damaged(published_logs(state), needs, now_ms, publishing=True))

    def _give_up_tasks(self, error: Exception) -> bool:
        """Fences the producers of a task if its process has ended; returns whether to try again with Spark's fold.

        Positions cannot be read before its transaction is aborted. Raises FencedError if there is a newer owner: its
        producers must not be fenced.
        """
        if not self._executor.fold.fallback.give_up(error):
            return False
        self._broker.fence(range(self._catalog.refresh().buckets))
        return True

    def _log_published(self, sent: Sequence[PublishResult], took_ms: int) -> None:
        """Logs a line for a publish that sent records; none for one that only committed positions again."""
        moved = [result for result in sent if result.records or result.dead_letters]
        if not moved:
            return
        _log.debug(
            "published",
            implementation=self._executor.fold.implementation,
            partitions=len(moved),
            records=sum(result.records for result in moved),
            bytes=sum(result.bytes for result in moved),
            dead_letters=sum(result.dead_letters for result in moved),
            transactions=sum(result.transactions for result in moved),
            ms=took_ms,
        )


def _has_damage(state: CatalogState) -> bool:
    """Returns whether a log of an open topic is in quarantine."""
    return any(log.quarantine and state.topics[log.topic].closed is None for log in state.logs)
