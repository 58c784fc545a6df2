"""A model of each log in plain dicts, with which every action of every commit is compared.

It knows the source and the clock. That the engine decided something it learns from the commits; whether that was
allowed, and what had to come of it, it works out by itself (docs/protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from typing import Final, NamedTuple, TypeAlias

import pyarrow as pa
from msgspec import UNSET, UnsetType

from compactor.catalog.commits import Commit
from compactor.model.actions import (
    AddPartition,
    AddSnapshot,
    AnyAction,
    Append,
    BeginGeneration,
    Clean,
    Merge,
    PlanFold,
    Publish,
    Refill,
    Reidentify,
    Reorder,
    Rescope,
    Restate,
    RestoreLog,
    Retain,
    SetFence,
    Skip,
)
from compactor.model.log import Generation, PartitionLog, Run, generation_of
from compactor.model.position import Position
from compactor.model.record import TopicPartition
from compactor.model.state import BY_OFFSET, BYTES, OF_TOPIC, CatalogState, apply
from compactor.settings import FOREVER
from connectors.sinks.partitioner import partitions_of
from tests.support.engine import Row, row
from tests.support.memory.journal import OutputTopic
from tests.support.memory.offset_changer import live_keys
from tests.support.oracle import retention
from tests.support.oracle.filling import filled
from tests.support.oracle.rebuilding import LostCatalog, begun_again, earlier_rows, last_offsets, outlived
from tests.support.oracle.source import Source
from tests.support.oracle.steps import Settings
from tests.support.oracle.topic_filling import fill_topics

NOWHERE: Final = -1
"""The offset in a fence of a partition that has no truncate with its value."""

OF_ONE_LOG: Final = (Append, PlanFold, Publish, Clean, Merge, Restate, Retain, Skip)


Place: TypeAlias = tuple[int, int]
"""A generation, and an offset of the source in it."""


class KeptRecord(NamedTuple):
    """A record that a log must contain, with its delete horizon."""

    row: Row
    horizon: int | None = None


class ExpectedSnapshot(NamedTuple):
    """What a snapshot must contain of one partition: the live records of the offsets [start, end) of a generation.

    `left` is that of the log (`LogModel`).
    """

    start: int
    end: int
    rows: list[Row]
    left: Mapping[bytes, Place]
    generation: int = 1


Ranks: TypeAlias = dict[bytes | None, tuple[int, ...]]
"""By keys as compared, what the order says of a record."""


class Decided(NamedTuple):
    """What the order decides about some records, by offset; `previous`: the last one's key, and whether it is late."""

    late: set[int]
    taken: dict[int, tuple[int, ...]]
    previous: tuple[bytes | None, bool] | None


