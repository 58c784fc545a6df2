"""How many records a publish has left out, told from the metadata of files."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from compactor.model.log import PartitionLog
from compactor.model.publish_plan import PublishResult, PublishTarget
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from compactor.publish.measures import SupersededCount
from tests.support.logs import log, run

FILES = log(run(0, 10, 50), run(10, 20, 50))


def added(
    count: SupersededCount, start: int, result: PublishResult, kept: PartitionLog = FILES, output: str | None = "o"
) -> int:
    target = PublishTarget(topic="t", partition=0, bucket=0, output=output, start=start, end=result.end)
    return count.add(CatalogState(logs=(kept,)), [target], [result])


def sent(end: int, records: int, rejected: int = 0, refused: int = 0) -> PublishResult:
    return PublishResult(topic="t", partition=0, end=end, records=records, rejected=rejected, refused=refused)


@pytest.mark.parametrize(
    ("publishes", "counted"),
    [
        ([(10, 4)], [6]),
        ([(10, 10)], [0]),
        ([(4, 3), (10, 4)], [0, 3]),
        ([(4, 4), (8, 4), (10, 0)], [0, 0, 2]),
        ([(10, 4), (20, 9)], [6, 1]),
        ([(15, 6), (20, 5)], [4, 5]),
        ([(5, 5), (15, 6), (20, 5)], [0, 0, 4]),
    ],
    ids=["some", "none", "inside a file", "twice inside", "two files", "across two", "inside, then across"],
)
def test_what_a_fold_left_out_is_counted(publishes: list[tuple[int, int]], counted: list[int]) -> None:
    """Once a file of ten records is sent to its end it is exact; until then no more is said than is certain."""
    count, start, found = SupersededCount(), 0, []
    for end, records in publishes:
        found.append(added(count, start, sent(end, records)))
        start = end
    assert found == counted


def test_a_file_that_was_counted_anew_meanwhile_counts_as_it_was_begun() -> None:
    """A clean counts what is left of a file that was sent in part; what it has folded counts all the same."""
    count = SupersededCount()
    assert added(count, 0, sent(4, 1)) == 0
    left = replace(FILES.runs[0].files[0], first=4, records=6)
    rest = replace(FILES, runs=(run(4, 10, [left]), FILES.runs[1]))
    assert added(count, 4, sent(10, 2), rest) == 7


def test_what_an_earlier_run_has_sent_in_part_is_left_out() -> None:
    """How many of it were sent then is not known; from the next file on it is exact again."""
    count = SupersededCount()
    found = [added(count, start, sent(end, 1)) for start, end in ((4, 6), (6, 10), (10, 20))]
    assert found == [0, 0, 9]


def test_what_was_rejected_or_refused_is_not_superseded() -> None:
    """Neither is sent to the output, and both are counted elsewhere; without an output topic nothing is folded."""
    assert added(SupersededCount(), 0, sent(10, 5, rejected=2, refused=1)) == 2
    assert added(SupersededCount(), 0, sent(10, 0), output=None) == 0


def test_partitions_owe_by_themselves() -> None:
    """What one has sent of a file before its end is not taken from another's."""
    other = replace(FILES, partition=1)
    state, tps = CatalogState(logs=(FILES, other)), (TopicPartition("t", 0), TopicPartition("t", 1))
    targets = [PublishTarget(topic="t", partition=tp.partition, bucket=0, output="o", start=0, end=10) for tp in tps]
    results = [replace(sent(end, 3), partition=tp.partition) for tp, end in zip(tps, (5, 10), strict=True)]
    assert SupersededCount().add(state, targets, results) == 7
