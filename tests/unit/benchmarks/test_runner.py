"""The order in which a comparison's runs are taken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness import results as files
from benchmarks.harness.datasets import DataSet, first_records
from benchmarks.harness.process import Used
from benchmarks.harness.results import Machine, Results
from benchmarks.harness.row import Comparison, MissingError
from benchmarks.harness.runner import Ground, Runner

MACHINE = Machine(cores=2, memory_bytes=1 << 33, system="a", python="b", pyspark="c", librdkafka="d")


class Stand:
    def __init__(self, name: str, done: list[str], error: Exception | None = None) -> None:
        self.name, self._done, self._error = name, done, error
        self.starts_as = self

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        self._done.append(f"{self.name} on {topic}")
        if self._error is not None:
            raise self._error
        return Used(1.0, 1.0, 1)


class NotedGround:
    """Notes in `done` what would be done, in place of a broker and what fills its topics."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    @contextmanager
    def broker(self) -> Iterator[str]:
        yield "127.0.0.1:1"

    def filled_topic(self, _: str, data: DataSet) -> str:
        self._done.append(f"make own with {data.records}")
        return "own"

    def produce(self, _: str, topic: str, data: DataSet) -> None:
        self._done.append(f"fill {topic} with {data.records}")


def runner(results: Results, rounds: int, folder: Path, done: list[str]) -> Runner:
    noted = NotedGround(done)
    ground = Ground(
        noted.broker, lambda _, function, *arguments: function(*arguments), noted.filled_topic, noted.produce
    )
    return Runner(results, rounds, folder / "results.json", ground)


@pytest.fixture
def done() -> list[str]:
    """What was done, in order."""
    return []


def row(ours: Stand, other: Stand, rounds: int | None = None) -> Comparison:
    return Comparison("row", "what", "64-partitions", ours, other, 1, 2, rounds)


def test_starts_are_measured_on_the_topic_of_the_row(done: list[str], tmp_path: Path) -> None:
    """All starts come before the topic is filled, on that topic with a record in each partition; rounds alternate."""
    peers = Stand("a", done), Stand("b", done)
    measured = runner(Results(machine=MACHINE), 2, tmp_path, done)
    measured.compare(row(*peers))
    turns = ["a on own", "b on own"] * 2
    assert done == ["make own with 64", *turns, "fill own with 10000000", *turns]
    assert [(one.start, one.records) for one in measured.results.runs] == [(True, 64)] * 4 + [(False, 10_000_064)] * 4
    measured.compare(row(*peers))
    assert len(done) == 10


def test_a_start_is_not_the_wait_for_a_late_commit(done: list[str], tmp_path: Path) -> None:
    """What commits seldom has its start measured as what it starts as, and counts under its own name."""
    seldom, measured = Stand("seldom", done), runner(Results(machine=MACHINE), 1, tmp_path, done)
    seldom.starts_as = Stand("often", done)
    measured.compare(row(Stand("a", done), seldom))
    assert done[1:] == ["a on own", "often on own", "fill own with 10000000", "a on own", "seldom on own"]
    assert [one.program for one in measured.results.runs] == ["a", "seldom"] * 2


def test_nothing_is_measured_once_the_code_has_changed(
    done: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each measurement is a new process, which imports the files as they are then."""
    monkeypatch.setattr(files, "code", lambda: "abc+")
    measured = runner(Results(machine=MACHINE, code="abc"), 1, tmp_path, done)
    with pytest.raises(SystemExit, match="was abc when this began, and is abc"):
        measured.compare(row(Stand("a", done), Stand("b", done)))
    assert done == []


def test_a_row_may_be_content_with_fewer_rounds(done: list[str], tmp_path: Path) -> None:
    """A row's own number of rounds is the most; fewer that were asked for count."""
    for asked, rounds, expected in ((3, 1, 1), (1, 2, 1)):
        done.clear()
        peers = Stand("a", done), Stand("b", done)
        runner(Results(machine=MACHINE), asked, tmp_path, done).compare(row(*peers, rounds=rounds))
        assert done.count("a on own") == 2 * expected


def test_a_program_that_is_missing_is_tried_once(done: list[str], tmp_path: Path) -> None:
    """What cannot run here is tried once, noted, and the other one measured."""
    peers = Stand("a", done), Stand("b", done, MissingError("no JDK"))
    measured = runner(Results(machine=MACHINE), 2, tmp_path, done)
    measured.compare(row(*peers))
    assert (done.count("b on own"), done.count("a on own")) == (1, 4)
    assert measured.results.missing == {"b": "no JDK"}


def test_first_records_keep_the_shape() -> None:
    """The records of a start are one for each partition, none of them a tombstone."""
    found = first_records(DataSet(name="x", records=100, partitions=3, tombstones=0.9))
    assert (found.records, found.partitions, found.tombstones) == (3, 3, 0.0)
