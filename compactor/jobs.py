"""Which job made a run file: its name says so, and when no commit can name it any more.

    runs/<epoch>-<job>-<random>.parquet

A job is a fold's, or a micro-batch's: `<life>.<number>`, numbers rising within a life of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

RUNS: Final = "runs"
_FILE: Final = re.compile(rf"{RUNS}/(\d+)-([^-/]+)-[^/]+")


def job_of(path: str) -> tuple[int, str] | None:
    """Epoch and job that made a run file; None where the name is not one of ours."""
    found = _FILE.fullmatch(path)
    return (int(found[1]), found[2]) if found else None


def numbered(prefix: str, number: int) -> str:
    """The prefix of the files of micro-batch `number`, from the `<epoch>-<life>` of its life."""
    return f"{prefix}.{number}"


class UnderWay(Struct, frozen=True):
    """The micro-batches of `life` whose files may still be named: those numbered above `done`."""

    life: str
    done: int = 0

    def __contains__(self, job: object) -> bool:
        life, _, number = str(job).partition(".")
        return life == self.life and number.isdigit() and int(number) > self.done

    def after(self, paths: Iterable[str]) -> UnderWay:
        """What is under way once the micro-batch with files at `paths` is in the catalog."""
        jobs = [found[1] for path in paths if (found := job_of(path))]
        numbers = [int(job.partition(".")[2]) for job in jobs if job in self]
        return UnderWay(self.life, max(numbers, default=self.done))
