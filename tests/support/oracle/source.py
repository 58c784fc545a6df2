"""The source of a history: its records in plain dicts, and the rows that reading tasks yield."""

from __future__ import annotations

from collections.abc import Mapping

from compactor.model.record import TopicPartition
from tests.support.engine import Row, range_report, row
from tests.support.oracle.steps import PARTITIONS, SourceRecord


class Source:
    """The records of all partitions, by offset, and their end offsets; `seen` are the ends that a change has read."""

    def __init__(self) -> None:
        self.rows: dict[TopicPartition, list[Row]] = {tp: [] for tp in PARTITIONS}
        self.ends: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        self.seen: dict[TopicPartition, set[int]] = {tp: set() for tp in PARTITIONS}

    def add(self, rec: SourceRecord, now_ms: int) -> None:
        """Appends `rec`."""
        tp = PARTITIONS[rec.place]
        offset = self.ends[tp] + rec.hole
        headers = [{"key": key, "value": value} for key, value in rec.headers]
        timestamp = rec.time if rec.fixed else now_ms + rec.time
        self.rows[tp].append(
            row(tp.partition, offset, rec.key, rec.value, topic=tp.topic, timestamp=timestamp, headers=headers)
        )
        self.ends[tp] = offset + 1

    def see_end(self, tp: TopicPartition) -> int:
        """Returns the end of a partition, and notes it."""
        self.seen[tp].add(self.ends[tp])
        return self.ends[tp]

    def end_in_holes(self, width: int) -> None:
        """Moves the end of every partition with records by `width` offsets without records."""
        for tp, rows in self.rows.items():
            self.ends[tp] += width if rows else 0

    def between(self, tp: TopicPartition, start: int, end: int) -> list[Row]:
        """Returns the records of the offsets [start, end)."""
        return [one for one in self.rows[tp] if start <= one["offset"] < end]

    def read(self, ranges: Mapping[TopicPartition, tuple[int, int]], tasks: int) -> list[list[Row]]:
        """Returns what each of `tasks` reading tasks yields: its share of every range, then its range reports."""
        yields: list[list[Row]] = []
        for task in range(tasks):
            shares = {tp: _share(lo, hi, task, tasks) for tp, (lo, hi) in ranges.items()}
            found = {tp: self.between(tp, *share) for tp, share in shares.items() if share[0] < share[1]}
            ends = [
                range_report(tp.partition, *shares[tp], records=len(records), topic=tp.topic)
                for tp, records in found.items()
            ]
            yields.append([*(one for records in found.values() for one in records), *ends])
        return yields


def _share(lo: int, hi: int, task: int, tasks: int) -> tuple[int, int]:
    return lo + (hi - lo) * task // tasks, lo + (hi - lo) * (task + 1) // tasks