class LogModel:
    """Models one generation of a log. `first` is its first start offset; `sent` the ends of folds sent completely.

    `number` and `first_end` are those of the generation, `lead` the tombstones that it begins with.
    """

    def __init__(self, source: Source, tp: TopicPartition, start: int, backlog_end: int) -> None:
        self.tp = tp
        self.number = 1
        self.first_end = start
        self.lead: list[Row] = []
        self.begun = start
        self.first = self.start = self.end = self.folded_end = self.published = self.clean_end = start
        self.backlog_end = backlog_end
        self.arrived_ms: dict[int, int] = {}
        self.horizons: dict[int, int] = {}
        self.dropped: set[int] = set()
        self.last_fold_ms: int | None = None
        self.planned = {start}
        self.sent = {start}
        # Of a topic with one winner per key: offsets of the tombstones that it begins with for keys of which the next
        # record goes to another output partition.
        self.moved: set[int] = set()
        # Of a topic with one winner per key: offsets of records that a clean has left out for another log's.
        self.beaten: set[int] = set()
        # Offsets of records that lost by the order as they came.
        self.late: set[int] = set()
        # Since the log was made again from the output: offsets of records that it lacks, and records by which keys live
        # from an earlier generation.
        self.lost: set[int] = set()
        self.from_earlier: list[Row] = []
        # The end of a fold that the lost catalog had begun: before it is reached, readers may lack keys.
        self.resumes_to = start
        # Keys that retention took as the latest of their identity, with the place of that record: nothing retires them.
        self.left: dict[bytes, Place] = {}
        # The log of the generation before, of which the positions are until those of this one are committed.
        self.earlier: LogModel | None = None
        # The rank of what was kept of each key, before each action since the last that ingested: records are decided
        # about before their commit, and a clean may come between.
        self._floors: list[Ranks] = []
        # The ranks that bare tombstones have taken, by offset; the key of the last record, and whether it was late.
        self._taken: dict[int, tuple[int, ...]] = {}
        self._previous: tuple[bytes | None, bool] | None = None
        self._folded: list[tuple[int, int]] = []
        self._skipped: list[tuple[int, int]] = []
        # The start of the log if a batch was decided about since, which retention may move before the batch's commit.
        self._decided_at: int | None = None
        # What was published as the step began; whether the log came since then.
        self.published_before = start
        self.is_new = True
        # What became of the values of records that were appended, by offset, if values are filled.
        self._values: dict[int, bytes | None] = {}
        self._source = source

    @classmethod
    def of(
        cls,
        source: Source,
        tp: TopicPartition,
        generation: Generation,
        keys: Sequence[bytes],
        now_ms: int,
        outputs: int | UnsetType,
    ) -> LogModel:
        """Returns the log of a generation that begins at `now_ms` with tombstones for `keys`."""
        first = -len(keys)
        found = cls(source, tp, first if keys else generation.start, 0)
        found.lead = [
            row(tp.partition, first + at, key, None, topic=tp.topic, timestamp=now_ms, headers=None)
            for at, key in enumerate(keys)
        ]
        if outputs is not UNSET and keys:
            places = partitions_of(pa.array(keys, pa.binary()), outputs).tolist()
            found.moved = {first + at for at, place in enumerate(places) if place != tp.partition}
        found.number, found.first_end = generation.number, generation.first_end
        found.begun = found.end = generation.start
        found.arrived_ms = {one["offset"]: now_ms for one in found.lead}
        found._folded = [(first, generation.start)] if keys else []
        return found

    def carry(self, before: LogModel, kept: Collection[int], now_ms: int) -> None:
        """Takes over from the log `before` the records of `kept`, the offsets of a run, as a truncate has left them."""
        self.begun, self.end = min(kept, default=before.end), before.end
        self.start = self.first = min(self.first, self.begun) if self.lead else self.begun
        if not self.lead:
            self.folded_end = self.published = self.clean_end = self.start
            self.planned, self.sent = {self.start}, {self.start}
        rows = self._source.between(self.tp, self.begun, self.end)
        self.late = {each["offset"] for each in rows} - set(kept)
        self._taken, self._values, self._previous = before.decisions()
        self._folded = [(self.begun, self.end), *((self.first, self.begun) for _ in self.lead[:1])]
        self.arrived_ms |= dict.fromkeys(kept, now_ms)

    def decisions(self) -> tuple[dict[int, tuple[int, ...]], dict[int, bytes | None], tuple[bytes | None, bool] | None]:
        """Returns the ranks that bare tombstones took, what became of values, and whether the last record was late."""
        return self._taken, self._values, self._previous

    def left_after(self, log: PartitionLog) -> tuple[set[int], set[int]]:
        """Returns the offsets of the records of `log` that the truncates leave: those that must stay, and that may.

        Dead letters that were sent go.
        """
        rows = [one.row for one in self.kept(log)]
        keyless = {each["offset"] for each in rows if each["key"] is None}
        stays = {
            each["offset"]: self.may_miss(each)
            for each in rows
            if each["key"] is not None and not self._source.is_before(self.tp, self.place(each)[1], each["offset"])
        }
        unsent = {offset for offset in keyless if offset >= self.folded_end}
        return {offset for offset, may_miss in stays.items() if not may_miss} | unsent, stays.keys() | keyless

    def begin(self, *, decides: bool) -> None:
        """Begins a step; `decides`: with a batch, which is decided about at once and may be committed later."""
        self._decided_at = self.start if decides else None
        self.published_before = self.published
        self.is_new = False

    def rows(self, start: int, end: int) -> list[Row]:
        """Returns the log's records of the offsets [start, end): those of the source that were not given up."""
        found = self._source.between(self.tp, max(start, self.begun), end)
        lead = [one for one in self.lead if start <= one["offset"] < end]
        rows = [
            *lead,
            *(one for one in found if not self._is_skipped(one["offset"]) and one["offset"] not in self.late),
        ]
        return [{**one, "value": self._values.get(one["offset"], one["value"])} for one in rows]

    def held(self, start: int, end: int) -> list[Row]:
        """Returns those of `rows` that the log has, and what it has from an earlier generation."""
        earlier = [row for row in self.from_earlier if start <= row["offset"] < end]
        return [*earlier, *(row for row in self.rows(start, end) if row["offset"] not in self.lost)]

    def made_again(
        self,
        kept: Collection[int],
        earlier: Sequence[Row],
        position: Position,
        resumes_to: int | None,
        now_ms: int,
    ) -> None:
        """Becomes what was made again from the output: published up to `position`, with the records at `kept`.

        `earlier`: the records by which keys live from an earlier generation, by offset. `resumes_to`: the end of a fold
        that was begun. What lies above it is read and decided about again.
        """
        at = position.offset
        self._previous = self._last_below(at) if position.late_last is not None or at == self.end else None
        self.lost = {row["offset"] for row in self.rows(self.first, at)} - set(kept)
        self.from_earlier, self.moved = list(earlier), set()
        start = min((row["offset"] for row in earlier), default=position.start)
        self.first = min(self.first, start)
        self.late = {offset for offset in self.late if offset < at}
        self._values = {offset: value for offset, value in self._values.items() if offset < at}
        self.start = self.clean_end = start
        self.end = self.folded_end = self.published = at
        self.resumes_to = at if resumes_to is None else resumes_to
        self.planned |= {at, self.resumes_to}
        self.sent = set() if resumes_to is not None else {at}
        self.horizons, self.dropped, self.beaten, self.last_fold_ms = {}, set(), set(), None
        self.backlog_end = 0
        self.arrived_ms |= dict.fromkeys((*kept, *(row["offset"] for row in earlier)), now_ms)
        self._folded = [(start, position.start), (position.start, at)]
        # A gap of which the positions were not told is none: its offsets are read.
        self._skipped = [gap for gap in self._skipped if gap[0] < at]
        self._floors = []
        there = {row["key"] for row in self.latest(start, at)}
        self.left = {key: place for key, place in self.left.items() if key not in there}

    def _last_below(self, at: int) -> tuple[bytes | None, bool] | None:
        """Returns the key of the last record below an offset that has one, and whether it was late."""
        keyed = [row for row in self._source.between(self.tp, self.begun, at) if row["key"] is not None]
        return (self.identity(keyed[-1]["key"]), keyed[-1]["offset"] in self.late) if keyed else None

    def _is_skipped(self, offset: int) -> bool:
        return any(start <= offset < end for start, end in self._skipped)

    def latest(self, start: int, end: int) -> list[Row]:
        """Returns the last record of each key that the log has among these offsets, by offset."""
        return self.last_of_each_key(self.held(start, end))

    def last_of_each_key(self, rows: Iterable[Row]) -> list[Row]:
        """Returns the last record of each key among `rows`, by offset; all of them if all are kept."""
        if self.keeps_all:
            return list(rows)
        last = {self.compared(one): one for one in rows if one["key"] is not None}
        return sorted(last.values(), key=lambda one: one["offset"])

    @property
    def keeps_all(self) -> bool:
        """Whether no record takes the place of another."""
        return self._source.keeps_all

    def identity(self, key: bytes | None) -> bytes | None:
        """Returns what `key` is compared by."""
        return self._source.identity(key)

    def compared(self, row: Row) -> bytes | None:
        """Returns what the key of a record is compared by; no other record has that of a tombstone that is `moved`."""
        own = self.identity(row["key"])
        is_moved = row["offset"] in self.moved and own is not None
        return b"%d %d %s" % (self.tp.partition, row["offset"], own) if is_moved else own

    def publishable(self, now_ms: int, settings: Settings) -> tuple[int, int]:
        """Returns the first offset inside the lag, or the end; the folded end while the backlog is being read.

        The least and the most: a run that was folded when it came, before there was a lag, is let go whole, and what
        it left out is young no more. The first fold of a later generation does not end below `first_end`.
        """
        least, most = self._publishable(now_ms, settings)
        waits = self.published < self.first_end
        return tuple(self.folded_end if waits and end < self.first_end else end for end in (least, most))  # type: ignore[return-value]

    def _publishable(self, now_ms: int, settings: Settings) -> tuple[int, int]:
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
        key = self.compared(row)
        return any(self.compared(other) == key for other in self.held(row["offset"] + 1, bounds[1]))

    def age(self, row: Row, now_ms: int) -> int:
        """Returns the age of a record in ms; one with a timestamp in the future ages from its arrival."""
        return now_ms - min(row["timestamp"], self.arrived_ms[row["offset"]])

    def dirty_age(self, row: Row, now_ms: int) -> int:
        """Returns the age for max.compaction.lag.ms, which ignores timestamps 0 and -1 (KIP-354)."""
        return self.age(row, now_ms) if row["timestamp"] > 0 else now_ms - self.arrived_ms[row["offset"]]

    def base(self) -> list[KeptRecord]:
        """Returns the records of the base run."""
        return [KeptRecord(row, self.horizons.get(row["offset"])) for row in self.base_rows()]

    def base_rows(self) -> list[Row]:
        """Returns the records of the base run without their horizons."""
        gone = self.dropped | self.beaten
        return [row for row in self.latest(self.start, self.clean_end) if row["offset"] not in gone]

    def place(self, row: Row) -> tuple[bool, tuple[int, ...], int, int]:
        """Returns by what the records of a key are compared over the partitions of a topic: the greater wins."""
        rank = self._taken.get(row["offset"], self._source.rank(row))
        return row["offset"] >= 0, rank, self.tp.partition, row["offset"]

    def kept(self, log: PartitionLog) -> list[KeptRecord]:
        """Returns the records of `log`: below clean_end the base run, above it all that merges have not removed."""
        merged = [run for run in log.runs if run.level > 0]
        survivors = {row["offset"] for run in merged for row in self.latest(run.start, run.end)}

        def stays(row: Row) -> bool:
            return row["offset"] in survivors or not any(run.start <= row["offset"] < run.end for run in merged)

        return [*self.base(), *(KeptRecord(row) for row in self.held(self.clean_end, self.end) if stays(row))]

    def live(self) -> ExpectedSnapshot:
        """Returns what a snapshot taken now must contain."""
        rows = [kept.row for kept in self.base() if kept.row["value"] is not None]
        return ExpectedSnapshot(self.start, self.clean_end, rows, self.left, self.number)

    def all_below(self, end: int) -> ExpectedSnapshot:
        """Returns what a snapshot of all records up to an offset must contain."""
        return ExpectedSnapshot(self.start, end, self.rows(self.start, end), self.left, self.number)

    def take(self, action: AnyAction, before: PartitionLog, now_ms: int, settings: Settings) -> Iterator[str]:
        """Applies `action`, decided at `now_ms`; yields what is wrong with it."""
        self._note_floors(before)
        match action:
            case Append():
                yield from self._admit(action)
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
                latest = self.latest(self.start, self.published)
                taken = {row["key"]: (self.number, row["offset"]) for row in latest if row["offset"] < action.start}
                self.left = {**self.left, **taken}
                self.start, self.clean_end = action.start, max(self.clean_end, action.start)
            case Skip():
                yield from self._skip(action)

    def _skip(self, action: Skip) -> Iterator[str]:
        if action.end < self.published or self.published < self.first_end:
            yield f"offsets up to {action.end} are given up, published is {self.published} of {self.first_end}"
        self._skipped.append((self.published, action.end))
        # What lies above is read again, decided about and filled again.
        self.late = {offset for offset in self.late if offset < action.end}
        self._values = {offset: value for offset, value in self._values.items() if offset < action.end}
        self._folded = [one for one in self._folded if one[0] < self.published]
        self.published = self.folded_end = self.end = action.end
        self.sent.add(action.end)
        self._previous = None

    def _admit(self, action: Append) -> Iterator[str]:
        """Notes which records of an action lose by the order."""
        counts = 0 if action.late is UNSET else action.late
        floors, self._floors = self._floors, []
        possible = [self._decided(action, dict(floor)) for floor in floors] or [Decided(set(), {}, None)]
        chosen = next((decided for decided in reversed(possible) if len(decided.late) == counts), None)
        if chosen is None:
            yield f"{counts} records are late, it should be one of {possible}"
        decided = possible[-1] if chosen is None else chosen
        self.late |= decided.late
        self._taken |= decided.taken
        self._previous = decided.previous

    def _note_floors(self, before: PartitionLog) -> None:
        """Notes what is kept of each key before an action."""
        if self._source.order != BY_OFFSET:
            rows = (one.row for one in self.kept(before))
            ranks = {
                self.identity(each["key"]): self._taken.get(each["offset"], self._source.rank(each)) for each in rows
            }
            self._floors.append(ranks)

    def _decided(self, action: Append, highest: Ranks) -> Decided:
        """Decides which records lose against what is kept, or one at a lower offset.

        A bare tombstone does as the record right before it, if that has its key.
        """
        decided = Decided(set(), {}, self._previous)
        for record in self.rows(action.start, action.end):
            if record["key"] is None:
                continue
            key, rank, offset = self.identity(record["key"]), self._source.rank(record), record["offset"]
            is_bare = self._source.is_bare(record)
            floor = max(highest.get(key, ()), self._source.floor(self.tp))
            is_late = rank < floor or self._source.is_before(self.tp, rank, offset)
            if (key, True) == decided.previous if is_bare else is_late:
                decided.late.add(offset)
            elif is_bare:
                decided.taken[offset] = floor
            else:
                highest[key] = rank
            decided = decided._replace(previous=(key, offset in decided.late))
        return decided

    def _append(self, action: Append, now_ms: int, settings: Settings) -> Iterator[str]:
        if action.start != self.end:
            yield f"offsets from {action.start} are appended to a log that ends at {self.end}"
        if action.run and action.run.folded:
            self._folded.append((action.start, action.end))
            if settings.lag:
                yield f"records were folded when they came, at a lag of {settings.lag} ms"
        self.arrived_ms.update({row["offset"]: now_ms for row in self.rows(action.start, action.end)})
        if self._source.fills and not self._source.of_topics:
            self._fill(action.start, action.end)
        self.end = action.end

    def _fill(self, start: int, end: int) -> None:
        """Fills the records of the offsets [start, end), each from the one before it of its key that is kept."""
        first = self.start if self._decided_at is None else self._decided_at
        before = {self.identity(each["key"]): each["value"] for each in self.latest(first, start)}
        for each in self.rows(start, end):
            if each["key"] is not None:
                key = self.identity(each["key"])
                before[key] = self._values[each["offset"]] = filled(each["value"], before.get(key))

    def give_values(self, values: Mapping[int, bytes | None]) -> None:
        """Notes what became of the values of records, by offset."""
        self._values |= values

    def _plan(self, action: PlanFold, now_ms: int, settings: Settings) -> Iterator[str]:
        _, most = self.publishable(now_ms, settings)
        if not self.folded_end <= action.end <= most and action.end != self.resumes_to:
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
        if self._source.of_topics:
            return  # all logs of the topic are looked at together (`topics.cleaned`)
        horizon = min(self.last_fold_ms + settings.delete_retention, FOREVER)
        for kept in self.base():
            if kept.row["value"] is None and kept.horizon is None:
                self.horizons[kept.row["offset"]] = horizon
            elif kept.horizon is not None and kept.horizon <= now_ms:
                self.dropped.add(kept.row["offset"])


