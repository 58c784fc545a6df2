"""A model of each log in plain dicts, with which every action of every commit is compared.

It knows the source and the clock. That the engine decided something it learns from the commits; whether that was
allowed, and what had to come of it, it works out by itself (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from compactor.catalog.commits import Commit
from compactor.model.actions import (
    AddPartition,
    AddSnapshot,
    AnyAction,
    Append,
    Clean,
    Merge,
    PlanFold,
    Publish,
    Restate,
    Retain,
)
from compactor.model.log import PartitionLog
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.settings import FOREVER
from tests.support.engine import Row
from tests.support.oracle import retention
from tests.support.oracle.source import Source
from tests.support.oracle.steps import Settings

OF_ONE_LOG: Final = (Append, PlanFold, Publish, Clean, Merge, Restate, Retain)


class KeptRecord(NamedTuple):
    """A record that a log must contain, with its delete horizon."""

    row: Row
    horizon: int | None = None


class ExpectedSnapshot(NamedTuple):
    """What a snapshot must contain of one partition: the live records of the offsets [start, end)."""

    start: int
    end: int
    rows: list[Row]


class LogModel:
    """Models one log. `first` is its first start offset; `sent` are the ends of folds that were sent completely."""

    def __init__(self, source: Source, tp: TopicPartition, start: int, backlog_end: int) -> None:
        self.tp = tp
        self.first = self.start = self.end = self.folded_end = self.published = self.clean_end = start
        self.backlog_end = backlog_end
        self.arrived_ms: dict[int, int] = {}
        self.horizons: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.last_fold_ms: int | None = None
        self.planned = {start}
        self.sent = {start}
        self._folded: list[tuple[int, int]] = []
        self._source = source

    def rows(self, start: int, end: int) -> list[Row]:
        """Returns the source's records of the offsets [start, end)."""
        return self._source.between(self.tp, start, end)

    def latest(self, start: int, end: int) -> list[Row]:
        """Returns the last record of each key among these offsets, by offset."""
        found = {row["key"]: row for row in self.rows(start, end) if row["key"] is not None}
        return sorted(found.values(), key=lambda row: row["offset"])

    def publishable(self, now_ms: int, settings: Settings) -> tuple[int, int]:
        """Returns the first offset inside the lag, or the end; the folded end while the backlog is being read.

        The least and the most: a run that was folded when it came, before there was a lag, is let go whole, and what
        it left out is young no more.
        """
        if self.end < self.backlog_end and self.published < self.backlog_end:
            return self.folded_end, self.folded_end
        rows = self.rows(self.folded_end, self.end) if settings.lag else []
        young = [row for row in rows if self.age(row, now_ms) < settings.lag]
        least = next((row["offset"] for row in young), self.end)
        inside = next((start for start, end in self._folded if start < least < end), least)
        most = next((row["offset"] for row in young if not self.may_miss(row)), self.end)
        return max(inside, self.folded_end), most

    def may_miss(self, row: Row) -> bool:
        """Whether `row` may have been left out when it came: a run was folded in which a later record has its key."""
        bounds = next(((start, end) for start, end in self._folded if start <= row["offset"] < end), None)
        if bounds is None or row["key"] is None:
            return False
        return any(other["key"] == row["key"] for other in self.rows(row["offset"] + 1, bounds[1]))

    def age(self, row: Row, now_ms: int) -> int:
        """Returns the age of a record in ms; one with a timestamp in the future ages from its arrival."""
        return now_ms - min(row["timestamp"], self.arrived_ms[row["offset"]])

    def dirty_age(self, row: Row, now_ms: int) -> int:
        """Returns the age for max.compaction.lag.ms, which ignores timestamps 0 and -1 (KIP-354)."""
        return self.age(row, now_ms) if row["timestamp"] > 0 else now_ms - self.arrived_ms[row["offset"]]

    def base(self) -> list[KeptRecord]:
        """Returns the records of the base run."""
        found = (row for row in self.latest(self.start, self.clean_end) if row["offset"] not in self.dropped)
        return [KeptRecord(row, self.horizons.get(row["offset"])) for row in found]

    def kept(self, log: PartitionLog) -> list[KeptRecord]:
        """Returns the records of `log`: below clean_end the base run, above it all that merges have not removed."""
        merged = [run for run in log.runs if run.level > 0]
        survivors = {row["offset"] for run in merged for row in self.latest(run.start, run.end)}

        def stays(row: Row) -> bool:
            return row["offset"] in survivors or not any(run.start <= row["offset"] < run.end for run in merged)

        return [*self.base(), *(KeptRecord(row) for row in self.rows(self.clean_end, self.end) if stays(row))]

    def live(self) -> ExpectedSnapshot:
        """Returns what a snapshot taken now must contain."""
        rows = [kept.row for kept in self.base() if kept.row["value"] is not None]
        return ExpectedSnapshot(self.start, self.clean_end, rows)

    def take(self, action: AnyAction, before: PartitionLog, now_ms: int, settings: Settings) -> Iterator[str]:
        """Applies `action`, decided at `now_ms`; yields what is wrong with it."""
        match action:
            case Append():
                yield from self._append(action, now_ms, settings)
            case PlanFold():
                yield from self._plan(action, now_ms, settings)
            case Publish():
                yield from self._publish(action)
            case Clean():
                yield from self._clean(action, settings)
            case Merge() if action.run.end > self.published:
                yield f"a merge up to {action.run.end} passes published, {self.published}"
            case Retain():
                kept = [one.row for one in self.kept(before) if not self.may_miss(one.row)]
                yield from retention.violations(before, action.start, now_ms, settings, kept, self.arrived_ms)
                self.start, self.clean_end = action.start, max(self.clean_end, action.start)

    def _append(self, action: Append, now_ms: int, settings: Settings) -> Iterator[str]:
        if action.start != self.end:
            yield f"offsets from {action.start} are appended to a log that ends at {self.end}"
        if action.run and action.run.folded:
            self._folded.append((action.start, action.end))
            if settings.lag:
                yield f"records were folded when they came, at a lag of {settings.lag} ms"
        self.arrived_ms.update({row["offset"]: now_ms for row in self.rows(action.start, action.end)})
        self.end = action.end

    def _plan(self, action: PlanFold, now_ms: int, settings: Settings) -> Iterator[str]:
        _, most = self.publishable(now_ms, settings)
        if not self.folded_end <= action.end <= most:
            yield f"a fold ends at {action.end}; between {self.folded_end} and {most} it may"
        self.folded_end = action.end
        self.planned.add(action.end)

    def _publish(self, action: Publish) -> Iterator[str]:
        if action.end not in self.planned | {self.published}:
            yield f"published stands at {action.end}, where no fold ends"
        self.published = action.end
        self.sent.add(action.end)

    def _clean(self, action: Clean, settings: Settings) -> Iterator[str]:
        """A full fold stamps each tombstone once, and drops those that an earlier one has stamped when it is time."""
        if action.end not in self.sent or action.at_ms is None:
            yield f"a full fold ends at {action.end}, where no fold was sent completely, at {action.at_ms}"
            return
        now_ms, self.clean_end = action.at_ms, action.end
        self.last_fold_ms = max(now_ms, self.last_fold_ms or now_ms)
        horizon = min(self.last_fold_ms + settings.delete_retention, FOREVER)
        for kept in self.base():
            if kept.row["value"] is None and kept.horizon is None:
                self.horizons[kept.row["offset"]] = horizon
            elif kept.horizon is not None and kept.horizon <= now_ms:
                self.dropped.add(kept.row["offset"])


