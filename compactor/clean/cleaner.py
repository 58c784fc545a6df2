"""The cleaner: what is due is decided by pure rules, done in one job at a time, and committed.

Steps 13 to 14b of docs/protocol.md, in a thread of its own: nothing here waits for a micro-batch, nor a micro-batch
for this. What is read lies below published and is never changed by anyone else; a commit is decided on the newest
state, so that what was ingested and published meanwhile stays. Interrupted anywhere, the old runs are valid.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

import structlog
from msgspec import Struct

from compactor.clean import compaction as clean
from compactor.clean import merge, retention, schedule
from compactor.clean import tiers as levels
from compactor.clean.decision import worthwhile
from compactor.clean.log_to_clean import across_bounds, dirt
from compactor.clean.recount import restated
from compactor.clean.rewriter import Rewriter
from compactor.clean.verdict import CleaningDecision, Kind, Reason
from compactor.failpoints import hit
from compactor.metrics import Counters
from compactor.model.actions import AnyAction, Clean
from compactor.model.log import PartitionLog
from compactor.model.record import OfPartition, TopicPartition
from compactor.model.state import State
from compactor.quarantine import quarantine
from compactor.quarantine.isolation import Isolation
from compactor.runs.paths import prefix
from compactor.runs.writer import RunTarget
from compactor.settings import EngineSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = structlog.get_logger()


class Round(Struct, frozen=True, kw_only=True):
    """What one round did: logs fully folded, merged, and shortened by retention."""

    folded: int = 0
    merged: int = 0
    expired: int = 0

    def __bool__(self) -> bool:
        return bool(self.folded or self.merged or self.expired)


class Folded(OfPartition, Struct, frozen=True, kw_only=True):
    """A log that was fully folded up to source offset `end`: what it had below it before, and what it has now."""

    topic: str
    partition: int
    end: int
    records_before: int
    records: int
    bytes_before: int
    bytes: int
    tombstones: int

    @classmethod
    def of(cls, log: PartitionLog, done: Clean) -> Folded:
        """The fold `done` of `log`."""
        before, base = dirt(log), log.base
        return cls(
            topic=log.topic,
            partition=log.partition,
            end=done.end,
            records_before=before.records + before.unsure_records + (base.records if base else 0),
            records=done.base.records,
            bytes_before=before.cost,
            bytes=done.base.bytes,
            tombstones=done.base.tombstones,
        )


class Cleaner:
    """Keeps the logs of one connector small. One thread uses it; the catalog is shared.

    `clock` gives the time in ms at which a commit is made, which for a long job is not the time of its round: files
    that it replaced have their whole grace from then on. Without one the time of the round stands for it.
    """

    def __init__(
        self,
        spark: SparkSession,
        isolation: Isolation,
        settings: EngineSettings,
        counters: Counters,
        uncertain: Callable[[], Collection[TopicPartition]],
        clock: Callable[[], int] | None = None,
    ) -> None:
        self._clock = clock
        self._rewriter = Rewriter(spark, isolation.storage, isolation.stopping.is_set)
        self._storage = isolation.storage
        self._catalog = isolation.catalog
        self._settings = settings
        self._counters = counters
        self._isolation = isolation
        self._uncertain = uncertain
        self._last: Kind | None = None

    def round(self, now_ms: int) -> Round:
        """Does what is due: retention, one job of full folds, one job of merges. Raises StorageError, FencedError.

        What fails because of a partition's own files sets that partition aside, and raises nothing.
        """
        self._isolation.retry(now_ms)
        expired = self._expire(now_ms)
        folded = self._fold_due(now_ms)
        merged = self._merge(now_ms, {one.tp for one in folded})
        return Round(folded=len(folded), merged=merged, expired=expired)

    def fold(
        self, now_ms: int, wanted: Collection[TopicPartition] | None = None, *, asked: bool = True
    ) -> tuple[Folded, ...]:
        """On command: a full fold of every log (or those `wanted`) in which it would change anything, due or not.

        Those that are set aside are left out. Raises FoldFailedError where one fails and somebody `asked`.
        """
        if not self._settings.policy.compacts:
            return ()
        state = self._catalog.state
        held = self._held(state)
        logs = [log for log in state.logs if worthwhile(log, now_ms) and log.tp not in held]
        chosen = [log for log in logs if wanted is None or log.tp in wanted]
        for log in chosen:
            _log.info("fold", topic=log.topic, partition=log.partition, why="Asked for, or for a snapshot.")
        return self._fold(chosen, now_ms, asked=asked)

    def _held(self, state: State) -> dict[TopicPartition, Reason]:
        """The logs that nothing is done with now."""
        return {**dict.fromkeys(self._uncertain(), Reason.UNCERTAIN), **quarantine.holds(state.logs)}

    def _expire(self, now_ms: int) -> int:
        """Retention moves the start of logs; their files go with the next vacuum."""
        found = retention.expiring(self._catalog.state.logs, self._settings.policy, now_ms, self._uncertain())
        actions = [action for one in found if (action := one.action)]
        if not actions:
            return 0
        hit("retain.before-commit")
        self._commit(actions, now_ms)
        for one in found:
            _log.info("retention", topic=one.tp.topic, partition=one.tp.partition, what=one.text)
        self._counters.add("retentions", len(actions))
        return len(actions)

    def _fold_due(self, now_ms: int) -> tuple[Folded, ...]:
        """One job of full folds, chosen so that neither overdue nor filthy logs starve."""
        choice = schedule.choose(
            self._survey(self._measured(now_ms), now_ms), self._last, self._settings.fold.job_bytes
        )
        for found in choice.picked:
            _log.info("fold", topic=found.tp.topic, partition=found.tp.partition, why=found.text)
        self._last = choice.last
        logs = self._catalog.state.by_partition()
        return self._fold([logs[found.tp] for found in choice.picked], now_ms)

    def _survey(self, state: State, now_ms: int) -> tuple[CleaningDecision, ...]:
        settings = self._settings
        return schedule.survey(state.logs, settings.policy, settings.fold, now_ms, self._held(state))

    def _measured(self, now_ms: int) -> State:
        """The state in which every log's verdict is known: runs across published are counted anew where it matters."""
        state = self._catalog.state
        open_ = [state.log(found.tp) for found in self._survey(state, now_ms) if found.reason is Reason.UNMEASURED]
        self._isolation.run(open_, lambda logs: self._recount(logs, now_ms), now_ms)
        return self._catalog.state

    def _recount(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        runs = [(log, run) for log in logs for run in across_bounds(log)]
        self._commit([restated(self._storage, log, run) for log, run in self._isolation.until_stopped(runs)], now_ms)

    def _fold(self, logs: Sequence[PartitionLog], now_ms: int, *, asked: bool = False) -> tuple[Folded, ...]:
        """Steps 13b and 14b for `logs`, whatever they cost together."""
        counted = self._counted(logs, now_ms, asked=asked)
        done = self._isolation.run(counted, lambda logs: self._fold_all(logs, now_ms), now_ms, asked=asked)
        folded = tuple(one for part in done for one in part)
        self._counters.add("full_folds", len(folded))
        return folded

    def _counted(self, logs: Sequence[PartitionLog], now_ms: int, *, asked: bool) -> list[PartitionLog]:
        """`logs`, whose runs across `published` are counted anew where counts below it are needed.

        That is where a run has records without a key, as each of them is counted as rejected once; and where somebody
        `asked` for the fold, as its result says to the byte how much there was below its end.
        """
        unsure = [log for log in logs if any(asked or run.keyless for run in across_bounds(log))]
        if not unsure:
            return list(logs)
        self._isolation.run(unsure, lambda logs: self._recount(logs, now_ms), now_ms, asked=asked)
        now = self._catalog.state.by_partition()
        return [now[log.tp] for log in logs if now[log.tp].quarantine is None]

    def _fold_all(self, logs: Sequence[PartitionLog], now_ms: int) -> tuple[Folded, ...]:
        settings = self._settings
        limit = settings.fold_bytes_per_second
        cleans = clean.full_fold(self._rewriter, logs, self._target(), settings.policy, now_ms, limit)
        hit("clean.before-commit")
        self._commit(cleans, now_ms)
        hit("clean.after-commit")
        for log in logs:
            self._left_out(log.tp, clean.keyless(log))
        return tuple(Folded.of(log, done) for log, done in zip(logs, cleans, strict=True))

    def _merge(self, now_ms: int, folded: Collection[TopicPartition]) -> int:
        """Steps 13a and 14a: one job of merges, of logs that were not just folded."""
        state, settings = self._catalog.state, self._settings
        held = {*folded, *self._held(state)}
        plans = {plan.tp: plan for plan in levels.due_merges(state.logs, settings.fold, held, settings.fold.job_bytes)}

        def job(logs: Sequence[PartitionLog]) -> int:
            wanted = [plans[log.tp] for log in logs]
            limit = settings.fold_bytes_per_second
            merges = merge.merges(self._rewriter, wanted, self._target(), settings.policy, limit)
            hit("merge.before-commit")
            self._commit(merges, now_ms)
            for plan in wanted:
                self._left_out(plan.tp, merge.keyless(plan, settings.policy))
            return len(merges)

        merged = sum(self._isolation.run([state.log(tp) for tp in plans], job, now_ms))
        self._counters.add("merges", merged)
        return merged

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        """Commits with the time that it is by now, but never one before its round's."""
        at_ms = now_ms if self._clock is None else max(now_ms, self._clock())
        self._catalog.commit(lambda _: actions, at_ms)

    def _left_out(self, tp: TopicPartition, records: int) -> None:
        """Tells of records that a log kept while it was not folded by key, and that are gone now."""
        if not records:
            return
        self._counters.add("records_rejected", records)
        _log.warning(
            "records without a key left out",
            topic=tp.topic,
            partition=tp.partition,
            records=records,
            why="they were kept while cleanup.policy did not compact, and are the latest of no key",
        )

    def _target(self) -> RunTarget:
        named = prefix(self._catalog.epoch, secrets.token_hex(4))
        return RunTarget(storage=self._storage, prefix=named, max_bytes=self._settings.policy.segment_bytes)
