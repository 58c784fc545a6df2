"""The highest rate that stays flat for minutes, of keyfold and of Kafka Streams, on one load and broker."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.harness.datasets import filled_topic, scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import Subject, Watched, either, passed, watch_until
from benchmarks.peers.kafka_streams import KafkaStreams
from benchmarks.peers.keyfold import running_connectors
from benchmarks.rows.sustained import FIRST, KEYS, PARTITIONS, PARTS, minutes

P99_S: Final = 2.0
LADDER: Final = tuple(25_000 * 1.15**step for step in range(15))
"""Rates in records per second, from 25,000 to 177,000: on two cores neither stays flat for ten minutes at 154,000."""
_PROBE_S: Final = 45.0
"""What falls behind by a seventh shows it by then; a rate that is confirmed may still turn out too high."""
_SETTLE_S: Final = 15.0
_BEHIND_S: Final = 15.0
"""A position that is not reached by then is further behind than `P99_S` allows: the window ends."""
_DRAIN_S: Final = 20.0
_TRIES: Final = 4
"""Of ten minutes each: the rate that the short windows gave, and those below it."""
_SLOWER: Final = 1.5
_SLOWER_S: Final = 0.5
_PRODUCED: Final = 0.98

_RATIO: Final = "times Kafka Streams' rate"
_OURS: Final = "keyfold, records/s"
_THEIRS: Final = "Kafka Streams, records/s"


class Started(NamedTuple):
    """A program that `start`, given a broker, a topic and a folder for files, runs as a context of what is watched."""

    name: str
    start: Callable[[str, str, Path], AbstractContextManager[Subject]]


class Confirmed(NamedTuple):
    """The highest rate that stayed flat in a long window, and that window; 0 and None if none did."""

    rate: float
    watched: Watched | None


def highest(bootstrap: str) -> dict[str, float]:
    """Measures the highest rate of LADDER that stays flat, of keyfold and of the Kafka Streams variant with more."""
    ladder = [rate * min(1.0, scale()) for rate in LADDER]
    ours = _confirmed(bootstrap, KEYFOLD, ladder, _searched(bootstrap, KEYFOLD, ladder, -1))
    best, step = STREAMS[0], -1
    for variant in STREAMS:
        higher = _searched(bootstrap, variant, ladder, step)
        best, step = (variant, higher) if higher > step else (best, step)
    theirs = _confirmed(bootstrap, best, ladder, step)
    return {
        _RATIO: ours.rate / theirs.rate if theirs.rate else math.inf,
        _OURS: ours.rate,
        _THEIRS: theirs.rate,
        "minutes": minutes(),
        **_seen("keyfold", ours),
        **_seen(best.name, theirs),
    }


def highest_flat(rates: Sequence[float], flat: Callable[[float], bool], known: int = -1) -> int:
    """Returns the place of the highest of the ascending rates that is flat, if all below it are; -1 if none is.

    The rate at the place `known` is taken for flat; if there is one, the next one is tried first.
    """
    low, high = known, len(rates)
    middle = low + 1 if known >= 0 else (low + high) // 2
    while high - low > 1:
        low, high = (middle, high) if flat(rates[middle]) else (low, middle)
        middle = (low + high) // 2
    return low


def stays_flat(found: Watched, rate: float) -> bool:
    """Whether `rate` was produced and seen, p99 is at most P99_S, and the last third is about as fresh as the first.

    What falls behind has latencies only of the few records that no later one of their key has superseded meanwhile.
    """
    first, last = (found.part(part, PARTS).percentile(0.5) for part in (0, PARTS - 1))
    is_whole = min(found.produced.rate / rate, found.seen) >= _PRODUCED
    is_fresh = found.latencies.percentile(0.99) <= P99_S
    return is_whole and is_fresh and first < math.inf and last <= _SLOWER * first + _SLOWER_S


def behind(published: Callable[[], Callable[[], bool]], longest_s: float) -> Callable[[], bool]:
    """Returns a condition: what was there at some moment was not published `longest_s` seconds later."""
    reached, late = published(), passed(longest_s)

    def is_behind() -> bool:
        nonlocal reached, late
        if reached():
            reached, late = published(), passed(longest_s)
        return late()

    return is_behind


def _searched(bootstrap: str, program: Started, ladder: Sequence[float], known: int) -> int:
    def flat(rate: float) -> bool:
        return _is_flat(program, rate, _watched(bootstrap, program, rate, _PROBE_S))

    return highest_flat(ladder, flat, known)


def _confirmed(bootstrap: str, program: Started, ladder: Sequence[float], step: int) -> Confirmed:
    """Watches the rate at place `step` for `minutes()`, and those below it until one stays flat."""
    for place in range(step, max(-1, step - _TRIES), -1):
        found = _watched(bootstrap, program, ladder[place], 60 * minutes())
        if _is_flat(program, ladder[place], found):
            return Confirmed(ladder[place], found)
    return Confirmed(0.0, None)


def _is_flat(program: Started, rate: float, found: Watched) -> bool:
    stays = stays_flat(found, rate)
    shown = ", ".join(f"{name} {value:.2f}" for name, value in found.values().items())
    print(f"  {program.name}, {rate:,.0f} records/s, {found.seconds:.0f} s: flat {stays}; {shown}", flush=True)
    return stays


def _watched(bootstrap: str, program: Started, rate: float, window_s: float) -> Watched:
    """Watches a new process on a new topic for `window_s` seconds, or until it is far behind."""
    topic = filled_topic(bootstrap, FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=rate, keys=KEYS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with program.start(bootstrap, topic, folder) as subject:
            window = partial(_window, subject, window_s)
            return watch_until(subject, load, folder / "signals", min(_SETTLE_S, window_s), window, _DRAIN_S)


def _window(subject: Subject, window_s: float) -> Callable[[], bool]:
    return either(passed(window_s), behind(subject.published, _BEHIND_S))


@contextmanager
def _keyfold(bootstrap: str, topic: str, folder: Path) -> Iterator[Subject]:
    with running_connectors(bootstrap, [topic], folder) as worker:
        worker.until_published()
        yield Subject(worker.running, bootstrap, worker.outputs, worker.published)


@contextmanager
def _streams(variant: KafkaStreams, bootstrap: str, topic: str, folder: Path) -> Iterator[Subject]:
    with variant.running(bootstrap, topic, folder) as job:
        job.running.until(job.published())
        yield Subject(job.running, bootstrap, (job.output,), job.published)


def _seen(name: str, found: Confirmed) -> dict[str, float]:
    values = found.watched.values() if found.watched else {}
    return {f"{name}: {what}": value for what, value in values.items()}


KEYFOLD: Final = Started("keyfold", _keyfold)
STREAMS: Final = tuple(
    Started(one.name, partial(_streams, one)) for one in (KafkaStreams("table", commit_ms=500), KafkaStreams())
)
"""What sends fewest requests and writes no changelog, with commits that P99_S allows; and its default commits."""

HIGHEST: Final = Measurement(
    "sustained-highest",
    f"highest rate that stays flat, p99 ≤ {P99_S:g} s, beside Kafka Streams",
    {},
    highest,
    at_least={_RATIO: (0, 2)},
    beside=(_OURS, _THEIRS),
)
