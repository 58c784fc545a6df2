"""`python -m benchmarks`: takes every row of docs/performance.md, in three rounds, and prints the table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from benchmarks.harness import plots
from benchmarks.harness import results as files
from benchmarks.harness.datasets import SCALE
from benchmarks.harness.process import ROOT, exit_on_sigterm
from benchmarks.harness.runner import Runner
from benchmarks.harness.table import report
from benchmarks.rows import keys
from benchmarks.rows.registry import COMPARISONS, MEASUREMENTS
from benchmarks.rows.sustained import MINUTES

_DOCS = ROOT / "docs" / "performance"


def main() -> int:
    """Takes the rows that are missing, prints the table and draws the plots; returns 1 if something failed."""
    exit_on_sigterm()
    options = _options()
    os.environ[SCALE] = str(options.scale)
    os.environ[MINUTES] = str(options.minutes)
    file = options.into / "results.json"
    runner = Runner(files.load(file, options.scale, files.code(), options.minutes), options.rounds, file)
    names = options.rows.split(",") if options.rows else [*COMPARISONS, *MEASUREMENTS]
    comparisons = [COMPARISONS[name] for name in names if name in COMPARISONS]
    measurements = [MEASUREMENTS[name] for name in names if name not in COMPARISONS]
    for comparison in comparisons:
        runner.compare(comparison)
    for measurement in measurements:
        runner.measure(measurement)
    text = report(comparisons, measurements, runner.results)
    (options.into / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    drawn = plots.draw(comparisons, runner.results, keys.growth(runner.results), options.into)
    if options.docs:
        _DOCS.mkdir(exist_ok=True)
        for one in drawn:
            shutil.copy(one, _DOCS)
    return int(runner.failed)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rows", help=f"some of {', '.join([*COMPARISONS, *MEASUREMENTS])}, with commas; all when left out"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records as the data sets say")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long each sustained row is watched")
    parser.add_argument("--into", type=Path, default=Path("build/bench"), help="results.json there is gone on with")
    parser.add_argument("--docs", action="store_true", help="also copy the plots to docs/performance")
    found = parser.parse_args()
    unknown = set(found.rows.split(",") if found.rows else ()) - {*COMPARISONS, *MEASUREMENTS}
    if unknown:
        parser.error(f"--rows: there is no {', '.join(sorted(unknown))}; --help lists all")
    return found


if __name__ == "__main__":
    sys.exit(main())