class Model:
    """Models all logs of a connector up to the commits read; `snapshots` are what each must contain, by id."""

    def __init__(
        self,
        source: Source,
        output: Callable[[], OutputTopic],
        offsets_of: Callable[[TopicPartition, Run], Collection[int]],
    ) -> None:
        self.logs: dict[TopicPartition, LogModel] = {}
        self.snapshots: dict[str, dict[TopicPartition, ExpectedSnapshot]] = {}
        self.state = CatalogState()
        # Snapshots that were taken before the scope has changed: since then keys have moved between partitions.
        self.scoped_otherwise: set[str] = set()
        # Of topics with one winner per key: records that a tombstone had beaten when it was dropped.
        self.dead: set[tuple[TopicPartition, int]] = set()
        self._source = source
        self._output = output
        self._offsets_of = offsets_of
        # The topics of the commit that is taken of which truncates are applied.
        self._fenced: set[str] = set()
        # What was there of the last catalog that was lost, and what its logs were.
        self._lost: LostCatalog | None = None
        self._logs_lost: dict[TopicPartition, LogModel] = {}

    def begin(self, *, decides: bool) -> None:
        """Begins a step, as `LogModel.begin`."""
        for log in self.logs.values():
            log.begin(decides=decides)

    def take(self, commit: Commit, settings: Settings, times: Collection[int]) -> Iterator[str]:
        """Applies `commit`, decided at one of `times`; yields what is wrong with it."""
        self._fenced = {each.topic for each in commit.actions if isinstance(each, SetFence) and each.fence is not None}
        if commit.at_ms not in times:
            yield f"version {commit.version} is of {commit.at_ms}, the clock showed {times}"
        for action in commit.actions:
            yield from (f"{action}: {wrong}" for wrong in self._take(action, commit.at_ms, settings))
            self.state = apply(self.state, [action])
        if self._source.fills and self._source.of_topics:
            fill_topics(self.logs, [action for action in commit.actions if isinstance(action, Append)])

    def _take(self, action: AnyAction, now_ms: int, settings: Settings) -> Iterator[str]:
        if isinstance(action, AddPartition):
            tp = action.tp
            self.logs[tp] = LogModel(self._source, tp, action.start, action.backlog_end or 0)
        elif isinstance(action, Reorder | Reidentify | Refill | Rescope):
            self._set_rule(action)
        elif isinstance(action, SetFence):
            yield from self._set_fence(action)
        elif isinstance(action, BeginGeneration):
            yield from self._begin(action, now_ms)
        elif isinstance(action, RestoreLog):
            yield from self._restore(action, now_ms)
        elif isinstance(action, AddSnapshot):
            yield from self._snapshot(action)
        elif isinstance(action, OF_ONE_LOG):
            tp = action.tp
            yield from self.logs[tp].take(action, self.state.log(tp), now_ms, settings)

    def _begin(self, action: BeginGeneration, now_ms: int) -> Iterator[str]:
        """Checks that a generation begins with tombstones for what a reader of the output has."""
        tp, generation = action.tp, action.generation
        self.dead = {each for each in self.dead if each[0] != tp}
        seen = self._source.seen[tp]
        if generation.number != self.logs[tp].number + 1 or generation.first_end not in seen:
            yield f"generation {self.logs[tp].number + 1} should begin, up to one of {seen}"
        keys = live_keys(self._output().records.get(tp, ()), generation.output_offset or 0)
        outputs = self.state.topics[tp.topic].outputs
        before = self.logs[tp]
        self.logs[tp] = LogModel.of(self._source, tp, generation, keys, now_ms, outputs)
        self.logs[tp].earlier = before
        if tp.topic in self._fenced:
            must, may = before.left_after(self.state.log(tp))
            carried = set() if action.carried is UNSET else set(self._offsets_of(tp, action.carried))
            if not must <= carried <= may:
                yield f"{carried} is carried over, of {must} to {may}"
            self.logs[tp].carry(before, carried, now_ms)

    def lose(self, lost: LostCatalog) -> None:
        """Forgets the catalog, whose storage is lost, and which tombstones it had dropped: the output may have them."""
        self._lost, self._logs_lost = lost, self.logs
        self.logs, self.snapshots, self.state, self.scoped_otherwise = {}, {}, CatalogState(), set()
        self.dead = set()

    def _restore(self, action: RestoreLog, now_ms: int) -> Iterator[str]:
        """Checks that a log has of the lost one what the output has, or begins again if that is not told by it."""
        assert self._lost is not None
        log, tp = action.log, action.log.tp
        position, number = self._lost.positions[tp], generation_of(log)
        begins_again = tp in begun_again(self._lost.positions, self._output(), of_topics=self.state.is_of_topics)
        if number != position.generation + begins_again:
            yield f"the position is {position}, and generation {number} is there again"
        if begins_again and log.generation is not None:
            outputs = self.state.topics[tp.topic].outputs
            keys = live_keys(self._output().records.get(tp, ()), log.generation.output_offset or 0)
            self.logs[tp] = LogModel.of(self._source, tp, log.generation, keys, now_ms, outputs)
            if log.generation.first_end not in self._source.seen[tp] or log.generation.start != position.start:
                yield f"{log.generation} begins, the source ended at {self._source.seen[tp]}"
            return
        kept = {offset for run in log.runs for offset in self._offsets_of(tp, run)}
        there = last_offsets(self._lost.positions, self._output(), tp)
        if self.state.is_of_topics:
            rows = [row for row in self._source.between(tp, 0, position.offset) if row["offset"] in there]
            there -= outlived(rows, self._output(), tp.topic, self._source.identity)
        earlier = earlier_rows(self._lost.positions, self._output(), tp)
        if kept != there | {row["offset"] for row in earlier}:
            yield f"{sorted(kept)} is there again, the output has {sorted(there)}, and {earlier} from before"
        before = self._logs_lost[tp]
        mine = before.earlier if before.number > number and before.earlier is not None else before
        end = self._source.ends[tp] if self.state.is_of_topics else position.fold_end
        resumes_to = end if end is not None and end > position.offset else None
        self.logs[tp] = copy(mine)
        self.logs[tp].made_again(there, earlier, position, resumes_to, now_ms)

    def _set_rule(self, action: Reorder | Reidentify | Refill | Rescope) -> None:
        if isinstance(action, Reorder):
            self._source.named_order = action.order
        elif isinstance(action, Reidentify):
            self._source.compare = None if action.identity == BYTES else self._source.with_identity
        elif isinstance(action, Refill):
            self._source.fills = action.fill is not UNSET
        else:
            self._source.of_topics = action.scope == OF_TOPIC
            self.scoped_otherwise |= self.snapshots.keys()

    def _set_fence(self, action: SetFence) -> Iterator[str]:
        """Checks that a fence is that of truncates of the source, and does not fall."""
        before, fence = self._source.fences.pop(action.topic, None), action.fence
        if fence is None:
            return
        self._source.fences[action.topic] = fence
        for partition, offset in fence.offsets.items():
            known = self._source.truncates[TopicPartition(action.topic, partition)]
            if offset != NOWHERE and (offset, fence.value) not in known:
                yield f"there is no truncate {fence.value!r} at offset {offset} of partition {partition}"
        if before is not None and fence.value < before.value:
            yield f"the fence falls from {before}"

    def _snapshot(self, action: AddSnapshot) -> Iterator[str]:
        """Checks that a snapshot's offsets are the clean ends; of all records, ends of what was published meanwhile."""
        logs = {tp: log for tp, log in self.logs.items() if tp.topic == action.topic}
        if self._source.keeps_all:
            ends = {tp: action.source_offsets.get(str(tp.partition), log.begun) for tp, log in logs.items()}
            moments = {
                tp: log.all_below(ends[tp]) for tp, log in logs.items() if str(tp.partition) in action.source_offsets
            }
            wrong = {tp for tp, log in logs.items() if ends[tp] not in log.sent or ends[tp] < log.published_before}
            if wrong:
                yield f"a snapshot ends at {ends}, in {wrong} nothing was published to there while it was taken"
        else:
            # A partition that came after the snapshot was begun is left out.
            named = {tp for tp in logs if str(tp.partition) in action.source_offsets}
            moments = {tp: log.live() for tp, log in logs.items() if tp in named or not log.is_new}
        vector = {str(tp.partition): moment.end for tp, moment in moments.items()}
        if action.source_offsets != vector:
            yield f"a snapshot at {vector} was to be taken"
        if any(moment.generation > 1 and moment.end < self.logs[tp].first_end for tp, moment in moments.items()):
            yield "the base run has less than the beginning of a generation"
        self.snapshots[action.id] = moments