class Model:
    """Models all logs of a connector up to the commits read; `snapshots` are what each must contain, by id."""

    def __init__(self, source: Source) -> None:
        self.logs: dict[TopicPartition, LogModel] = {}
        self.snapshots: dict[str, dict[TopicPartition, ExpectedSnapshot]] = {}
        self.state = CatalogState()
        self._source = source

    def take(self, commit: Commit, settings: Settings, times: Collection[int]) -> Iterator[str]:
        """Applies `commit`, decided at one of `times`; yields what is wrong with it."""
        if commit.at_ms not in times:
            yield f"version {commit.version} is of {commit.at_ms}, the clock showed {times}"
        for action in commit.actions:
            yield from (f"{action}: {wrong}" for wrong in self._take(action, commit.at_ms, settings))
            self.state = apply(self.state, [action])

    def _take(self, action: AnyAction, now_ms: int, settings: Settings) -> Iterator[str]:
        if isinstance(action, AddPartition):
            tp = action.tp
            self.logs[tp] = LogModel(self._source, tp, action.start, action.backlog_end or 0)
        elif isinstance(action, AddSnapshot):
            yield from self._snapshot(action)
        elif isinstance(action, OF_ONE_LOG):
            tp = action.tp
            yield from self.logs[tp].take(action, self.state.log(tp), now_ms, settings)

    def _snapshot(self, action: AddSnapshot) -> Iterator[str]:
        """Checks that a snapshot's offsets are the clean ends."""
        moments = {tp: log.live() for tp, log in self.logs.items() if tp.topic == action.topic}
        vector = {str(tp.partition): moment.end for tp, moment in moments.items()}
        if action.source_offsets != vector:
            yield f"a snapshot at {vector} was to be taken"
        self.snapshots[action.id] = moments
