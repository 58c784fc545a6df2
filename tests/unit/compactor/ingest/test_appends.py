from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from compactor.errors import GapError, IngestError
from compactor.ingest.appends import Batch, appends, up_to_holes
from compactor.model.log import Gap, RunFile
from compactor.model.record import RangeRead, TopicPartition
from compactor.model.state import CatalogState, apply
from compactor.runs.file_stats import FileStats
from tests.support.engine import log_of, new_state

TP = TopicPartition("t", 0)


def read(
    lo: int, hi: int, start: int | None = None, records: int = 0, topic_id: str = "id-t", superseded: int = 0
) -> RangeRead:
    start = lo if start is None else start
    return RangeRead(tp=TP, topic_id=topic_id, lo=lo, hi=hi, start=start, records=records, superseded=superseded)


def part(
    first: int, last: int, records: int | None = None, path: str = "runs/f", rejected: int | None = None
) -> FileStats:
    count = last - first + 1 if records is None else records
    file = RunFile(path=path, first=first, last=last, records=count, bytes=10 * count, file_bytes=1, sha256="")
    reason = None if rejected is None else "null key"
    return FileStats(topic="t", partition=0, file=file, first_rejected_offset=rejected, first_rejected_reason=reason)


def after(state: CatalogState, ranges: Sequence[RangeRead], parts: Sequence[FileStats]) -> CatalogState:
    return apply(state, appends(state, Batch(ranges=tuple(ranges), parts=tuple(parts)), now_ms=77))


def at(end: int) -> CatalogState:
    """A log that holds the offsets [0, end)."""
    return after(new_state({0: 0}), [read(0, end)], [])


@pytest.mark.parametrize(
    ("end", "lo", "hi", "taken"),
    [
        (10, 10, 20, (10, 20)),
        (10, 0, 10, None),
        (10, 3, 7, None),
        (10, 3, 20, (10, 20)),
        (10, 10, 10, None),
        (0, 0, 1, (0, 1)),
    ],
)
def test_a_range_is_taken_by_offset(end: int, lo: int, hi: int, taken: tuple[int, int] | None) -> None:
    """Hi ≤ end: already taken; lo ≤ end < hi: the suffix from end."""
    found = appends(at(end), Batch(ranges=(read(lo, hi, records=hi - lo),), parts=(part(lo, hi - 1),) * (hi > lo)), 77)
    assert [(one.start, one.end) for one in found] == ([taken] if taken else [])


@pytest.mark.parametrize(
    ("ranges", "parts", "error"),
    [
        ([read(11, 12)], [], GapError),
        ([read(10, 12), read(13, 14)], [], GapError),
        ([read(10, 12), read(11, 14)], [], IngestError),
        ([read(10, 12, records=3)], [part(10, 11)], IngestError),
        ([read(10, 12, records=1)], [part(12, 12)], IngestError),
        ([read(10, 12, records=3)], [part(10, 12)], IngestError),
        ([read(10, 13, records=3, superseded=1)], [part(10, 12)], IngestError),
        ([read(10, 13, records=3, superseded=1)], [part(12, 12)], IngestError),
        ([read(10, 14, start=12, records=1)], [part(11, 11)], IngestError),
        ([], [part(10, 10)], IngestError),
        ([read(10, 12, topic_id="another")], [], IngestError),
    ],
)
def test_what_does_not_fit_is_refused(
    ranges: list[RangeRead], parts: list[FileStats], error: type[IngestError]
) -> None:
    """A missing, doubled or foreign range, and records that are not those that were read, commit nothing."""
    with pytest.raises(error):
        after(at(10), ranges, parts)


def test_an_unknown_partition_is_refused() -> None:
    """What was read of a partition that the catalog does not know is never taken."""
    with pytest.raises(IngestError, match="not in the catalog"):
        after(new_state({1: 0}), [read(0, 1)], [])


def test_sub_ranges_become_one_run() -> None:
    """What several tasks read of one partition is one run, its files by offset."""
    ranges = [read(20, 30, records=10), read(0, 10, records=10), read(10, 20)]
    log = log_of(after(at(0), ranges, [part(20, 29, path="b"), part(0, 9, path="a")]))
    assert [(run.start, run.end, run.arrived_ms, run.records, run.bytes) for run in log.runs] == [(0, 30, 77, 20, 200)]
    assert [file.path for file in log.runs[0].files] == ["a", "b"]


