"""Distinct keys that a worker with little memory publishes and folds, and time per record by their number."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks.harness.call import call, killed
from benchmarks.harness.datasets import ONE, filled_topic, scale
from benchmarks.harness.results import Results
from benchmarks.harness.row import Measurement, run_peer
from benchmarks.peers.keyfold import Keyfold
from benchmarks.rows.whole_run import HEAP, WholeRun, both_runs, distinct_keys

LIMIT_BYTES: Final = 4 << 30
"""Most PSS of the whole process tree."""
KEYS_IN_LIMIT: Final = "M keys within 4 GiB"
GROWTH: Final = "with most keys over with fewest"
FOLD_RATE: Final = "full fold of most keys, records/s"
_SMALL: Final = 1_000_000
_LARGER: Final = (5_000_000, 50_000_000)
_PARTITIONS: Final = 2
_REPEATS: Final = 3
"""Repeats of what takes seconds, of which a start that is a second longer would be a tenth."""
_COST: Final = "µs per record with "


class Point(NamedTuple):
    """A data set of `records` distinct keys: `seconds` to publish them without the start, `peak` PSS in bytes.

    The peak is that of both runs to their ends; `folds` are the records per second of their full folds.
    """

    records: int
    seconds: float
    peak: int
    folds: tuple[float, ...] = ()


def keys(bootstrap: str) -> dict[str, float]:
    """Measures data sets of more and more keys until one fails."""
    start = statistics.median(_start(bootstrap) for _ in range(_REPEATS))
    points = []
    for size, repeats in ((_SMALL, _REPEATS), *((size, 1) for size in _LARGER)):
        data = distinct_keys(max(_PARTITIONS, round(size * scale())), _PARTITIONS)
        try:
            found = [call(data.name, both_runs, bootstrap, data) for _ in range(repeats)]
        except RuntimeError as error:
            killed.append(str(error))
            break
        points.append(_point(data.records, start, found))
        print(f"  keys: {points[-1]}", flush=True)
    return values(points)


def values(points: Sequence[Point]) -> dict[str, float]:
    """Returns the measurement's values; growth only if there are two points that took longer than the start."""
    fitting = [one for one in points if one.peak <= LIMIT_BYTES]
    found = {KEYS_IN_LIMIT: fitting[-1].records / 1e6 if fitting else 0.0}
    for one in points:
        if one.seconds > 0:
            found[_cost_name(one.records)] = one.seconds / one.records * 1e6
        found[f"GiB with {_millions(one.records)} keys"] = one.peak / (1 << 30)
    if not points:
        return found
    first, last = points[0], points[-1]
    if last.seconds > 0:
        found[f"records/s with {_millions(last.records)} keys"] = last.records / last.seconds
    if last.folds:
        found[FOLD_RATE] = min(last.folds)
    if first is not last and first.seconds > 0 and last.seconds > 0:
        found[GROWTH] = found[_cost_name(last.records)] / found[_cost_name(first.records)]
    return found


def costs(found: Mapping[str, float]) -> dict[float, float]:
    """Returns microseconds per record by millions of records, parsed out of the measurement's values."""
    ends = len(" M")
    return {float(name[len(_COST) : -ends]): cost for name, cost in found.items() if name.startswith(_COST)}


def growth(results: Results) -> list[tuple[float, float]]:
    """Returns (millions of records, median microseconds per record), sorted."""
    rounds = [costs(one.values) for one in results.measured if one.figure == KEYS.id]
    sizes = sorted({millions for one in rounds for millions in one})
    return [(size, statistics.median(one[size] for one in rounds if size in one)) for size in sizes]


def _cost_name(records: int) -> str:
    return f"{_COST}{_millions(records)}"


def _millions(records: int) -> str:
    return f"{records / 1e6:g} M"


def _start(bootstrap: str) -> float:
    """Measures seconds until one record is published, on a new topic, as the broker caches what was read before."""
    peer = Keyfold(worker={"spark.driver.memory": HEAP})
    return call("keyfold's start", run_peer, peer, bootstrap, filled_topic(bootstrap, ONE)).seconds


def _point(records: int, start: float, found: Sequence[tuple[WholeRun, WholeRun]]) -> Point:
    runs = [one for pair in found for one in pair]
    seconds = statistics.median(first.published.seconds for first, _ in found)
    return Point(records, seconds - start, max(one.pss for one in runs), tuple(one.folded.rate for one in runs))


KEYS: Final = Measurement(
    "keys",
    "distinct keys with a heap of 2 GiB",
    {},
    keys,
    at_least={KEYS_IN_LIMIT: (50, 200), FOLD_RATE: (250_000, 500_000)},
)
GROWTH_ROW: Final = Measurement("growth", "time per record", {GROWTH: (1.3, 1.1)}, keys, same_as="keys")
