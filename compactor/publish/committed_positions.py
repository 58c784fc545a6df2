"""Keeps what is known of the committed positions of one connector's partitions while it publishes.

They are read once after a take-over and again after any failure. In between this worker is the only one that moves
them, and every publish checks that before it sends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog
from msgspec.structs import replace

from compactor.catalog.catalog import Catalog
from compactor.model.actions import AnyAction, Publish
from compactor.model.log import PartitionLog, end_within
from compactor.model.position import MOST_BUCKETS, Position, ResumePoint
from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.ports import Broker
from compactor.publish.named_ids import read_shut_out
from compactor.publish.plan import has_position, is_published, open_logs, published_logs, renewal_of
from compactor.publish.resume import resume_point
from compactor.settings import EngineSettings

_log = structlog.get_logger()


class Positions:
    """Keeps the resume point of each partition, and when its position was committed or read."""

    def __init__(self, catalog: Catalog, broker: Broker) -> None:
        self._catalog = catalog
        self._broker = broker
        # By partition; cleared by `forget`, replaced after each publish.
        self._resume: dict[TopicPartition, ResumePoint] = {}
        # When this run has committed the position, and when it has first read it, in ms: its age, by which it is
        # renewed.
        self._committed_ms: dict[TopicPartition, int] = {}
        self._read_ms: dict[TopicPartition, int] = {}
        # The state for which all positions are known, so that `resolve` has nothing to do; None: not known.
        self._resolved: CatalogState | None = None
        self._named: dict[TopicPartition, int] = {}
        """How many transactional ids the position of each partition names, by which it may have been published."""
        self._fenced = 0
        """How many ids, from 0, this run has initialised, if they are more than those of its catalog."""

    def __getitem__(self, tp: TopicPartition) -> ResumePoint:
        return self._resume[tp]

    def forget(self) -> None:
        """Forgets what was read, so that positions are read again before the next transaction."""
        self._resolved = None
        self._resume.clear()

    def uncertain(self) -> frozenset[TopicPartition]:
        """Returns the logs of which the published offset is not known, or not decided yet.

        Nor is it decided if a position names a fold end above what the catalog has planned, as after a rebuild. A log
        is also among them if its `published` lies inside a closed run, until the next fold passes that run. This
        happens if a catalog was set back and what had been published was ingested again.
        """
        resume, state = dict(self._resume), self._catalog.state
        unknown = (log.tp for log in published_logs(state) if log.tp not in resume or _is_open(log, resume[log.tp]))
        inside = (log.tp for log in state.logs if end_within(log, log.published) != log.published)
        return frozenset((*unknown, *inside))

    def resolve(self, now_ms: int) -> None:
        """Reads the positions that are not known, decides the resume points, and lets the catalog catch up.

        Raises PositionError if going on could lose or repeat records, and what the broker raises.
        """
        state = self._catalog.state
        if state is self._resolved:
            return
        for log in state.logs:
            if not has_position(state, log):
                self._resume.pop(log.tp, None)  # the broker has no positions for a deleted topic, and takes none
        logs = [log for log in open_logs(state) if self._is_unknown(log)]
        if not logs:
            self._resolved = state
            return
        # Positions are read once all ids that they name are initialised.
        held, self._fenced = read_shut_out(
            self._catalog, self._broker, [log.tp for log in logs], max(state.buckets, self._fenced)
        )
        self._named.update((tp, position.buckets or 0) for tp, position in held.items() if position is not None)
        for log in logs:
            self._resume[log.tp] = self._resume_point(state, log, held.get(log.tp))
            self._read_ms.setdefault(log.tp, now_ms)
        self._catalog.commit(lambda state: _missed_commits(state, self._resume), now_ms)

    def are_known(self, state: CatalogState) -> bool:
        """Returns whether `resolve` would read none for `state`."""
        return not any(self._is_unknown(log) for log in open_logs(state))

    def to_renew(self, state: CatalogState) -> list[PublishTarget]:
        """Returns the positions to be committed again before anything is sent: they name fewer ids than there are.

        A rebuild of a lost catalog knows the ids from the positions alone. An id that they do not name yet may send
        positions, which at worst come late; a record that it sends could come twice.
        """
        most = min(state.buckets, MOST_BUCKETS)
        return self._renewals(state, published_logs(state), lambda tp: self._named.get(tp, most) < most)

    def stale(self, state: CatalogState, settings: EngineSettings, now_ms: int) -> list[PublishTarget]:
        """Returns the positions to be committed again as they are, as they would expire (`is_stale`)."""
        return self._renewals(state, open_logs(state), lambda tp: self.is_stale(tp, settings, now_ms))

    def stale_aside(self, state: CatalogState, settings: EngineSettings, now_ms: int) -> list[PublishTarget]:
        """Returns those of `stale` of which the logs are not published: damaged ones, and those with a bad record."""
        aside = [log for log in open_logs(state) if not is_published(state, log)]
        return self._renewals(state, aside, lambda tp: self.is_stale(tp, settings, now_ms))

    def _renewals(
        self, state: CatalogState, logs: Iterable[PartitionLog], is_due: Callable[[TopicPartition], bool]
    ) -> list[PublishTarget]:
        """Returns the positions that are there and due; one above the log stays as it is until the log is there.

        If a record may be in any output partition of its topic, all positions of the topic go together.
        """
        chosen = [log for log in logs if is_due(log.tp)]
        if state.is_of_topics:
            chosen = [log for topic in {log.topic: None for log in chosen} for log in state.logs_of(topic)]
        due = ((log, self._resume[log.tp]) for log in chosen)
        return [renewal_of(state, log, point) for log, point in due if point.committed is not None and not point.hold]

    def is_stale(self, tp: TopicPartition, settings: EngineSettings, now_ms: int) -> bool:
        """Returns whether the position of `tp` is to be committed again: positions expire one by one.

        The age of one that an earlier run of the connector has committed is not known: it is committed again soon
        (offsets.retention.minutes, `settings.first_refresh_ms`).
        """
        if self._resume[tp].committed is None:
            return False
        first = tp not in self._committed_ms
        since_ms = self._read_ms[tp] if first else self._committed_ms[tp]
        limit_ms = settings.first_refresh_ms if first else settings.position_refresh_ms
        return not 0 <= now_ms - since_ms < limit_ms  # a clock that was set back says nothing about the age

    def committed(self, sent: Iterable[PublishResult], now_ms: int) -> None:
        """Takes over the positions that the transactions of `sent` have committed."""
        for result in sent:
            self._committed_ms[result.tp] = now_ms
            resume = ResumePoint(start=result.end, committed=result.end, output_offset=result.output_offset)
            self._resume[result.tp] = resume
            self._named.pop(result.tp, None)

    def renewed(self, targets: Iterable[PublishTarget], now_ms: int) -> None:
        """Takes over that the positions of `targets` were committed again as they were."""
        for target in targets:
            self._committed_ms[target.tp] = now_ms
            self._resume[target.tp] = replace(self._resume[target.tp], committed=target.start)
            self._named.pop(target.tp, None)

    def _is_unknown(self, log: PartitionLog) -> bool:
        resume = self._resume.get(log.tp)
        return resume is None or (resume.hold and log.end >= resume.start)

    def _resume_point(self, state: CatalogState, log: PartitionLog, committed: Position | None) -> ResumePoint:
        resume = resume_point(
            log,
            state.topics[log.topic],
            state.catalog_id,
            committed,
            lambda: self._broker.tail(state, log),
            connector=state.connector,
        )
        if resume.hold:
            _log.warning(
                "committed position is above the log, waiting",
                topic=log.topic,
                partition=log.partition,
                position=resume.start,
                log_end=log.end,
            )
        return resume


def _missed_commits(state: CatalogState, resume: Mapping[TopicPartition, ResumePoint]) -> Sequence[AnyAction]:
    """Returns the actions for transactions that were committed without the catalog learning of it."""
    return [
        Publish(topic=log.topic, partition=log.partition, end=point.publish_end, output=point.publish_output)
        for log in state.logs
        if (point := resume.get(log.tp)) and point.publish_end is not None and point.publish_end > log.published
    ]


def _is_open(log: PartitionLog, resume: ResumePoint) -> bool:
    """Returns whether a fold of `log` was begun of which the catalog does not know the end."""
    return resume.hold or (resume.fold_end is not None and resume.fold_end > log.folded_end)
