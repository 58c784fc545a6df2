"""Keeps all runs and the machine's facts in one JSON file, from which an interrupted measurement continues."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
import psutil
from msgspec import Struct

from benchmarks.harness.process import Used
from connectors.dev.revision import UNKNOWN, is_exact, revision

_CODE: Final = ("compactor", "connectors", "benchmarks", "constraints.txt")
"""What a figure depends on; pages and tests may change while rows are measured."""


class Run(Struct, frozen=True, kw_only=True):
    """A program's run in one round of a comparison (`row`), from the command until its output is committed.

    A `start` is a run on the row's topic while that has one record in each partition. Files that were written before
    there was this field have starts on a topic with one record.
    """

    row: str
    program: str
    round: int
    records: int
    used: Used
    start: bool = False

    @property
    def is_start(self) -> bool:
        """Whether it shows how long the program takes to start."""
        return self.start or self.records == 1


class Measured(Struct, frozen=True, kw_only=True):
    """The values of one round of the measurement `figure`, by name."""

    figure: str
    round: int
    values: dict[str, float]


class Machine(Struct, frozen=True, kw_only=True):
    """The machine and versions that were measured on."""

    cores: int
    memory_bytes: int
    system: str
    python: str
    pyspark: str
    librdkafka: str


class Results(Struct, kw_only=True):
    """Everything measured so far.

    `missing`: the programs that cannot run here, or measurements that need one, with the reason; `notes`: processes
    that a signal ended, and failures; `scale`: the factor by which numbers of records were multiplied; `minutes`: how
    long sustained rows are watched; `code`: the newest commit that changed what is measured, with a `+` where files
    were changed since.
    """

    machine: Machine
    scale: float = 1.0
    minutes: float = 10.0
    code: str = UNKNOWN
    runs: list[Run] = []
    measured: list[Measured] = []
    missing: dict[str, str] = {}
    notes: list[str] = []

    def of(self, row: str, program: str, *, starts: bool = False) -> list[Run]:
        """Returns the runs of a program in a comparison: on the data set, or with `starts` those of its start."""
        return [one for one in self.runs if (one.row, one.program) == (row, program) and one.is_start is starts]

    def values(self, measurement: str, name: str) -> list[float]:
        """Returns the value `name` of each round of a measurement."""
        return [one.values[name] for one in self.measured if one.figure == measurement and name in one.values]

    def names(self, measurement: str) -> list[str]:
        """Returns the names of all values of a measurement, in the order of their first rounds."""
        return list(dict.fromkeys(name for one in self.measured if one.figure == measurement for name in one.values))

    def seconds(self, row: str, program: str) -> float | None:
        """Returns the median time of the whole run, from the command to committed output; None if there is none."""
        whole = self.of(row, program)
        return _median(whole) if whole else None

    def start(self, row: str, program: str) -> float:
        """Returns the median time of the program's start; 0 if it was not measured."""
        return _median(self.of(row, program, starts=True))


def machine() -> Machine:
    """Returns the facts of this machine."""
    import confluent_kafka

    return Machine(
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        python=platform.python_version(),
        pyspark=version("pyspark"),
        librdkafka=confluent_kafka.libversion()[0],
    )


def code() -> str:
    """Returns the revision of what is measured."""
    return revision(*_CODE)


def load(file: Path, scale: float, commit: str, minutes: float = 10.0) -> Results:
    """Reads `file`; returns empty results of `commit` if there is none.

    Raises:
        ValueError: it was measured at another scale, for another time, or on another state of the code.
    """
    if not file.exists():
        return Results(machine=machine(), scale=scale, minutes=minutes, code=commit)
    found = msgspec.json.decode(file.read_bytes(), type=Results)
    if found.scale != scale:
        raise ValueError(f"{file} was measured with --scale {found.scale:g}: give that, or another folder by --into")
    if found.minutes != minutes:
        raise ValueError(
            f"{file} was measured with --minutes {found.minutes:g}: give that, or another folder by --into"
        )
    if not is_exact(commit):
        raise ValueError(
            f"{file} cannot be gone on with: what is measured now is no commit. Commit it, or move the file"
        )
    if found.code != commit:
        raise ValueError(f"{file} was measured at {found.code}, this is {commit}: move it away")
    return found


def save(file: Path, results: Results) -> None:
    """Replaces `file` atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    fresh.replace(file)


def percentile(values: Sequence[float], share: float) -> float:
    """Returns the value at rank `share` (0 to 1) of the sorted `values`."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _median(runs: Iterable[Run]) -> float:
    return statistics.median([one.used.seconds for one in runs] or [0.0])
