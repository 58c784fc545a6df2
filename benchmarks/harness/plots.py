"""Plots of what was measured: throughput of each program, and what a record costs where there are many."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.results import Results
from benchmarks.rows.keys import costs
from benchmarks.rows.rows import Row

_WIDTH = 0.38


def draw(rows: Sequence[Row], results: Results, into: Path) -> list[Path]:
    """throughput.png and growth.png in the folder `into`, as far as there is something to show; says why not."""
    if find_spec("matplotlib") is None:
        print("There are no plots: matplotlib is not installed (pip install 'keyfold[bench]').")
        return []
    import matplotlib as mpl

    mpl.use("Agg")
    bars, points = rates(rows, results), growth(results)
    drawn = []
    if bars:
        drawn.append(_throughput(bars, into / "throughput.png"))
    if len(points) > 1:
        drawn.append(_growth(points, into / "growth.png"))
    return drawn


def rates(rows: Sequence[Row], results: Results) -> dict[str, list[tuple[str, float]]]:
    """Records a second of each program by row; rows of which one is missing are left out."""
    found = {}
    for row in rows:
        pair = []
        for program in (row.ours.name, row.other.name):
            seconds = results.seconds(row.id, program)
            if seconds is not None and seconds > 0:
                pair.append((program, results.of(row.id, program)[0].records / seconds))
        if len(pair) == 2:
            found[row.id] = pair
    return found


def growth(results: Results) -> list[tuple[float, float]]:
    """Millions of records and the median of the microseconds per record, in this order."""
    rounds = [costs(one.values) for one in results.measured if one.figure == "keys"]
    sizes = sorted({millions for one in rounds for millions in one})
    return [(size, statistics.median(one[size] for one in rounds if size in one)) for size in sizes]


def _throughput(bars: dict[str, list[tuple[str, float]]], file: Path) -> Path:
    from matplotlib import pyplot as plt

    programs = list(dict.fromkeys(program for pair in bars.values() for program, _ in pair))
    figure, axis = plt.subplots(figsize=(9, 1 + 0.7 * len(bars)), layout="constrained")
    for program in programs:
        own = [
            (row - _WIDTH / 2 + _WIDTH * place, rate)
            for row, pair in enumerate(bars.values())
            for place, (name, rate) in enumerate(pair)
            if name == program
        ]
        drawn = axis.barh([where for where, _ in own], [rate for _, rate in own], _WIDTH, label=program)
        axis.bar_label(drawn, [f"{rate:,.0f}" for _, rate in own], padding=3, fontsize=8)
    axis.set_yticks(range(len(bars)), list(bars))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlabel("records/s, without the program's start")
    axis.legend(fontsize=8, frameon=False)
    axis.grid(alpha=0.3, axis="x")
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file


def _growth(points: Sequence[tuple[float, float]], file: Path) -> Path:
    from matplotlib import pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 3.5), layout="constrained")
    axis.plot([size for size, _ in points], [cost for _, cost in points], marker="o")
    axis.set_xscale("log")
    axis.set_xticks([size for size, _ in points], [f"{size:g} M" for size, _ in points], minor=False)
    axis.set_ylim(0, 1.1 * max(cost for _, cost in points))
    axis.set_xlabel("records, each of a key of its own")
    axis.set_ylabel("µs per record, without the start")
    axis.grid(alpha=0.3)
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file
