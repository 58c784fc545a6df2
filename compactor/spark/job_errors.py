"""Decides what an error of a Spark job says of the job: that it was cancelled, or that a process of it has ended.

Decided by classes, and by the beginning of what Spark itself says, not by a search in a text. An error's text may
quote a record, so a producer could make any error look like a cancelled job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from compactor.errors import OutOfRoomError
from compactor.spark.errors import chain, is_out_of_room

_SPARK: Final = "SparkException"
"""Java's classes go by their own names here, without their packages."""
_NETWORK: Final = "Py4JNetworkError"
"""By its name, so that nothing of Spark is loaded to look at an error."""
_LONGEST_CHAIN: Final = 20
"""How many causes of a Java exception are looked at. Spark's have three or four; each costs some calls to the JVM."""
_INTERRUPTED: Final = frozenset({"InterruptedException", "ClosedByInterruptException", "TaskKilledException"})
_OUT_OF_MEMORY: Final = frozenset({"OutOfMemoryError", "SparkOutOfMemoryError"})
_JOB_CANCELLED: Final = re.compile(r"\[SPARK_JOB_CANCELLED\] |Job \d+ cancelled ")
_STOPPED: Final = re.compile(r"Cannot call methods on a stopped SparkContext|SparkContext has been shutdown")
_WORKER_ENDED: Final = "Python worker exited unexpectedly"
_DISK_FULL: Final = "No space left on device"
"""What the system says for ENOSPC. Java has no class for it; the texts of these classes quote no record."""
_OF_DISKS: Final = frozenset({"IOException", "FileSystemException", "FSError"})
_LOST_TASK: Final = re.compile(
    r"Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times?, most recent failure: "
    r"Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(\S+ executor \w+\): ([\w.$]+)(?:: ([^\n]*))?"
)
"""How Spark begins to tell of a task that failed, before it quotes the task's error: class and first line of that. The
error itself is the cause, unless an executor could not send it."""


class _Thrown(Struct, frozen=True):
    """A Java exception: its class, and what it says."""

    kind: str
    said: str


def is_cancelled(error: BaseException) -> bool:
    """Returns whether `error` says that the job was cancelled, or that Spark's JVM is gone: the job is no cause."""
    try:
        return any(_is_network(link) or any(map(_cancels, _thrown(link))) for link in chain(error))
    except Exception as gone:
        if not any(map(_is_network, chain(gone))):
            raise
        return True  # the JVM that could say more of the error has ended


def is_process_failure(error: BaseException) -> bool:
    """Returns whether `error` says that a process of the job died, or memory or disk was full: never a damaged file.

    Spark's JVM reads the runs and names what it cannot read; other tasks read only what its checksum has proved.
    """
    try:
        return any(
            isinstance(link, OutOfRoomError) or is_out_of_room(link) or any(map(_ends_process, _thrown(link)))
            for link in chain(error)
        )
    except Exception as gone:
        if not any(map(_is_network, chain(gone))):
            raise
        return False


def _cancels(thrown: _Thrown) -> bool:
    if thrown.kind == _SPARK:
        return _JOB_CANCELLED.match(thrown.said) is not None
    if thrown.kind == "IllegalStateException":
        return _STOPPED.match(thrown.said) is not None
    return thrown.kind in _INTERRUPTED


def _ends_process(thrown: _Thrown) -> bool:
    if thrown.kind == _SPARK:
        return thrown.said.startswith(_WORKER_ENDED)
    return thrown.kind in _OUT_OF_MEMORY or (thrown.kind in _OF_DISKS and thrown.said.endswith(_DISK_FULL))


def _is_network(error: BaseException) -> bool:
    return isinstance(error, ConnectionError) or any(kind.__name__ == _NETWORK for kind in type(error).__mro__)


def _thrown(error: BaseException) -> Iterator[_Thrown]:
    """Yields the Java exception that Py4J has raised `error` for, then its causes; none for any other error.

    Py4J tells of it by an object of the JVM's, which is asked. Raises what Py4J raises if the JVM has ended.
    """
    for java in islice(_causes(getattr(error, "java_exception", None)), _LONGEST_CHAIN):
        thrown = _Thrown(_own_name(java.getClass().getName()), str(java.getMessage() or ""))
        yield thrown
        if thrown.kind == _SPARK and (lost := _LOST_TASK.match(thrown.said)):
            yield _Thrown(_own_name(lost[1]), lost[2] or "")


def _own_name(kind: str) -> str:
    return kind.rpartition(".")[2]


def _causes(java: Any) -> Iterator[Any]:
    while java is not None:
        yield java
        java = java.getCause()
