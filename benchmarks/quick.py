"""`python -m benchmarks.quick`: checks in some three minutes whether keyfold has become slower than before.

Ratios to peers that run in the same minutes are compared with those in quick.json, which `--accept` replaces. There are
few records and two rounds, of which the faster counts: values to be quoted come from `python -m benchmarks`.
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
from benchmarks.harness.process import exit_on_sigterm
from benchmarks.harness.results import Results
from benchmarks.harness.runner import Runner
from benchmarks.rows.registry import COMPARISONS, MEASUREMENTS, STREAMS

FILE: Final = Path(__file__).with_name("quick.json")
_SCALE: Final = 0.06
_ROUNDS: Final = 2
_ROWS: Final = {
    "backlog": COMPARISONS["backlog"],
    "backlog-unique": replace(COMPARISONS["backlog-unique"], other=STREAMS),
    "reading": COMPARISONS["reading"],
}
"""Reading and folding, sending, and what a start costs. With commits each 10 s few records would wait for one."""
_SHORTEST_S: Final = 1.0
"""A shorter time, less the start, counts as this: starts differ by as much."""


class Limits(Struct, frozen=True):
    """The accepted `ratios`, the larger the better; a new one may be smaller by the factor `tolerance`."""

    tolerance: float
    ratios: Mapping[str, float]


def ratios(results: Results) -> dict[str, float]:
    """Returns how many times as fast as its peer keyfold is; for `ready`, Kafka Streams' start over a worker's."""
    found = {}
    for name, row in _ROWS.items():
        ours, other = (_fastest(results, name, one.name, whole=name == "reading") for one in (row.ours, row.other))
        if ours is not None and other is not None:
            found[name] = max(other, _SHORTEST_S) / max(ours, _SHORTEST_S)
    ready = results.values("ready", "first micro-batch, s")
    start = results.of("backlog", _ROWS["backlog"].other.name, starts=True)
    if ready and start:
        found["ready"] = start[0].used.seconds / ready[0]
    return found


def _fastest(results: Results, row: str, program: str, *, whole: bool) -> float | None:
    """Returns the shortest time, less the shortest start unless `whole`: other load makes any run of few records slow.

    A reader of so few is done as soon as it has started, so that nothing would be left of its time.
    """
    times, starts = ([one.used.seconds for one in results.of(row, program, starts=which)] for which in (False, True))
    return min(times) - (0.0 if whole else min(starts, default=0.0)) if times else None


def slower(found: Mapping[str, float], limits: Limits) -> Iterator[str]:
    """Yields a line for each ratio that is missing or too small, and one if no ratios were accepted yet."""
    if not limits.ratios:
        yield f"{FILE.name} has no ratios: let --accept write them on a machine with nothing else to do"
    for name, before in limits.ratios.items():
        least = before / limits.tolerance
        if name not in found:
            yield f"{name}: not measured"
        elif found[name] < least:
            yield f"{name}: {found[name]:.3f} is worse than {least:.3f}, which is {before:.3f} / {limits.tolerance:g}"


def _measure() -> Results:
    """Runs the peers; starts count for all comparisons, and keyfold's runs for two that differ only in the peer."""
    os.environ[SCALE] = str(_SCALE)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "results.json")
        runner = Runner(files.load(file, _SCALE, files.code()), _ROUNDS, file)
        runner.compare(_ROWS["backlog"])
        own = runner.results.runs
        own.extend([replace(one, row="reading") for one in own if one.program == _ROWS["reading"].ours.name])
        runner.compare(_ROWS["reading"])
        own.extend([replace(one, row="backlog-unique") for one in own if one.row == "backlog" and one.is_start])
        runner.compare(_ROWS["backlog-unique"])
        once = Runner(runner.results, 1, file)
        once.measure(MEASUREMENTS["ready"])
        return once.results


def main() -> int:
    """Measures and prints each ratio beside its limit; returns 1 if one is too small."""
    exit_on_sigterm()
    options = argparse.ArgumentParser(prog="python -m benchmarks.quick", description=__doc__)
    options.add_argument("--accept", action="store_true", help=f"make what is measured now the ratios of {FILE.name}")
    accept = options.parse_args().accept
    began = time.monotonic()
    results = _measure()
    found, limits = ratios(results), msgspec.json.decode(FILE.read_bytes(), type=Limits)
    for name, ratio in found.items():
        print(f"{name}: {ratio:.3f}, before {limits.ratios.get(name, 0):.3f}, at least 1/{limits.tolerance:g} of it")
    print(f"It took {time.monotonic() - began:.0f} s.")
    if accept:
        accepted = {name: round(ratio, 3) for name, ratio in found.items()}
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(replace(limits, ratios=accepted)), indent=2) + b"\n")
        return 0
    problems = [*slower(found, limits)]
    problems += [f"{name}: {why}" for name, why in results.missing.items()]
    for line in problems:
        print(f"WORSE: {line}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
