"""Notes the folds that Spark's tasks make in two passes: a case that is about them can see that they were made.

`install` lets tasks fold by `in_order` and `together`, which are pickled by name: each process watches its own folds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from compactor.fold import in_tasks, two_pass

FOLDER: Final = "ways"
VARIABLE: Final = "FAULT_STEPS"
PUBLISH: Final = "publish"
REWRITE: Final = "rewrite"

_in_order, _together, _build = in_tasks.in_order, in_tasks.together, two_pass.build_offset_map


class TwoPasses(NamedTuple):
    """A fold in two passes: the `records` it read, the `keys` it found, and how many of them it might hold at once."""

    records: int
    keys: int
    budget: int

    @property
    def has_spilled(self) -> bool:
        """Whether its keys went to disk."""
        return self.keys > self.budget


def install() -> None:
    """Makes the tasks of this driver note their folds."""
    in_tasks.in_order = in_order  # type: ignore[assignment]
    in_tasks.together = together  # type: ignore[assignment]


def in_order(*args: Any) -> Iterator[pa.RecordBatch] | None:
    """Folds what a publish task sends."""
    return _watched(PUBLISH, lambda: _in_order(*args))


def together(*args: Any) -> Iterator[pa.RecordBatch] | None:
    """Folds what a task of a clean or merge writes."""
    return _watched(REWRITE, lambda: _together(*args))


def read(folder: Path, kind: str) -> list[TwoPasses]:
    """Returns the folds of `kind` that were noted."""
    file = folder / FOLDER / kind
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [TwoPasses(*map(int, line.split())) for line in lines]


def forget(folder: Path) -> None:
    """Removes all notes."""
    for kind in (PUBLISH, REWRITE):
        (folder / FOLDER / kind).unlink(missing_ok=True)


def _watched(kind: str, fold: Callable[[], Iterator[pa.RecordBatch] | None]) -> Iterator[pa.RecordBatch] | None:
    def build(scan: two_pass.FileScan, budget: Any) -> pa.BooleanArray | None:
        found = _build(scan, budget)
        if found is not None:
            _note(kind, TwoPasses(len(found), found.true_count, budget.keys))
        return found

    two_pass.build_offset_map = build
    try:
        return fold()
    finally:
        two_pass.build_offset_map = _build


def _note(kind: str, made: TwoPasses) -> None:
    folder = Path(os.environ[VARIABLE], FOLDER)
    folder.mkdir(exist_ok=True)
    with (folder / kind).open("ab", buffering=0) as file:  # in one write, as tasks share it
        file.write(f"{made.records} {made.keys} {made.budget}\n".encode())
