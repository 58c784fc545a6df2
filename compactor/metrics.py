"""Counts what one run of a connector's engine does, for `describe` and the log; warns of clocks that cannot be right.

Takes numbers only, so that every layer above can count.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

import structlog
from msgspec import Struct

_log = structlog.get_logger()


# Seconds: the buckets of the metric's histogram.
FRESHNESS_BOUNDS_S: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Freshness(Struct, frozen=True):
    """How old published records were when they became visible.

    `records` counts those up to each of FRESHNESS_BOUNDS_S and above the one before, then those above all; `seconds` is
    the sum of their ages.
    """

    records: tuple[int, ...] = (0,) * (len(FRESHNESS_BOUNDS_S) + 1)
    seconds: float = 0.0

    def with_sent(self, age_s: float, records: int) -> Freshness:
        """Returns it with `records` more, of which the oldest was `age_s` old."""
        place = bisect_left(FRESHNESS_BOUNDS_S, age_s)
        counts = (*self.records[:place], self.records[place] + records, *self.records[place + 1 :])
        return Freshness(counts, self.seconds + age_s * records)


class Counters:
    """Counts that only grow: records, offsets, bytes, and ms that folds took. Threads may share it.

    `freshness` has one writer, the thread that publishes.
    """

    def __init__(self) -> None:
        self.freshness = Freshness()
        self._lock = threading.Lock()
        # By source topic and name; changed under `_lock`, as tasks of several threads count.
        self._topics: dict[str, dict[str, int]] = {}
        self._counts: dict[str, int] = dict.fromkeys(
            (
                "batches",
                "offsets_read",
                "records_read",
                "bytes_read",
                "records_filtered",
                "truncates",
                "records_rejected",
                "records_without_key",
                "future_timestamps",
                "clock_steps_back",
                "offsets_lost",
                "records_published",
                "bytes_published",
                "dead_letters",
                "records_refused",
                "records_superseded",
                "records_late",
                "records_filled",
                "records_left_unfilled",
                "records_unreadable_to_fill",
                "records_unchanged",
                "transactions",
                "transactions_aborted",
                "full_folds",
                "merges",
                "fold_bytes_read",
                "fold_bytes_written",
                "fold_records_removed",
                "fold_jobs",
                "fold_ms",
                "retentions",
                "snapshots",
            ),
            0,
        )

    def add(self, name: str, by: int) -> None:
        """Adds `by` to the count `name`."""
        with self._lock:
            self._counts[name] += by

    def add_all(self, counts: Mapping[str, int]) -> None:
        """Adds each of `counts` to the count of its name."""
        for name, by in counts.items():
            self.add(name, by)

    def add_by_topic(self, name: str, amounts: Iterable[tuple[str, int]]) -> None:
        """Adds amounts to the counts `name` of their source topics."""
        with self._lock:
            for topic, by in amounts:
                counts = self._topics.setdefault(topic, {})
                counts[name] = counts.get(name, 0) + by

    def by_topic(self) -> Mapping[str, Mapping[str, int]]:
        """Returns a copy of what was counted by source topic: records read, published and late, and dead letters."""
        with self._lock:
            return {topic: dict(counts) for topic, counts in self._topics.items()}

    def values(self) -> Mapping[str, int]:
        """Returns a copy of all counts by name."""
        return dict(self._counts)


_WIN_BACK: Final = (
    "write a record or a tombstone of that key with a timestamp that is as high or higher; "
    "set message.timestamp.after.max.ms of the source topic, so that the broker refuses such records"
)


class ClockWarnings:
    """Warns once of each kind of time that cannot be right: of records, or of the worker's clock.

    No decision depends on it. A record stamped in the future ages from its arrival (`publish.publishable`,
    `model.log.aged_from`); if the worker's clock steps back, nothing that was decided moves back.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        # The worker's clock at the last `observe`, in ms; None before the first.
        self._latest_ms: int | None = None
        # Events that were logged once; each is logged no more in this run.
        self._warned: set[str] = set()

    def observe(self, now_ms: int) -> None:
        """Counts a step back of the worker's clock, which shows `now_ms` now."""
        before, self._latest_ms = self._latest_ms, now_ms
        if before is None or now_ms >= before:
            return
        self._counters.add("clock_steps_back", 1)
        self._once("the clock was set back; nothing that was published or folded moves back", {}, by_ms=before - now_ms)

    def future_records(self, topic: str, partition: int, up_to_offset: int) -> None:
        """Warns of records of one partition, up to an offset, with timestamps after their arrival."""
        where = {"topic": topic, "partition": partition, "up_to_offset": up_to_offset}
        self._once("records are stamped in the future; they age from their arrival", {}, **where)

    def future_winner(self, topic: str, partition: int, offset: int, timestamp_ms: int) -> None:
        """Warns once of each partition of records that win by their timestamp over all that come before that time.

        `offset` is that of the first of them, `timestamp_ms` the highest timestamp of those that came with it.
        """
        partition_of = {"topic": topic, "partition": partition}
        event = "records are stamped in the future; by compaction.order what comes for their keys is late until then"
        self._once(event, partition_of, offset=offset, timestamp_ms=timestamp_ms, action=_WIN_BACK)

    def _once(self, event: str, of: Mapping[str, object], **where: object) -> None:
        """Logs an event once in this run, or once for each value of `of`."""
        logged = " ".join((event, *map(str, of.values())))
        if logged not in self._warned:
            self._warned.add(logged)
            _log.warning(event, **of, **where)
