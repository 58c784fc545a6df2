"""What is kept of logs in two passes, and that the second is held to what the first has seen."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import DamagedFileError, FoldError
from compactor.fold import in_memory, two_pass
from compactor.fold.memory_budget import OffsetMapBudget
from compactor.fold.two_pass import FileScan
from compactor.model import record
from compactor.runs.scan import OffsetRange, between, files_in_order
from compactor.storage.local import LocalStorage
from tests.support.engine import Row, ingested, new_state, row, with_range_reports

BUDGET = OffsetMapBudget(100, 10_000)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def filled(storage: LocalStorage) -> list[OffsetRange]:
    """Two partitions of 40 offsets in two runs, a file of each for both."""
    chance, state = random.Random(3), new_state(dict.fromkeys(range(2), 0))
    for lo, hi in ((0, 20), (20, 40)):
        rows: list[Row] = [
            row(partition, offset, b"k%d" % chance.randrange(9), b"v", rejected=chance.choice([None, None, "odd"]))
            for offset in range(lo, hi)
            for partition in range(2)
        ]
        state = ingested(storage, state, [with_range_reports(rows, dict.fromkeys(range(2), (lo, hi)))])
    return [between(log, 3, 38) for log in state.logs]


def one_log(storage: LocalStorage, part: OffsetRange) -> FileScan:
    return FileScan(storage=storage, ranges=[part], paths=files_in_order([part]) or ())


@pytest.mark.parametrize("budget", [BUDGET, OffsetMapBudget(4, 10_000)], ids=["one class", "several"])
def test_two_passes_leave_what_one_process_would_hold(storage: LocalStorage, budget: OffsetMapBudget) -> None:
    """The same records in the same order as the fold of what is in memory, rejected ones in their place."""
    ranges = filled(storage)
    found = two_pass.latest(storage, ranges, budget)
    files = in_memory.load(storage, ranges)
    assert found is not None
    assert files is not None
    wanted = (batch.select(record.RUN.names) for batch in in_memory.batches(in_memory.latest(files, ranges)))
    rows = [one for batch in found for one in batch.select(record.RUN.names).to_pylist()]
    assert rows == [one for batch in wanted for one in batch.to_pylist()]
    assert any(one["rejected"] for one in rows)


@pytest.mark.parametrize("more", [-1, 1])
def test_other_rows_than_at_first_are_a_defect(storage: LocalStorage, more: int) -> None:
    """As the answers of the first pass would be those of other rows."""
    scan = one_log(storage, filled(storage)[0])
    which = two_pass.build_offset_map(scan, BUDGET)
    assert which is not None
    with pytest.raises(FoldError, match=f"{len(which) + more} records"):
        list(two_pass.clean_into(scan, pa.array(np.resize(which.to_numpy(zero_copy_only=False), len(which) + more))))


def test_a_footer_that_is_damaged_between_the_passes_is_seen(storage: LocalStorage) -> None:
    """With other statistics in it a row group would be left out, and nobody would know."""
    scan = one_log(storage, filled(storage)[0])
    which = two_pass.build_offset_map(scan, BUDGET)
    assert which is not None
    data = bytearray(storage.read(scan.paths[1]))
    data[-20] ^= 1
    storage.delete(scan.paths[1])
    storage.write(scan.paths[1], bytes(data))
    with pytest.raises(DamagedFileError):
        list(two_pass.clean_into(scan, which))


def test_offsets_that_fall_are_not_sent(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever orders files wrongly keeps wrong records, and positions would go back."""
    ranges = filled(storage)
    monkeypatch.setattr(two_pass, "files_in_order", lambda parts: tuple(reversed(files_in_order(parts) or ())))
    found = two_pass.latest(storage, ranges, BUDGET)
    assert found is not None
    with pytest.raises(FoldError, match="do not rise"):
        list(found)


@pytest.mark.parametrize("off", [-1, 1])
def test_what_is_read_is_compared_with_what_the_catalog_counts(storage: LocalStorage, off: int) -> None:
    """One record fewer, or one more, than a file was written with is a defect, though every checksum is right."""
    part = filled(storage)[0]
    run = part.runs[0]
    miscounted = replace(run, files=(replace(run.files[0], records=run.files[0].records + off), *run.files[1:]))
    scan = one_log(storage, replace(part, start=0, end=40, runs=(miscounted, *part.runs[1:])))
    with pytest.raises(FoldError, match=rf"has read 40 of {40 + off} records of t-0"):
        two_pass.build_offset_map(scan, BUDGET)
    with pytest.raises(FoldError, match=rf"has read 40 of {40 + off} records of t-0"):
        list(two_pass.read_all(scan))
