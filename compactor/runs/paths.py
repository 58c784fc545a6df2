"""Names run files by the job that makes them: once the job is over, no commit can name its files any more.

    runs/<epoch>-<job>-<random>.parquet     records
    runs/<epoch>-<job>-<random>.index       the index of their keys

A job is a fold's, or a micro-batch's: `<engine>.<number>`, numbers rising within one run of the engine.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from compactor.digits import whole

RUNS: Final = "runs"
INDEX: Final = "index"
"""The kind of an index file."""
_FILE: Final = re.compile(rf"{RUNS}/(\d+)-([^-/]+)-[^/]+")


def job_of(path: str) -> tuple[int, str] | None:
    """Returns epoch and job that made a run file; None if the name is not one of ours."""
    match = _FILE.fullmatch(path)
    return (int(match[1]), match[2]) if match else None


def prefix(epoch: int, job: str) -> str:
    """Returns what the names of all files of a job begin with."""
    return f"{epoch}-{job}"


def is_index(path: str) -> bool:
    """Returns whether a file of a job is an index."""
    return path.endswith(f".{INDEX}")


def file_name(begins: str, kind: str = "parquet") -> str:
    """Returns the name of a new file of that `kind` that begins with a job's `prefix`."""
    return f"{begins}-{secrets.token_hex(8)}.{kind}"


def numbered(begins: str, number: int) -> str:
    """Returns the prefix of the files of micro-batch `number`; `begins` is `<epoch>-<engine>`, of one engine's run."""
    return f"{begins}.{number}"


class RunningBatches(Struct, frozen=True):
    """The micro-batches of the engine `engine_id` of which a commit may still name files: those above `done`."""

    engine_id: str
    done: int = 0

    def __contains__(self, job: object) -> bool:
        return _number(self.engine_id, str(job)) > self.done

    def after(self, paths: Iterable[str]) -> RunningBatches:
        """Returns the batches under way once the micro-batch with files at `paths` is in the catalog."""
        numbers = (_number(self.engine_id, job[1]) for path in paths if (job := job_of(path)))
        return RunningBatches(self.engine_id, max((self.done, *numbers)))


def _number(engine_id: str, job: str) -> int:
    """Returns the number of a micro-batch's job of the engine `engine_id`; -1 for every other job."""
    of, _, number = job.partition(".")
    read = whole(number) if of == engine_id else None
    return -1 if read is None else read
