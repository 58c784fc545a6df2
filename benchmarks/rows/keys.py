"""How many distinct keys a worker with little memory publishes and folds; whether a record costs more among many."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.harness import alone
from benchmarks.harness.datasets import ONE, filled, scale
from benchmarks.peers.peers import Keyfold, run
from benchmarks.rows.whole_run import HEAP, WholeRun, both_runs, unique

LIMIT_BYTES: Final = 4 << 30
"""What the whole process tree may take, pages that its processes share counted once."""
ENOUGH: Final = "M keys within 4 GiB"
GROWTH: Final = "with most keys over with fewest"
FOLD: Final = "full fold of most keys, records/s"
_SMALL: Final = 1_000_000
_LARGER: Final = (5_000_000, 50_000_000)
_PARTITIONS: Final = 2
_REPEATS: Final = 3
"""So often what lasts seconds is measured: a start that is a second longer would be a tenth of it."""
_COST: Final = "µs per record with "


class Point(NamedTuple):
    """What so many records, each of a key of its own, took: seconds to publish them without the start, bytes of memory.

    The memory is the most of both runs to their ends; `folds` are their full folds, in records per second.
    """

    records: int
    seconds: float
    peak: int
    folds: tuple[float, ...] = ()


def keys(bootstrap: str) -> dict[str, float]:
    """Of each data set what it took; one that fails ends the series, and those before it count."""
    start = statistics.median(_start(bootstrap) for _ in range(_REPEATS))
    points = []
    for size, repeats in ((_SMALL, _REPEATS), *((size, 1) for size in _LARGER)):
        data = unique(max(_PARTITIONS, round(size * scale())), _PARTITIONS)
        try:
            found = [alone.call(data.name, both_runs, bootstrap, data) for _ in range(repeats)]
        except RuntimeError as error:
            alone.deaths.append(str(error))
            break
        points.append(_point(data.records, start, found))
        print(f"  keys: {points[-1]}", flush=True)
    return values(points)


def values(points: Sequence[Point]) -> dict[str, float]:
    """The values of the figure; none of growth unless there are two points that took longer than the start."""
    enough = [one for one in points if one.peak <= LIMIT_BYTES]
    found = {ENOUGH: enough[-1].records / 1e6 if enough else 0.0}
    for one in points:
        if one.seconds > 0:
            found[_named(one.records)] = one.seconds / one.records * 1e6
        found[f"GiB with {_millions(one.records)} keys"] = one.peak / (1 << 30)
    if not points:
        return found
    first, last = points[0], points[-1]
    if last.seconds > 0:
        found[f"records/s with {_millions(last.records)} keys"] = last.records / last.seconds
    if last.folds:
        found[FOLD] = min(last.folds)
    if first is not last and first.seconds > 0 and last.seconds > 0:
        found[GROWTH] = found[_named(last.records)] / found[_named(first.records)]
    return found


def costs(found: Mapping[str, float]) -> dict[float, float]:
    """Microseconds per record by millions of records, out of the figure's values."""
    ends = len(" M")
    return {float(name[len(_COST) : -ends]): cost for name, cost in found.items() if name.startswith(_COST)}


def _named(records: int) -> str:
    return f"{_COST}{_millions(records)}"


def _millions(records: int) -> str:
    return f"{records / 1e6:g} M"


def _start(bootstrap: str) -> float:
    """Seconds until a record is published; its topic is its own, as the broker remembers what was read before."""
    peer = Keyfold(worker={"spark.driver.memory": HEAP})
    return alone.call("keyfold's start", run, peer, bootstrap, filled(bootstrap, ONE)).seconds


def _point(records: int, start: float, found: Sequence[tuple[WholeRun, WholeRun]]) -> Point:
    runs = [one for pair in found for one in pair]
    seconds = statistics.median(first.published.seconds for first, _ in found)
    return Point(records, seconds - start, max(one.pss for one in runs), tuple(one.folded.rate for one in runs))
