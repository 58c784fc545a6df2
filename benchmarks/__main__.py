"""`python -m benchmarks`: every program in turn, three rounds, and a table of ratios."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path

from benchmarks.harness import plots
from benchmarks.harness import results as files
from benchmarks.harness.datasets import SCALE
from benchmarks.harness.measure import Measuring, ended_by_sigterm
from benchmarks.harness.process import ROOT
from benchmarks.harness.table import whole
from benchmarks.rows.every import FIGURES
from benchmarks.rows.rows import ROWS

_DOCS = ROOT / "docs" / "performance"


def main() -> int:
    """Measures what is asked for and not there yet, prints the table and draws the plots; 1 if something failed."""
    ended_by_sigterm()
    asked = _asked()
    os.environ[SCALE] = str(asked.scale)
    file = asked.into / "results.json"
    measuring = Measuring(files.load(file, asked.scale), asked.rounds, file)
    names = asked.rows.split(",") if asked.rows else [*ROWS, *FIGURES]
    rows = [ROWS[name] for name in names if name in ROWS]
    wanted = [FIGURES[name] for name in names if name not in ROWS]
    for row in rows:
        measuring.row(row)
    for figure in wanted:
        measuring.figure(figure)
    text = whole(rows, wanted, measuring.results)
    (asked.into / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    drawn = plots.draw(rows, measuring.results, asked.into)
    if asked.docs:
        _DOCS.mkdir(exist_ok=True)
        for one in drawn:
            shutil.copy(one, _DOCS)
    return int(measuring.failed)


def _asked() -> argparse.Namespace:
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--rows", help=f"some of {', '.join([*ROWS, *FIGURES])}, with commas; all when left out")
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--scale", type=float, default=1.0, help="times as many records as the data sets say")
    options.add_argument("--into", type=Path, default=Path("build/bench"), help="results.json there is gone on with")
    options.add_argument("--docs", action="store_true", help="also copy the plots to docs/performance")
    return options.parse_args()


if __name__ == "__main__":
    sys.exit(main())
