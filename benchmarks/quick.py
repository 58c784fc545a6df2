"""`python -m benchmarks.quick`: whether keyfold has become slower beside its peers, in less than three minutes.

Few records and two rounds each, of which the quicker counts: figures to be quoted come from `python -m benchmarks`.
Ratios to other programs that ran in the same minutes are held against those in quick.json; `--accept` writes it anew.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness import results as files
from benchmarks.harness.datasets import SCALE
from benchmarks.harness.measure import Measuring, ended_by_sigterm
from benchmarks.harness.results import Results
from benchmarks.rows.rows import ROWS
from benchmarks.rows.worker_figures import FIGURES

FILE: Final = Path(__file__).with_name("quick.json")
_SCALE: Final = 0.06
_ROUNDS: Final = 2
_SHORTEST_S: Final = 1.0
"""What takes less, once the start is taken off, says no more than that: starts differ by as much."""


class Limits(Struct, frozen=True):
    """`ratios`, the larger the better, may be divided by `tolerance`: few records on a machine with neighbours."""

    tolerance: float
    ratios: Mapping[str, float]


def ratios(results: Results) -> dict[str, float]:
    """How many times as fast keyfold is as the other; of `ready` how long Kafka Streams' start is beside a worker's."""
    found = {}
    for name in ("backlog", "reading"):
        row = ROWS[name]
        ours, other = (_quickest(results, name, one.name) for one in (row.ours, row.other))
        if ours is not None and other is not None:
            # A reader has no start: its time is short and exact.
            found[name] = (max(other, _SHORTEST_S) if name == "backlog" else other) / max(ours, _SHORTEST_S)
    ready = results.values("ready", "first micro-batch, s")
    start = results.of("backlog", ROWS["backlog"].other.name, starts=True)
    if ready and start:
        found["ready"] = start[0].used.seconds / ready[0]
    return found


def _quickest(results: Results, row: str, program: str) -> float | None:
    """The shortest time for the data, without the shortest start: of few records a neighbour makes any run slow."""
    whole, starts = ([one.used.seconds for one in results.of(row, program, starts=which)] for which in (False, True))
    return min(whole) - min(starts, default=0.0) if whole else None


def worse(found: Mapping[str, float], limits: Limits) -> Iterator[str]:
    """A line for each ratio that is missing or worse than it may be; also where there is none to hold it against."""
    if not limits.ratios:
        yield f"{FILE.name} has no ratios: let --accept write them on a machine with nothing else to do"
    for name, before in limits.ratios.items():
        least = before / limits.tolerance
        if name not in found:
            yield f"{name}: not measured"
        elif found[name] < least:
            yield f"{name}: {found[name]:.3f} is worse than {least:.3f}, which is {before:.3f} / {limits.tolerance:g}"


def _measured() -> Results:
    """The runs of keyfold count for both rows, which differ in the other program alone."""
    os.environ[SCALE] = str(_SCALE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        measuring = Measuring(files.load(file, _SCALE), _ROUNDS, file)
        measuring.row(ROWS["backlog"])
        own = measuring.results.runs
        own.extend([replace(one, row="reading") for one in own if one.program == ROWS["reading"].ours.name])
        measuring.row(ROWS["reading"])
        once = Measuring(measuring.results, 1, file)
        once.figure(FIGURES["ready"])
        return once.results


def main() -> int:
    """Measures, prints each ratio beside its limit; 1 where one is worse."""
    ended_by_sigterm()
    options = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    options.add_argument("--accept", action="store_true", help=f"make what is measured now the ratios of {FILE.name}")
    accept = options.parse_args().accept
    began = time.monotonic()
    results = _measured()
    found, limits = ratios(results), msgspec.json.decode(FILE.read_bytes(), type=Limits)
    for name, ratio in found.items():
        print(f"{name}: {ratio:.3f}, before {limits.ratios.get(name, 0):.3f}, at least 1/{limits.tolerance:g} of it")
    print(f"It took {time.monotonic() - began:.0f} s.")
    if accept:
        kept = {name: round(ratio, 3) for name, ratio in found.items()}
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(replace(limits, ratios=kept)), indent=2) + b"\n")
        return 0
    trouble = [*worse(found, limits)]
    trouble += [f"{name}: {why}" for name, why in results.missing.items()]
    for line in trouble:
        print(f"WORSE: {line}")
    return int(bool(trouble))


if __name__ == "__main__":
    sys.exit(main())
