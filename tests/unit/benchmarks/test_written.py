from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from benchmarks.rows.kept import Kept
from benchmarks.rows.steady import MINUTE_MS, Steady
from benchmarks.rows.written import by_origin
from compactor.model.record import measure
from compactor.storage.base import FileInfo

LOAD = Steady(records=20, keys=6)


def test_files_of_micro_batches_are_told_from_those_that_replaced_others(tmp_path: Path) -> None:
    """What came in counts as level 0, by the names that it is written under; every other run file as rewritten."""
    kept = Kept(tmp_path, LOAD.partitions, 0)
    for tables in LOAD.tables(1):
        kept.write(tables, 1 << 20, 0)
    found = kept.storage.walk("runs")
    other = FileInfo(path="runs/1-0a1b2c3d-0123456789abcdef.parquet", bytes=7, modified_ms=0)
    assert by_origin([*found, other]) == {"level 0": sum(one.bytes for one in found), "rewritten": 7}


def test_bytes_of_what_came_in_are_counted_as_ratios_count_them(tmp_path: Path) -> None:
    """The bytes of the parts are key and value of every record, uncompressed."""
    tables = next(LOAD.tables(1))
    parts = Kept(tmp_path, LOAD.partitions, 0).write(tables, 1 << 20, 0)
    assert sum(part.file.bytes for part in parts) == sum(map(measure, tables)) == LOAD.records * (12 + 100)


def test_a_steady_load_goes_on_in_offsets_and_time_and_keeps_keys_in_their_partitions() -> None:
    """Each minute continues the offsets of both partitions, within its own minute; no key is in two partitions."""
    minutes = list(LOAD.tables(3))
    for partition in range(LOAD.partitions):
        tables = [tables[partition] for tables in minutes]
        assert [one for table in tables for one in table["offset"].to_pylist()] == list(range(3 * LOAD.each))
        assert all(one.startswith(b"%d-" % partition) for table in tables for one in table["key"].to_pylist())
        assert [pc.max(table["timestamp"]).as_py() // MINUTE_MS for table in tables] == [0, 1, 2]


def test_what_is_taken_in_is_kept_and_published(tmp_path: Path) -> None:
    """After a micro-batch and its publish each log ends, and is published, at the end that was said."""
    kept = Kept(tmp_path, LOAD.partitions, 0)
    for number, tables in enumerate(LOAD.tables(2), 1):
        kept.append(kept.write(tables, 1 << 20, 0), dict.fromkeys(range(LOAD.partitions), number * LOAD.each), 0)
    kept.publish(0)
    assert [(log.end, log.published, len(log.runs)) for log in kept.catalog.state.logs] == [(20, 20, 2)] * 2
