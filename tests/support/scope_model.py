"""A model of docs/decisions/0006-scope.md: one winner per key over the partitions of a topic, in plain Python.

It takes random schedules through the rules of the decision and compares what a reader and a snapshot have with the
source. Each `Flaw` leaves one rule out. It models what the rules are about and nothing else: logs, folds that are sent
in part, cleans, snapshots, generations. The engine is not part of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from enum import Enum
from random import Random
from typing import Final, NamedTuple

OUTPUTS: Final = 3
"""Partitions of the output; of the source there are as many, or more."""


class Flaw(Enum):
    """A rule of the decision that a model leaves out."""

    NO_ORDER_IN_A_LOG = "a log admits records that come late by its own order"
    AGAINST_ALL = "a publish compares with what no publish has planned yet"
    AGAINST_PUBLISHED = "a publish does not compare with what it sends itself"
    LOSERS_STAY = "a clean keeps what loses to other logs"
    CLEANS_APART = "a clean is of some logs of the topic"
    CLEANS_INSIDE_A_FOLD = "a topic is cleaned while a fold of it is sent in part"
    DROPS_OVER_WAITING = "a clean drops a tombstone while an older record waits to be published"
    GENERATIONS_APART = "the first folds of a generation are not planned together"
    PUBLISHES_BESIDE_HOLD = "a topic is published while the position of a log is above the log"
    RETIRES_OF_OWN_LOG = "a record retires the spellings of its key that its own log has, and no others"
    SKIPS_INSIDE_A_FOLD = "a record that changes nothing is left out while a fold is sent in part"


class Record(NamedTuple):
    """A record of the source; of an offset below 0 a tombstone with which a generation begins."""

    time: int
    partition: int
    offset: int
    spelling: str
    value: str | None

    @property
    def key(self) -> str:
        """The identity of the key: letters are the same large and small."""
        return self.spelling.lower()

    @property
    def output_partition(self) -> int:
        """The partition of the output that its key, as it is written, goes to."""
        return "abcABC".index(self.spelling) * 2 % OUTPUTS

    @property
    def rank(self) -> tuple[int, int, int]:
        """By what it wins: time, then partition, then offset."""
        return self.time, self.partition, self.offset


class BrokenError(AssertionError):
    """A reader or a snapshot has another table than the source."""


class Log:
    """One source partition: `kept` by offset; `position` is what the group holds, `planned` the end of the last fold.

    `output_end` is how much of the output there was with its position, and tells of one output partition; `resume` is
    the same of its last clean. `reached` is the end of what was sent
    before the catalog was set back, up to which the source has to be read again; `was_whole`: a fold ended there.
    """

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.kept: dict[int, Record] = {}
        self.position = self.published = self.planned = self.end = self.first_end = self.clean_end = 0
        self.output_end = 0
        self.resume: int | None = None
        self.is_aside = False
        self.reached = -1_000
        self.was_whole = True

    @property
    def is_between_folds(self) -> bool:
        """Whether no fold was sent in part."""
        return self.position == self.published == self.planned

    @property
    def is_held(self) -> bool:
        """Whether the group holds a position that the log has not reached."""
        return self.end < self.reached

    def below(self, end: int) -> list[Record]:
        """Returns what is kept below `end`, by offset."""
        return [record for offset, record in sorted(self.kept.items()) if offset < end]

    def latest(self, start: int, end: int) -> list[Record]:
        """Returns the last record of each key in [start, end), by offset: a fold."""
        last = {record.key: record for record in self.below(end) if record.offset >= start}
        return sorted(last.values(), key=lambda record: record.offset)


class ScopeModel:
    """One topic of a few partitions, and its output; `run` takes a random schedule through the rules."""

    def __init__(self, seed: int, flaw: Flaw | None = None, partitions: int = 3) -> None:
        self._chance = Random(seed)
        self._flaw = flaw
        self._now = 0
        self._source: list[list[Record]] = [[] for _ in range(partitions)]
        self._logs = [Log(partition) for partition in range(partitions)]
        self._output: list[Record] = []
        self._horizons: dict[Record, int] = {}
        # Records that do not count any more: late in their own log, or below a tombstone that was dropped.
        self._dead: set[Record] = set()
        # The logs as they were backed up; None after something that a catalog cannot be set back across.
        self._saved: list[Log] | None = None
        # What a reader had when the generation began.
        self._before: dict[str, str] = {}
        # Tables of snapshots, with the places in the output from which a reader of each partition goes on.
        self._snapshots: list[tuple[dict[str, str], list[int]]] = []

    def run(self, steps: int = 80) -> None:
        """Takes random steps, then publishes until no fold is sent in part. Raises BrokenError."""
        weights = {
            self._produce: 8,
            self._ingest: 5,
            self._pass_time: 2,
            self._publish: 5,
            self._clean: 3,
            self._merge: 1,
            self._snapshot: 2,
            self._set_aside: 1,
            self._begin_generation: 0.3,
            self._back_up: 0.5,
            self._set_back: 0.3,
            self._add_partition: 0.1,
        }
        for step in self._chance.choices([*weights], [*weights.values()], k=steps):
            step()
        for log in self._logs:
            log.is_aside = False
        for _ in range(1_000):
            if all(log.is_between_folds and not log.is_held and log.published >= log.first_end for log in self._logs):
                return
            self._ingest()
            self._publish()
        raise BrokenError("no end")

    def _produce(self) -> None:
        partition = self._chance.randrange(len(self._source))
        records = self._source[partition]
        time = max(0, self._now + self._chance.choice((0, 0, 0, -1, -2, -5)))
        value = self._chance.choice((None, None, "same", "same", f"{partition}.{len(records)}"))
        records.append(Record(time, partition, len(records), self._chance.choice("abcaABb"), value))

    def _pass_time(self) -> None:
        self._now += self._chance.choice((1, 1, 3))

    def _set_aside(self) -> None:
        log = self._chance.choice(self._logs)
        log.is_aside = not log.is_aside

    def _add_partition(self) -> None:
        self._source.append([])
        self._logs.append(Log(len(self._logs)))

    def _ingest(self) -> None:
        """Steps 3a to 4: what is late by its own log's order is left out."""
        log = self._chance.choice(self._logs)
        end = self._chance.randint(log.end, len(self._source[log.partition]))
        for record in self._source[log.partition][log.end : end]:
            if any(kept.key == record.key and kept.rank > record.rank for kept in log.kept.values()):
                self._dead.add(record)
                if self._flaw is not Flaw.NO_ORDER_IN_A_LOG:
                    continue
            log.kept[record.offset] = record
        log.end = end
        if log.was_whole and log.published < log.reached <= log.end:
            log.published = log.planned = log.reached  # the catalog catches up

    def _back_up(self) -> None:
        self._saved = deepcopy(self._logs)

    def _set_back(self) -> None:
        """Restores the catalog as it was: what the group holds and the output stay, newer partitions begin again."""
        if self._saved is None:
            return
        newer = [Log(log.partition) for log in self._logs[len(self._saved) :]]
        self._logs = [_restored(old, new) for old, new in zip([*self._saved, *newer], self._logs, strict=True)]
        self._saved = None

    def _publish(self) -> None:
        """Steps 5 to 12. Each log has transactions of its own, in any order, and the process may die after each."""
        ends = self._planned_ends()
        skips = all(log.is_between_folds for log in self._logs) or self._flaw is Flaw.SKIPS_INSIDE_A_FOLD
        best = _winners(record for log in self._logs for record in log.below(log.published))
        known = {record.spelling: record.value for record in best.values()} if skips else {}
        for log, end in ends.items():
            log.planned = max(log.planned, end)
        waiting = {log: self._survivors(log, ends) for log in ends}
        dies = self._chance.random() < 0.4
        while waiting and not (dies and self._chance.random() < 0.3):
            log = self._chance.choice([*waiting])
            some, waiting[log] = waiting[log][:2], waiting[log][2:]
            for record, is_late in some:
                if not (is_late or (record.spelling in known and known[record.spelling] == record.value)):
                    self._output.extend(self._retired(record, log, ends))
                    self._output.append(record)
            log.position = waiting[log][0][0].offset if waiting[log] else ends[log]
            if not waiting[log]:
                del waiting[log]
            log.output_end = len(self._output)
        for log in ends:
            if log.position == log.planned:
                log.published = log.position
        self._check_reader()

    def _planned_ends(self) -> dict[Log, int]:
        """Step 5: a fold that was begun keeps its end; the first folds of a generation begin in one plan."""
        first = [log for log in self._logs if log.planned < log.first_end]
        waiting = {log for log in first if log.end < log.first_end or log.is_aside}
        held = {log for log in self._logs if log.is_held}
        if held and self._flaw is not Flaw.PUBLISHES_BESIDE_HOLD:
            return {}
        if waiting and self._flaw is not Flaw.GENERATIONS_APART:
            return {}
        return {
            log: self._chance.randint(max(log.planned, log.first_end), log.end) if log.is_between_folds else log.planned
            for log in self._logs
            if not log.is_aside and log not in waiting | held
        }

    def _survivors(self, log: Log, ends: dict[Log, int]) -> list[tuple[Record, bool]]:
        """Step 9: a survivor of the fold is late if another log has a record of its key that wins."""
        others = [record for other in self._logs if other is not log for record in self._compared(other, ends)]
        return [(record, _is_beaten(record, others)) for record in log.latest(log.position, ends[log])]

    def _retired(self, record: Record, log: Log, ends: dict[Log, int]) -> list[Record]:
        """Step 9, if keys have an identity: a tombstone for each other spelling that the logs have of the key."""
        logs = [log] if self._flaw is Flaw.RETIRES_OF_OWN_LOG else self._logs
        kept = (mine for other in logs for mine in other.below(ends.get(other, other.planned)))
        spellings = {mine.spelling for mine in kept if mine.key == record.key} - {record.spelling}
        return [record._replace(spelling=spelling, value=None) for spelling in sorted(spellings)]

    def _compared(self, other: Log, ends: dict[Log, int]) -> list[Record]:
        match self._flaw:
            case Flaw.AGAINST_ALL:
                return other.below(other.end)
            case Flaw.AGAINST_PUBLISHED:
                return other.below(other.published)
        return other.below(ends.get(other, other.planned))

    def _merge(self) -> None:
        """Steps 13a and 14a, of runs of one log."""
        log = self._chance.choice(self._logs)
        start, end = sorted(self._chance.randint(log.clean_end, log.published) for _ in range(2))
        stays = {record.offset for record in log.latest(start, end)}
        log.kept = {offset: kept for offset, kept in log.kept.items() if offset in stays or not start <= offset < end}

    def _clean(self) -> None:
        """Steps 13b and 14b, of all logs at once: what loses goes, and tombstones past their horizon."""
        if any(log.is_held for log in self._logs):
            return
        if not all(log.is_between_folds for log in self._logs) and self._flaw is not Flaw.CLEANS_INSIDE_A_FOLD:
            return
        cleaned = self._logs
        if self._flaw is Flaw.CLEANS_APART:
            cleaned = self._chance.sample(self._logs, self._chance.randint(1, len(self._logs)))
        kept = {log: self._kept_by_clean(log) for log in cleaned}
        for log, records in kept.items():
            log.kept = {offset: record for offset, record in log.kept.items() if offset >= log.published} | records
            log.clean_end, log.resume = log.published, log.output_end

    def _kept_by_clean(self, log: Log) -> dict[int, Record]:
        others = [record for other in self._logs if other is not log for record in other.below(other.published)]
        stays: dict[int, Record] = {}
        for record in log.latest(-1_000, log.published):
            if _is_beaten(record, others) and self._flaw is not Flaw.LOSERS_STAY:
                continue
            if record.value is None and not self._keeps_tombstone(record):
                self._bury(record)
                continue
            stays[record.offset] = record
        return stays

    def _keeps_tombstone(self, record: Record) -> bool:
        """Returns whether a tombstone is stamped, or before its horizon, or an older record waits in any log."""
        if record not in self._horizons:
            self._horizons[record] = max(self._now, record.time) + 2
            return True
        waits = any(mine.time <= record.time for log in self._logs for mine in log.kept.values() if _waits(log, mine))
        return self._now < self._horizons[record] or (waits and self._flaw is not Flaw.DROPS_OVER_WAITING)

    def _bury(self, tombstone: Record) -> None:
        """Notes which records of its key came while `tombstone` was kept: none of them brings the key back."""
        self._saved = None
        for log in self._logs:
            self._dead.update(
                record
                for record in self._source[log.partition][: log.end]
                if record.key == tombstone.key and record.rank <= tombstone.rank
            )

    def _snapshot(self) -> None:
        """Steps 15 to 17: the winners of all base runs, and the ends of output partitions when they were cleaned."""
        resumes = [log.resume for log in self._logs if log.resume is not None]
        if len(resumes) < len(self._logs):  # of these the first speak for output partitions
            return
        table = _table(_winners(record for log in self._logs for record in log.below(log.clean_end)).values())
        source = self._source_table({log: log.clean_end for log in self._logs})
        if table != source:
            raise BrokenError(f"a snapshot has {table}, the source {source}")
        self._snapshots = [*self._snapshots[-2:], (table, resumes)]

    def _begin_generation(self) -> None:
        """Steps G1 to G4, of all logs: tombstones for what the output has, at offsets below 0 of any log."""
        self._before, self._saved = _table(self._output), None
        placed = {key: self._chance.choice(self._logs).partition for key in self._before}
        self._dead.clear()
        self._logs = [self._begun(log, [key for key in placed if placed[key] == log.partition]) for log in self._logs]

    def _begun(self, before: Log, keys: Sequence[str]) -> Log:
        source = self._source[before.partition]
        log = Log(before.partition)
        log.is_aside, log.first_end = before.is_aside, len(source)
        for offset, key in enumerate(keys, start=-len(keys)):
            log.kept[offset] = Record(-1, log.partition, offset, key, None)
        log.position = log.published = log.planned = log.clean_end = -len(keys)
        log.output_end = len(self._output)
        log.end = self._chance.choice((0, 0, len(source) // 2))
        self._dead.update(source[: log.end])  # the source has lost these
        return log

    def _check_reader(self) -> None:
        if not all(log.is_between_folds and not log.is_held for log in self._logs):
            return
        if any(log.published < log.first_end for log in self._logs):
            if _table(self._output) != self._before:
                raise BrokenError(
                    f"a generation has begun, and a reader has {_table(self._output)}, not {self._before}"
                )
            return
        source = self._source_table({log: log.published for log in self._logs})
        if _table(self._output) != source:
            raise BrokenError(f"a reader has {_table(self._output)}, the source {source}")
        for table, resumes in self._snapshots:
            rest = (record for at, record in enumerate(self._output) if at >= resumes[record.output_partition])
            resumed = _table(rest, table)
            if resumed != source:
                raise BrokenError(f"a reader that went on from a snapshot has {resumed}, the source {source}")

    def _source_table(self, ends: dict[Log, int]) -> dict[str, str]:
        records = (
            record
            for log, end in ends.items()
            for record in self._source[log.partition][: max(0, end)]
            if record not in self._dead
        )
        return _table(_winners(records).values())


def _winners(records: Iterable[Record]) -> dict[str, Record]:
    best: dict[str, Record] = {}
    for record in records:
        if record.key not in best or record.rank > best[record.key].rank:
            best[record.key] = record
    return best


def _restored(old: Log, new: Log) -> Log:
    """Returns `old` in the place of `new`, with the position that the group holds."""
    old.position, old.is_aside = new.position, new.is_aside
    old.reached, old.was_whole = (new.reached, new.was_whole) if new.is_held else (new.planned, new.is_between_folds)
    old.planned = max(old.planned, old.reached)
    if old.was_whole and old.end >= old.reached:
        old.published = old.reached
    return old


def _waits(log: Log, record: Record) -> bool:
    """Returns whether a record of `log` is ingested and not published."""
    return record.offset >= log.published


def _is_beaten(record: Record, others: Collection[Record]) -> bool:
    return any(other.key == record.key and other.rank > record.rank for other in others)


def _table(records: Iterable[Record], before: dict[str, str] | None = None) -> dict[str, str]:
    """Returns what a reader has of `records`, in their order, on top of the table `before`."""
    table = dict(before or {})
    for record in records:
        if record.value is None:
            table.pop(record.spelling, None)
        else:
            table[record.spelling] = record.value
    return table


def failures(flaw: Flaw | None, seeds: Iterable[int]) -> Iterator[tuple[int, str]]:
    """Yields each of `seeds` by which a model with `flaw` breaks a promise, with what was broken."""
    for seed in seeds:
        try:
            ScopeModel(seed, flaw).run()
        except BrokenError as error:
            yield seed, str(error)
