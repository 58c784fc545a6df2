"""Table and plot of a soak's samples: whether memory, threads, files and storage stay flat.

Flat: the median of the last quarter is at most a tenth above that of the second. The first quarter is left out: the
JVM's heap and the files that wait for their first vacuum grow in it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MIB: Final = 1024 * 1024
GROWTH: Final = 1.1
SMALL: Final = 5.0
"""A series that ends below this (MiB, threads or files) does not count as growth."""

Note = Mapping[str, Any]


class Series(NamedTuple):
    """One value over time."""

    name: str
    panel: str
    values: Sequence[float]

    @property
    def early(self) -> float:
        """Median of the second quarter."""
        quarter = len(self.values) // 4
        return statistics.median(self.values[quarter : 2 * quarter])

    @property
    def late(self) -> float:
        """Median of the last quarter."""
        return statistics.median(self.values[-(len(self.values) // 4) :])

    @property
    def flat(self) -> bool:
        """Whether it did not grow."""
        return self.late <= max(self.early * GROWTH, SMALL)


def write(notes: Path, into: Path) -> bool:
    """Prints the table, writes it and soak.png to the folder `into`; returns whether everything is flat.

    Raises ValueError where there are less than 16 notes.
    """
    read = [json.loads(line) for line in notes.read_text(encoding="utf-8").splitlines()]
    if len(read) < 16:
        raise ValueError(f"{notes} has {len(read)} notes, and 16 are the least that have quarters.")
    found = series(read)
    text = table(found, read)
    print(text)
    (into / "soak.md").write_text(text + "\n", encoding="utf-8")
    _plot(found, [note["seconds"] / 60 for note in read], into / "soak.png")
    return all(one.flat for one in found)


def series(notes: Sequence[Note]) -> list[Series]:
    """Returns the series of `notes` that should stay flat."""
    roles = sorted({role for note in notes for role in note["processes"]})
    folders = sorted({folder for note in notes for folder in note["store"]})

    def used(role: str, what: str) -> Callable[[Note], float]:
        return lambda note: note["processes"].get(role, {}).get(what, 0)

    def stored(folder: str, what: str) -> Callable[[Note], float]:
        return lambda note: note["store"].get(folder, {}).get(what, 0)

    def over(get: Callable[[Note], float], unit: int = 1) -> list[float]:
        return [get(note) / unit for note in notes]

    return [
        *(Series(role, "memory, MiB", over(used(role, "memory"), MIB)) for role in roles),
        *(Series(role, "threads", over(used(role, "threads"))) for role in roles),
        *(Series(role, "open files", over(used(role, "open_files"))) for role in roles),
        *(Series(folder, "files in the store", over(stored(folder, "files"))) for folder in folders),
        *(Series(folder, "bytes in the store, MiB", over(stored(folder, "bytes"), MIB)) for folder in folders),
    ]


def table(found: Sequence[Series], notes: Sequence[Note]) -> str:
    """Renders the medians of the second and of the last quarter of every series."""
    last = notes[-1]
    behind = statistics.median(note["behind"] for note in notes)
    head = (
        f"{last['seconds'] / 60:.0f} minutes, {last['records']:,} records, "
        f"{_connectors(last)}one worker (epoch {last['epoch']}); "
        f"not yet published at a look: {behind:.0f} records (median), {max(note['behind'] for note in notes)} (most)."
    )
    rows = [
        f"| {one.panel} | {one.name} | {one.early:,.1f} | {one.late:,.1f} | {'yes' if one.flat else '**no**'} |"
        for one in found
    ]
    return "\n".join([head, "", "| what | of | second quarter | last quarter | flat |", "|---|---|---|---|---|", *rows])


def _connectors(note: Note) -> str:
    count = note.get("connectors", 1)
    return f"{count} connectors in " if count > 1 else ""


def _plot(found: Sequence[Series], minutes: Sequence[float], file: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    panels = list(dict.fromkeys(one.panel for one in found))
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 2.4 * len(panels)), sharex=True, layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        for one in (one for one in found if one.panel == panel):
            axis.plot(minutes, one.values, label=one.name, linewidth=1.2)
        axis.set_ylim(bottom=0)
        axis.set_title(panel, loc="left", fontsize=10)
        axis.legend(fontsize=8, ncols=3, frameon=False, loc="lower right")
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    figure.savefig(file, dpi=110)
    plt.close(figure)
