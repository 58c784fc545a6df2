"""The cleaner: a round is five steps, each of which decides on the newest state and commits what it decided.

    retain    logs lose their old end                         → Retain
    measure   runs across published are counted again         → Restate, only if a decision depends on them
    choose    overdue and filthiest logs, as many as one job takes
    compact   the chosen logs are cleaned in one job          → Clean
    merge     neighbouring runs of other logs, in one job     → Merge

These are steps 13 to 14b of docs/protocol.md, in a thread of their own: a round and a micro-batch never wait for each
other. What is read lies below published and is changed by nothing else; a commit is applied to the newest state, so
that what was ingested and published meanwhile stays. Interrupted anywhere, the old runs are valid.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

import structlog
from msgspec import Struct

from compactor.catalog.catalog import Catalog
from compactor.clean import compaction, retention, schedule, tiers
from compactor.clean.due import CleaningDecision, Queue, Reason, quarantined, would_change
from compactor.clean.log_to_clean import LogToClean, straddling_runs
from compactor.clean.recount import recount
from compactor.clean.rewriter import Rewriter
from compactor.clean.topic_schedule import of_topics
from compactor.clean.winners import Winners, is_settled, revives, whole_topics
from compactor.failpoints import hit
from compactor.metrics import Counters
from compactor.model.actions import AnyAction, Clean
from compactor.model.log import PartitionLog, without_indexes
from compactor.model.record import OfPartition, TopicPartition
from compactor.model.state import CatalogState
from compactor.quarantine.quarantine import QuarantineManager
from compactor.runs.paths import prefix
from compactor.runs.writer import RunTarget
from compactor.settings import EngineSettings

_NAMED: Final = 100
"""How many logs of a round have a line each: of ten thousand, lines would take as long as the cleaning."""

_TRIES: Final = 3
"""How often a clean of a topic begins again at most, as a record came for a key of which it drops the tombstone."""

_log = structlog.get_logger()


class Round(Struct, frozen=True, kw_only=True):
    """How many logs one round cleaned, merged, and shortened by retention; false if it did nothing."""

    cleaned: int = 0
    merged: int = 0
    expired: int = 0

    def __bool__(self) -> bool:
        return bool(self.cleaned or self.merged or self.expired)


class CleanedLog(OfPartition, Struct, frozen=True, kw_only=True):
    """A log that was cleaned up to source offset `end`: what it had below that before, and what it has now."""

    topic: str
    partition: int
    end: int
    records_before: int
    records: int
    bytes_before: int
    bytes: int
    tombstones: int

    @classmethod
    def of(cls, log: PartitionLog, done: Clean) -> CleanedLog:
        """Compares `log` with what `done` makes of it."""
        before, base = LogToClean.of(log), log.base
        return cls(
            topic=log.topic,
            partition=log.partition,
            end=done.end,
            records_before=before.cleanable_records + before.straddling_records + (base.records if base else 0),
            records=done.base.records,
            bytes_before=before.total_bytes,
            bytes=done.base.bytes,
            tombstones=done.base.tombstones,
        )


class Cleaner:
    """Keeps the logs of one connector small. One thread uses it; the catalog is shared.

    `uncertain` returns the logs of which the published offset is not known: they are left alone. `clock_ms` returns the
    time in ms at which a commit is made. For a long job that is later than the time of its round, and the files that it
    replaced keep their whole grace from then on. Without it, commits have the time of the round.
    """

    def __init__(
        self,
        rewriter: Rewriter,
        catalog: Catalog,
        quarantine: QuarantineManager,
        settings: EngineSettings,
        counters: Counters,
        uncertain: Callable[[], Collection[TopicPartition]],
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        self._clock_ms = clock_ms
        self._rewriter = rewriter
        self._catalog = catalog
        self._settings = settings
        self._counters = counters
        self._quarantine = quarantine
        self._uncertain = uncertain
        # Paths of index files that are gone: their logs count as having none (`replace_indexes`).
        self._lost_indexes: frozenset[str] = frozenset()
        # Logs that were chosen for want of an index: once is enough, as one may fail (`writer`).
        self._reindexed: set[TopicPartition] = set()
        # The queue that the last choice ended with; the next one begins with the other (`schedule.choose`).
        self._last: Queue | None = None

    def round(self, now_ms: int) -> Round:
        """Does what is due at `now_ms`: one job that cleans, one that merges. Raises StorageError, FencedError.

        If the files of a partition make a job fail, that partition goes into quarantine, and the others are done.
        """
        self._quarantine.recheck(now_ms)
        expired = self._retain(now_ms)
        cleaned = self._clean(self._choose(*self._measure(now_ms)), now_ms)
        merged = self._merge(now_ms, {log.tp for log in cleaned})
        return Round(cleaned=len(cleaned), merged=merged, expired=expired)

    def clean(
        self,
        now_ms: int,
        wanted: Collection[TopicPartition] | None = None,
        *,
        asked: bool = True,
        forced: Collection[TopicPartition] = (),
    ) -> tuple[CleanedLog, ...]:
        """Cleans, on command, every log (or those `wanted`) in which that would change anything, due or not.

        Those `forced` are written again though nothing in them changes. Those in quarantine are left out. Raises
        FoldFailedError if one fails and a command `asked` for it.
        """
        if not self._settings.policy.compacts:
            return ()
        state = self._catalog.state
        held = self._held(state)
        changing = [log for log in state.logs if would_change(log, now_ms) or _is_again(log, forced)]
        logs = [log for log in changing if log.tp not in held]
        chosen = [log for log in logs if wanted is None or log.tp in wanted]
        if state.is_of_topics:
            chosen = [log for log in whole_topics(state, chosen) if not _waits(state, log, held)]
        _announce("cleaning", [(log.tp, "Asked for, or for a snapshot.") for log in chosen[:_NAMED]], len(chosen))
        return self._clean(chosen, now_ms, asked=asked)

    def replace_indexes(self, lost: frozenset[str]) -> None:
        """Lets the next rounds clean the logs that name one of the index files `lost`, if runs get an index."""
        self._lost_indexes = lost
        if lost:
            self._reindexed.clear()

    def _retain(self, now_ms: int) -> int:
        """Moves the start of logs by retention; their files go with the next vacuum. Returns how many logs."""
        expiring = retention.expiring(self._catalog.state.logs, self._settings.policy, now_ms, self._uncertain())
        actions = [action for log in expiring if (action := log.action)]
        if not actions:
            return 0
        hit("retain.before-commit")
        self._commit(actions, now_ms)
        _announce("retention", [(log.tp, log.text) for log in expiring[:_NAMED]], len(expiring))
        self._counters.add("retentions", len(actions))
        return len(actions)

    def _measure(self, now_ms: int) -> tuple[CatalogState, Sequence[CleaningDecision]]:
        """Counts runs across published again if a decision depends on them; returns the state and the decisions."""
        state = self._catalog.state
        decisions = self._decisions(state, now_ms)
        unmeasured = [decision.tp for decision in decisions if decision.reason is Reason.UNMEASURED]
        if not unmeasured:
            return state, decisions
        self._quarantine.run([state.log(tp) for tp in unmeasured], lambda logs: self._recount(logs, now_ms), now_ms)
        state = self._catalog.state
        return state, self._decisions(state, now_ms)

    def _choose(self, state: CatalogState, decisions: Sequence[CleaningDecision]) -> list[PartitionLog]:
        """Chooses the logs of the next job so that neither overdue nor filthy ones starve."""
        due = [each for each in decisions if each.reason is not Reason.UNINDEXED or each.tp not in self._reindexed]
        if state.is_of_topics:  # one stands for all of its topic
            due = [*{each.tp.topic: each for each in reversed(due)}.values()]
        choice = schedule.choose(due, self._last, self._settings.fold.job_bytes)
        _announce("cleaning", [(log.tp, log.text) for log in choice.picked[:_NAMED]], len(choice.picked))
        self._last = choice.last
        logs = state.by_partition()
        picked = [logs[decision.tp] for decision in choice.picked]
        chosen = whole_topics(state, picked) if state.is_of_topics else picked
        unindexed = {each.tp for each in decisions if each.reason is Reason.UNINDEXED}
        self._reindexed.update(log.tp for log in chosen if log.tp in unindexed)
        return chosen

    def _clean(self, logs: Sequence[PartitionLog], now_ms: int, *, asked: bool = False) -> tuple[CleanedLog, ...]:
        """Cleans `logs` (steps 13b and 14b), whatever they cost together."""
        began_ms = self._now_ms(now_ms)
        counted = self._counted(logs, now_ms, asked=asked)
        done = self._cleaned(counted, now_ms, asked=asked)
        cleaned = tuple(log for part in done for log in part)
        self._counters.add_all(
            {
                "full_folds": len(cleaned),
                "fold_bytes_read": sum(log.bytes_before for log in cleaned),
                "fold_bytes_written": sum(log.bytes for log in cleaned),
                "fold_records_removed": sum(log.records_before - log.records for log in cleaned),
                "fold_jobs": sum(1 for part in done if part),
                "fold_ms": self._now_ms(now_ms) - began_ms,
            }
        )
        return cleaned

    def _cleaned(self, logs: Sequence[PartitionLog], now_ms: int, *, asked: bool) -> tuple[tuple[CleanedLog, ...], ...]:
        """Cleans `logs` in one job; topic by topic if the logs of a topic have to go together."""
        if not self._catalog.state.is_of_topics:
            return self._quarantine.run(logs, lambda logs: self._clean_part(logs, now_ms), now_ms, asked=asked)
        done: list[tuple[CleanedLog, ...]] = []
        for topic in dict.fromkeys(log.topic for log in logs):
            own = self._catalog.state.logs_of(topic)
            if is_settled(own) and not any(log.quarantine for log in own):
                job = partial(self._clean_part, now_ms=now_ms)
                done += self._quarantine.run(own, job, now_ms, asked=asked, together=True)
        return tuple(done)

    def _merge(self, now_ms: int, cleaned: Collection[TopicPartition]) -> int:
        """Merges runs of logs that were not just `cleaned` (steps 13a and 14a). Returns how many merges."""
        state, fold = self._catalog.state, self._settings.fold
        held = {*cleaned, *self._held(state)}
        picks = {pick.tp: pick for pick in tiers.pick_merges(state.logs, fold, held, fold.job_bytes)}

        def job(logs: Sequence[PartitionLog]) -> int:
            return self._merge_picks([picks[log.tp] for log in logs], now_ms)

        merged = sum(self._quarantine.run([state.log(tp) for tp in picks], job, now_ms))
        self._counters.add("merges", merged)
        return merged

    def _decisions(self, state: CatalogState, now_ms: int) -> tuple[CleaningDecision, ...]:
        settings = self._settings
        logs = [without_indexes(log, self._lost_indexes) for log in state.logs] if self._lost_indexes else state.logs
        decisions = schedule.evaluate_all(logs, settings.policy, settings.fold, now_ms, self._held(state))
        return of_topics(state, decisions) if state.is_of_topics else decisions

    def _held(self, state: CatalogState) -> dict[TopicPartition, Reason]:
        """Returns the logs that are left alone now, each with the reason."""
        return {**dict.fromkeys(self._uncertain(), Reason.UNCERTAIN), **quarantined(state.logs)}

    def _counted(self, logs: Sequence[PartitionLog], now_ms: int, *, asked: bool) -> list[PartitionLog]:
        """Returns `logs` after their runs across `published` were counted again, if counts below it are needed.

        They are needed if a run has records without a key, as each of them is counted as rejected once; and if a
        command `asked` for the clean, as its result says to the byte how much there was below its end.
        """
        inexact = [log for log in logs if any(asked or run.keyless for run in straddling_runs(log))]
        if not inexact:
            return list(logs)
        self._quarantine.run(inexact, lambda logs: self._recount(logs, now_ms), now_ms, asked=asked)
        now = self._catalog.state.by_partition()
        return [now[log.tp] for log in logs if now[log.tp].quarantine is None]

    def _recount(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        runs = self._quarantine.until_stopped([(log, run) for log in logs for run in straddling_runs(log)])
        self._commit([recount(self._catalog.storage, log, run) for log, run in runs], now_ms)

    def _clean_part(self, logs: Sequence[PartitionLog], now_ms: int, tries: int = _TRIES) -> tuple[CleanedLog, ...]:
        policy, limit = self._settings.policy, self._settings.fold_io_max_bytes_per_second
        state = self._catalog.state
        winners = Winners.of(self._catalog.storage, state.record_order, logs) if state.is_of_topics else None
        cleans = compaction.clean(self._rewriter, logs, self._target(), policy, now_ms, limit, winners)
        hit("clean.before-commit")
        if winners is None:
            self._commit(cleans, now_ms)
        elif not self._commit_winners(logs, cleans, now_ms):
            return self._cleaned_again(logs, now_ms, tries)
        hit("clean.after-commit")
        for log in logs:
            # Those of a run across `published` count with the clean that takes its end.
            self._count_left_out(log.tp, sum(run.keyless for run in log.runs if run.end <= log.published))
        return tuple(CleanedLog.of(log, done) for log, done in zip(logs, cleans, strict=True))

    def _commit_winners(self, logs: Sequence[PartitionLog], cleans: Sequence[AnyAction], now_ms: int) -> bool:
        """Commits the cleans of `logs`, all logs of some topics; returns False if they would revive a record."""
        topics = dict.fromkeys(log.topic for log in logs)
        done = False
        while not done:
            state = self._catalog.state
            now = [log for topic in topics for log in state.logs_of(topic)]
            if revives(self._catalog.storage, logs, now, now_ms):
                return False
            ends = {log.tp: log.end for log in now}

            def decide(newest: CatalogState, ends: Mapping[TopicPartition, int] = ends) -> Sequence[AnyAction]:
                nonlocal done
                done = all(log.end == ends.get(log.tp) for topic in topics for log in newest.logs_of(topic))
                return cleans if done else ()

            self._catalog.commit(decide, self._now_ms(now_ms))
        return True

    def _cleaned_again(self, logs: Sequence[PartitionLog], now_ms: int, tries: int) -> tuple[CleanedLog, ...]:
        """Cleans the topics of `logs` as they are now; nothing if a fold of one is being sent, or after some tries."""
        state = self._catalog.state
        now = [log for topic in dict.fromkeys(log.topic for log in logs) for log in state.logs_of(topic)]
        return self._clean_part(now, now_ms, tries - 1) if tries and is_settled(now) else ()

    def _merge_picks(self, picks: Sequence[tiers.MergePick], now_ms: int) -> int:
        policy, limit = self._settings.policy, self._settings.fold_io_max_bytes_per_second
        merges = compaction.merge(self._rewriter, picks, self._target(), policy, limit)
        hit("merge.before-commit")
        self._commit(merges, now_ms)
        self._counters.add_all(
            {
                "fold_bytes_read": sum(pick.bytes for pick in picks),
                "fold_bytes_written": sum(merge.run.bytes for merge in merges),
            }
        )
        for pick in picks if policy.compacts else ():
            self._count_left_out(pick.tp, sum(run.keyless for run in pick.runs))
        return len(merges)

    def _commit(self, actions: Sequence[AnyAction], now_ms: int) -> None:
        """Commits with the present time, but never with one before that of its round."""
        self._catalog.commit(lambda _: actions, self._now_ms(now_ms))

    def _now_ms(self, now_ms: int) -> int:
        """Returns the time of the clock, but never one before `now_ms`, the time of the round."""
        return now_ms if self._clock_ms is None else max(now_ms, self._clock_ms())

    def _count_left_out(self, tp: TopicPartition, records: int) -> None:
        """Logs and counts records that a log kept while it was not folded by key, and that are gone now."""
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
        return RunTarget(
            storage=self._catalog.storage,
            prefix=named,
            max_bytes=self._settings.policy.segment_bytes,
            is_indexed=self._settings.fold.has_index,
            has_identities=self._catalog.state.key_identity is not None,
        )


def _is_again(log: PartitionLog, forced: Collection[TopicPartition]) -> bool:
    return log.tp in forced and log.published > log.start


def _waits(state: CatalogState, log: PartitionLog, held: Collection[TopicPartition]) -> bool:
    """Returns whether a log of the topic of `log`, with which it is cleaned, is among those `held`."""
    return any(other.tp in held for other in state.logs_of(log.topic))


def _announce(event: str, named: Sequence[tuple[TopicPartition, str]], count: int) -> None:
    """Logs `event` of `count` logs: a line for each that is `named`, with the reason; one for the others."""
    for tp, why in named:
        _log.info(event, topic=tp.topic, partition=tp.partition, why=why)
    if count > len(named):
        _log.info(event, others=count - len(named))
