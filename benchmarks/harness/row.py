"""The two kinds of rows of the table: a comparison of two programs, and measured values of one worker by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from benchmarks.harness.process import Used

HEAP: Final = "2g"
"""Heap of each peer that runs on a JVM; a worker's is 1 GiB by itself."""


class MissingError(Exception):
    """A program cannot run on this machine; str() is the reason."""


class Peer(Protocol):
    """A program that is measured. `name` is its name in tables.

    One that commits seldom may have `starts_as`, the same program with frequent commits: see `starting`.
    """

    name: str

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """Runs it from its start until it has processed all of `topic`, with its files in `folder`.

        Raises:
            MissingError: it cannot run on this machine.
        """
        ...


class Comparison(Struct, frozen=True):
    """Records per second of `ours` over those of `other` on data set `data`, from the command to committed output.

    The ratio has to be at least `must`; `aim` is the goal. The ratio without the programs' starts is shown beside it.
    A row that takes long may be content with `rounds` rounds.
    """

    id: str
    what: str
    data: str
    ours: Peer
    other: Peer
    must: float
    aim: float
    rounds: int | None = None


class Measurement(Struct, frozen=True):
    """Values by name that `measure` takes, given the bootstrap servers of a broker of its own.

    `limits` has for each value the most that it may be, and the goal; `at_least` the least, 0 if it is only shown.
    `same_as` names the measurement whose rounds have these values too. Without `broker` the function gets an empty
    string. It runs in a process of its own, and multiplies its numbers of records by `datasets.scale()`. `beside` names
    two values, ours and another program's, that the table shows next to the first limited one.
    """

    id: str
    what: str
    limits: Mapping[str, tuple[float, float]]
    measure: Callable[[str], dict[str, float]]
    at_least: Mapping[str, tuple[float, float]] = {}
    same_as: str = ""
    broker: bool = True
    beside: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The id of the measurement whose rounds have its values."""
        return self.same_as or self.id


def starting(peer: Peer) -> Peer:
    """Returns the program whose run on a few records is the start of `peer`: itself, or what it `starts_as`.

    Where commits are far apart such a run is mostly waiting for the first one, which the run on all records has too:
    to take it off there would be to give it away.
    """
    found: Peer = getattr(peer, "starts_as", peer)
    return found


def run_peer(peer: Peer, bootstrap: str, topic: str) -> Used:
    """Runs `peer` on `topic` in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        return peer.run(bootstrap, topic, Path(folder))


Row = TypeVar("Row", Comparison, Measurement)


def by_id(rows: Iterable[Row]) -> dict[str, Row]:
    """Returns `rows` by their ids, in their order. Raises ValueError if two have the same: results are kept by it."""
    rows_by_id: dict[str, Row] = {}
    for row in rows:
        if row.id in rows_by_id:
            raise ValueError(f"two rows are called {row.id}: {rows_by_id[row.id].what!r} and {row.what!r}")
        rows_by_id[row.id] = row
    return rows_by_id
