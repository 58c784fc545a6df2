"""All runs in one JSON file, with the machine they ran on: measuring that was broken off goes on from there."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct

from benchmarks.harness.process import Used


class Run(Struct, frozen=True, kw_only=True):
    """One program of one round of a row. `records`: how many there were; one means that its start was measured."""

    row: str
    program: str
    round: int
    records: int
    used: Used


class Measured(Struct, frozen=True, kw_only=True):
    """One round of a figure: its values by name."""

    figure: str
    round: int
    values: dict[str, float]


class Machine(Struct, frozen=True, kw_only=True):
    """What the figures were measured on."""

    cores: int
    memory_bytes: int
    system: str
    python: str
    pyspark: str
    librdkafka: str


class Results(Struct, kw_only=True):
    """Everything that was measured so far.

    `missing`: programs that cannot run here, and why; `notes`: processes that were ended by a signal and what failed;
    `scale`: how many times as many records there were as the data sets say.
    """

    machine: Machine
    scale: float = 1.0
    runs: list[Run] = []
    measured: list[Measured] = []
    missing: dict[str, str] = {}
    notes: list[str] = []

    def of(self, row: str, program: str, *, starts: bool = False) -> list[Run]:
        """The runs of a program in a row: on its data, or those of one record."""
        return [one for one in self.runs if (one.row, one.program) == (row, program) and (one.records == 1) is starts]

    def values(self, figure: str, name: str) -> list[float]:
        """What was measured of a figure under that name."""
        return [one.values[name] for one in self.measured if one.figure == figure and name in one.values]

    def names(self, figure: str) -> list[str]:
        """What has a value in any round of a figure, in the order in which it came."""
        return list(dict.fromkeys(name for one in self.measured if one.figure == figure for name in one.values))

    def seconds(self, row: str, program: str) -> float | None:
        """The median time for the data, without the median start; None where there is none."""
        whole = self.of(row, program)
        if not whole:
            return None
        return _median(whole) - _median(self.of(row, program, starts=True))


def machine() -> Machine:
    """This one."""
    import confluent_kafka

    return Machine(
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        system=platform.platform(),
        python=platform.python_version(),
        pyspark=version("pyspark"),
        librdkafka=confluent_kafka.libversion()[0],
    )


def load(file: Path, scale: float) -> Results:
    """What `file` holds; empty where there is none. Raises ValueError where it was measured at another scale."""
    if not file.exists():
        return Results(machine=machine(), scale=scale)
    found = msgspec.json.decode(file.read_bytes(), type=Results)
    if found.scale != scale:
        raise ValueError(f"{file} was measured with --scale {found.scale:g}: give that, or another folder by --into")
    return found


def save(file: Path, results: Results) -> None:
    """Replaces `file` as a whole."""
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1))
    fresh.replace(file)


def _median(runs: Iterable[Run]) -> float:
    return statistics.median([one.used.seconds for one in runs] or [0.0])
