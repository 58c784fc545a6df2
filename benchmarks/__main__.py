"""`python -m benchmarks`: takes every row of docs/performance.md, in three rounds, and prints the table."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness import page, plots
from benchmarks.harness import results as files
from benchmarks.harness.datasets import SCALE
from benchmarks.harness.process import ROOT, exit_on_sigterm
from benchmarks.harness.runner import Runner
from benchmarks.harness.table import report, table
from benchmarks.rows import keys
from benchmarks.rows.registry import COMPARISONS, MEASUREMENTS, PAGE, minutes_of
from benchmarks.rows.sustained import MINUTES

_DOCS: Final = ROOT / "docs" / "performance"
_ALL: Final = "all"


def main() -> int:
    """Takes the rows that are missing, prints the table and draws the plots; returns 1 if something failed."""
    exit_on_sigterm()
    options = _options()
    os.environ[SCALE] = str(options.scale)
    os.environ[MINUTES] = str(options.minutes)
    file = options.into / "results.json"
    try:
        results = files.load(file, options.scale, files.code(), options.minutes)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    runner = Runner(results, options.rounds, file)
    names = _names(options.rows)
    comparisons = [COMPARISONS[name] for name in names if name in COMPARISONS]
    measurements = [MEASUREMENTS[name] for name in names if name not in COMPARISONS]
    _print_minutes(names, minutes_of(names, options.rounds))
    for comparison in comparisons:
        runner.compare(comparison)
    for measurement in measurements:
        runner.measure(measurement)
    text = report(comparisons, measurements, runner.results)
    options.into.mkdir(parents=True, exist_ok=True)
    (options.into / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    drawn = plots.draw(comparisons, runner.results, keys.growth(runner.results), options.into)
    if options.docs:
        _DOCS.mkdir(exist_ok=True)
        for plot in drawn:
            shutil.copy(plot, _DOCS)
        shutil.copy(file, _DOCS)
        page.fill(_DOCS.with_suffix(".md"), table(comparisons, measurements, runner.results), runner.results.code)
    return int(runner.failed)


def _names(rows: str | None) -> list[str]:
    """Returns the rows that were asked for: those of the page if none were."""
    if rows == _ALL:
        return [*COMPARISONS, *MEASUREMENTS]
    return [name.strip() for name in rows.split(",")] if rows else [*PAGE]


def _print_minutes(names: Sequence[str], minutes: Mapping[str, float]) -> None:
    """Prints how long the rows take with all their records, so that the time for them can be found."""
    for name in names:
        print(f"{name}: about {minutes[name]:.1f} minutes" if name in minutes else f"{name}: not known how long")
    known = "together" if all(name in minutes for name in names) else "those that are known together"
    print(f"{known}: about {sum(minutes.values()):.1f} minutes, less what is measured already", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--rows", help=f"some of {', '.join([*COMPARISONS, *MEASUREMENTS])}, with commas; or {_ALL}; else the page's"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="times as many records as the data sets say")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long each sustained row is watched")
    parser.add_argument("--into", type=Path, default=Path("build/bench"), help="results.json there is gone on with")
    parser.add_argument("--docs", action="store_true", help="also put table, plots and results into docs/performance")
    options = parser.parse_args()
    unknown = set(_names(options.rows)) - {*COMPARISONS, *MEASUREMENTS}
    if unknown:
        parser.error(f"--rows: there is no {', '.join(sorted(unknown))}; --help lists all")
    if options.scale <= 0:
        parser.error(f"--scale: {options.scale:g} times as many records are none")
    if options.docs and (options.rows or options.scale != 1):
        parser.error("--docs: the page has all of its rows, with all their records; leave out --rows and --scale")
    return options


if __name__ == "__main__":
    sys.exit(main())
