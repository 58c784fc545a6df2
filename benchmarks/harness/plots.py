"""Plots of the results: throughput of each program, and time per record by number of records."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.results import Results
from benchmarks.harness.row import Comparison

_WIDTH = 0.38


def draw(rows: Sequence[Comparison], results: Results, growth: Sequence[tuple[float, float]], into: Path) -> list[Path]:
    """Draws throughput.png and growth.png into the folder `into`, each if there is something to show; returns them.

    `growth` has pairs of millions of records and microseconds per record.
    """
    if find_spec("matplotlib") is None:
        print("There are no plots: matplotlib is not installed (pip install 'keyfold[bench]').")
        return []
    import matplotlib as mpl

    mpl.use("Agg")
    bars = rates(rows, results)
    drawn = []
    if bars:
        drawn.append(_throughput(bars, into / "throughput.png"))
    if len(growth) > 1:
        drawn.append(_growth(growth, into / "growth.png"))
    return drawn


def rates(rows: Sequence[Comparison], results: Results) -> dict[str, list[tuple[str, float]]]:
    """Returns by row (program, records per second) of both programs; leaves out a row that lacks one."""
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


def _throughput(bars: dict[str, list[tuple[str, float]]], file: Path) -> Path:
    from matplotlib import pyplot as plt

    programs = list(dict.fromkeys(program for pair in bars.values() for program, _ in pair))
    figure, axis = plt.subplots(figsize=(9, 1 + 0.7 * len(bars)), layout="constrained")
    for program in programs:
        own = [
            (row - _WIDTH / 2 + _WIDTH * place, rate / 1e6)
            for row, pair in enumerate(bars.values())
            for place, (name, rate) in enumerate(pair)
            if name == program
        ]
        drawn = axis.barh([where for where, _ in own], [rate for _, rate in own], _WIDTH, label=program)
        axis.bar_label(drawn, [f"{rate:.2f}" for _, rate in own], padding=3, fontsize=8)
    axis.set_yticks(range(len(bars)), list(bars))
    axis.invert_yaxis()
    axis.margins(x=0.12)
    axis.set_xlabel("million records/s, from the command to committed output")
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
