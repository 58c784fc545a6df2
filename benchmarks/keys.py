"""How many distinct keys a worker with little memory publishes, and whether a record costs more among many."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from benchmarks import alone
from benchmarks.datasets import ONE, DataSet, filled, named
from benchmarks.peers import Keyfold, Peer, run
from benchmarks.process import Used

HEAP: Final = "2g"
LIMIT_BYTES: Final = 4 << 30
"""What the whole process tree may take, pages that its processes share counted once."""
ENOUGH: Final = "M keys within 4 GiB"
GROWTH: Final = "with most keys over with fewest"
_SMALL: Final = "keys-1M"
_LARGER: Final = ("keys-5M", "keys-50M")
_REPEATS: Final = 3
"""So often what lasts seconds is measured: a start that is a second longer would be a tenth of it."""
_COST: Final = "µs per record with "


class Point(NamedTuple):
    """What so many records, each of a key of its own, took: seconds without the start, and bytes of memory."""

    records: int
    seconds: float
    peak: int


def keys(bootstrap: str) -> dict[str, float]:
    """Of each data set what it took; one that fails ends the series, and those before it count."""
    peer = Keyfold(worker={"spark.driver.memory": HEAP})
    start = _median([_run(bootstrap, peer, ONE) for _ in range(_REPEATS)])
    points = []
    for name, repeats in ((_SMALL, _REPEATS), *((name, 1) for name in _LARGER)):
        data = named(name)
        try:
            runs = [_run(bootstrap, peer, data) for _ in range(repeats)]
        except RuntimeError as error:
            alone.deaths.append(str(error))
            break
        points.append(Point(data.records, _median(runs) - start, max(one.peak_pss for one in runs)))
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


def _run(bootstrap: str, peer: Peer, data: DataSet) -> Used:
    """On a topic of its own, as the next worker would otherwise find it in the broker's memory."""
    return alone.call(f"keyfold on {data.name}", run, peer, bootstrap, filled(bootstrap, data))


def _median(runs: Sequence[Used]) -> float:
    return statistics.median(one.seconds for one in runs)
