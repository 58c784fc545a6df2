"""What files hold of a partition adds up to a run."""

from __future__ import annotations

from msgspec.structs import replace

from compactor.model.log import RunFile
from compactor.runs.file_stats import FileStats, level0_run


def test_a_new_run_adds_up_what_its_files_hold() -> None:
    """Counts are sums, the largest timestamp is that of all, and it ages from the smallest that says anything."""
    file = RunFile(path="a", first=0, last=4, records=3, bytes=30, file_bytes=40, sha256="0")
    one = FileStats(topic="t", partition=0, file=file, tombstones=2, rejected=1, max_timestamp=70, min_timestamp=50)
    other = FileStats(topic="t", partition=0, file=file, tombstones=3, rejected=4, max_timestamp=60, min_timestamp=40)
    found = level0_run(0, 5, (one, other), 100)
    assert (found.records, found.bytes, found.tombstones, found.rejected) == (6, 60, 5, 5)
    assert (found.max_timestamp, found.oldest_ms, found.arrived_ms, found.folded) == (70, 40, 100, False)
    silent = level0_run(0, 5, (replace(one, min_timestamp=None, max_timestamp=-1),), 100)
    assert (silent.max_timestamp, silent.oldest_ms) == (-1, 100)
    assert level0_run(0, 5, (), 100).max_timestamp == -1