@pytest.mark.parametrize(("superseded", "end"), [((0, 0), 0), ((2, 0), 0), ((0, 2), 0), ((2, 2), 7)])
def test_a_run_of_which_records_were_left_out_says_so(superseded: tuple[int, int], end: int) -> None:
    """Any of its sub-ranges, also where only a suffix of it is taken: no offset inside it is an end."""
    ranges = [read(10 * one, 10 * one + 10, records=10, superseded=count) for one, count in enumerate(superseded)]
    parts = [part(10 * one + count, 10 * one + 9) for one, count in enumerate(superseded)]
    log = log_of(after(at(end), ranges, parts))
    assert [(run.start, run.end, run.folded) for run in log.runs] == [(end, 20, any(superseded))]


@pytest.mark.parametrize(
    ("ranges", "gaps"),
    [
        ([read(0, 10, start=4)], [Gap(0, 4)]),
        ([read(0, 10, start=10), read(10, 20, start=13)], [Gap(0, 13)]),
        ([read(0, 10, start=10), read(10, 20)], [Gap(0, 10)]),
        ([read(0, 10, start=2), read(10, 20, start=15)], [Gap(0, 2), Gap(10, 15)]),
        ([read(0, 10), read(10, 20, start=20)], [Gap(10, 20)]),
    ],
)
def test_lost_offsets_are_gaps(ranges: list[RangeRead], gaps: list[Gap]) -> None:
    """What was lost before it was read is said exactly, offset by offset, and the log goes on behind it."""
    log = log_of(after(at(0), ranges, []))
    assert (list(log.gaps), log.end) == (gaps, ranges[-1].hi)


def test_a_gap_that_is_known_already_is_not_told_again() -> None:
    """Of a range that overlaps the log, only what is above its end can be lost."""
    log = log_of(after(at(10), [read(0, 20, start=12)], []))
    assert log.gaps == (Gap(10, 12),)


def test_a_suffix_leaves_out_files_below_it() -> None:
    """A suffix keeps only files that reach above the log's end; one across it is kept and trimmed when read."""
    log = log_of(after(at(10), [read(0, 20, records=20)], [part(0, 7, path="a"), part(8, 19, path="b")]))
    assert [(run.start, run.end) for run in log.runs] == [(10, 20)]
    assert [file.path for file in log.runs[0].files] == ["b"]


OTHER = TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("ranges", "kept"),
    [
        ([(0, 10), (10, 30)], [(0, 10), (10, 30)]),
        ([(0, 7), (10, 30)], [(0, 7)]),
        ([(10, 30)], []),
        ([(0, 10), (10, 12), (20, 25)], [(0, 10), (10, 12)]),
        ([], []),
    ],
    ids=["whole", "behind a hole", "not from its start", "cut twice", "nothing"],
)
def test_what_lies_behind_a_hole_is_left_out(ranges: list[tuple[int, int]], kept: list[tuple[int, int]]) -> None:
    """With its files, and by partition: what is left continues the log without a gap, and is not refused."""
    reads = [read(lo, hi, records=hi - lo) for lo, hi in ranges]
    whole = RangeRead(tp=OTHER, topic_id="id-t", lo=3, hi=9, start=3, records=0)
    parts = [part(lo, hi - 1, path=f"runs/{lo}") for lo, hi in ranges]
    found = up_to_holes(Batch(ranges=(*reads, whole), parts=tuple(parts), bytes_read=5), {TP: 0, OTHER: 3})
    assert [(one.lo, one.hi) for one in found.ranges] == [*kept, (3, 9)]
    assert [one.file.path for one in found.parts] == [f"runs/{lo}" for lo, _ in kept]
    state = after(at(0), found.ranges[:-1], found.parts)
    assert log_of(state, 0).end == max((hi for _, hi in kept), default=0)


def test_the_last_record_of_a_batch_says_whether_it_was_late() -> None:
    """A range without records says nothing of it; one whose last record was not late takes it back."""
    late, empty, not_late = (
        replace(read(lo, lo + 1, records=0), late_last=said) for lo, said in ((0, "digest"), (1, None), (2, ""))
    )
    assert log_of(after(at(0), [late], [])).late_last == "digest"
    assert log_of(after(at(0), [late, empty], [])).late_last == "digest"
    assert log_of(after(after(at(0), [late], []), [empty], [])).late_last == "digest"
    assert log_of(after(after(at(0), [late, empty], []), [not_late], [])).late_last is UNSET
    lost = replace(read(1, 2, start=2, records=0), late_last=None)
    assert log_of(after(at(0), [late, lost, not_late], [])).late_last is UNSET
