"""Watches a program under a steady load for a while: how fresh its output is, and what it uses meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchmarks.harness.latencies import Latencies
from benchmarks.harness.process import Running
from benchmarks.harness.steady import Load, Produced, steady

MIB: Final = 1024 * 1024
_LONGEST_S: Final = 4 * 3_600.0


class Sample(Struct, frozen=True):
    """Resident bytes of the process tree at these seconds since the window began."""

    seconds: float
    rss: int


class Watched(Struct, frozen=True, kw_only=True):
    """What a window from `since` showed: the latencies of the records created in it, the whole load, what was used.

    The window has `seconds`; `cores` is the share of one core; `rss` and `pss` are the peaks in bytes. `seen` is the
    share of the whole load that was read: a record that a later one of its key supersedes in time is never published.
    """

    since: float
    seconds: float
    latencies: Latencies
    produced: Produced
    seen: float
    cores: float
    rss: int
    pss: int
    samples: tuple[Sample, ...] = ()

    def part(self, number: int, count: int) -> Latencies:
        """Returns the latencies of part `number`, from 0 on, of the window in `count` equal parts."""
        length = self.seconds / count
        return self.latencies.during(self.since + number * length, self.since + (number + 1) * length)

    def values(self) -> dict[str, float]:
        """Returns the values that each row of freshness has, by name."""
        return {
            "p50, s": self.latencies.percentile(0.5),
            "p99, s": self.latencies.percentile(0.99),
            "records/s produced": self.produced.rate,
            "records read": self.latencies.records,
            "seen, %": 100 * self.seen,
            "% of a core": 100 * self.cores,
            "RSS, MiB": self.rss / MIB,
            "PSS, MiB": self.pss / MIB,
        }


class Subject(Struct, frozen=True):
    """A program that runs: its `outputs`, and `published()`, a condition: all that is there now is published."""

    running: Running
    bootstrap: str
    outputs: tuple[str, ...]
    published: Callable[[], Callable[[], bool]]


def watch(subject: Subject, load: Load, folder: Path, settle_s: float, window_s: float) -> Watched:
    """Produces `load`, waits `settle_s` seconds, then watches for `window_s` seconds; `folder` is for signals."""
    return watch_until(subject, load, folder, settle_s, lambda: passed(window_s))


def watch_until(
    subject: Subject,
    load: Load,
    folder: Path,
    settle_s: float,
    window: Callable[[], Callable[[], bool]],
    drain_s: float = _LONGEST_S,
) -> Watched:
    """Does what `watch` does, until the condition that `window` returns when the window begins.

    What is not published `drain_s` seconds after the load has ended is not waited for, and not seen.
    """
    running, meter = subject.running, subject.running.meter
    with steady(subject.bootstrap, load, folder) as under_load:
        under_load.begin(subject.outputs)
        running.until(passed(settle_s))
        meter.take_peaks()
        since, began, cpu_before = time.time(), time.monotonic(), meter.cpu_seconds
        samples: list[Sample] = []
        done = window()
        running.until(lambda: _sampled(samples, time.monotonic() - began, meter.rss) and done())
        took = time.monotonic() - began
        cores = (meter.cpu_seconds - cpu_before) / took
        rss, pss = meter.take_peaks()
        produced = under_load.end_load()
        running.until(either(subject.published(), passed(drain_s)))
        read = under_load.end()
    return Watched(
        since=since,
        seconds=took,
        latencies=read.during(since, since + took),
        produced=produced,
        seen=read.records / max(1, produced.records),
        cores=cores,
        rss=rss,
        pss=pss,
        samples=tuple(samples),
    )


def watch_idle(running: Running, settle_s: float, window_s: float) -> dict[str, float]:
    """Lets a program with nothing to do settle; returns what it used in the window after that, by name.

    Raises RuntimeError where it has ended.
    """
    meter = running.meter
    running.until(passed(settle_s))
    meter.take_peaks()
    before, began = meter.cpu_seconds, time.monotonic()
    running.until(passed(window_s))
    used, took = meter.cpu_seconds - before, time.monotonic() - began
    return {"% of a core": 100 * used / took, "RSS, MiB": meter.rss / MIB, "PSS, MiB": meter.take_peaks()[1] / MIB}


def passed(seconds: float) -> Callable[[], bool]:
    """Returns a condition: so many seconds have passed since this call."""
    until = time.monotonic() + seconds
    return lambda: time.monotonic() >= until


def either(first: Callable[[], bool], second: Callable[[], bool]) -> Callable[[], bool]:
    """Returns a condition: one of the two holds."""
    return lambda: first() or second()


def _sampled(samples: list[Sample], seconds: float, rss: int) -> bool:
    """Appends a sample once a second; true, as it is part of a condition."""
    if seconds >= len(samples):
        samples.append(Sample(seconds, rss))
    return True
