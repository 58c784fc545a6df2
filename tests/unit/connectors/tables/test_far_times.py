"""Dates and times that Python has not, such as PostgreSQL's `infinity`, in tables."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors.tables.columns import far_times
from tests.support.tables import Tables, row

MICROS = pa.timestamp("us", "UTC")
DAYS = pa.array([2**31 - 1, 0, -(2**31)], pa.int32()).view(pa.date32())
TIMES = pa.array([9_223_372_036_825_200_000, 0, -(2**62)], pa.int64()).view(MICROS)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_takes_dates_that_python_has_not(kind: str, tmp_path: Path) -> None:
    """At any depth; the bounds of other columns are known all the same."""
    tables = Tables(kind, tmp_path)
    rows = pa.Table.from_pylist([row(place, "k") for place in range(3)])
    rows = rows.append_column("day", DAYS).append_column("at", TIMES)
    rows = rows.append_column("in", pa.StructArray.from_arrays([DAYS, TIMES], ["day", "at"]))
    rows = rows.append_column("days", pa.ListArray.from_arrays([0, 1, 2, 3], DAYS))
    version = tables.version("far", [[]], rows.schema)
    pq.write_table(rows, tmp_path / "c" / "t" / "far" / "0.parquet")
    tables.tables.commit(version)
    read = tables.delta().to_pyarrow_table() if kind == "delta" else tables.iceberg().scan().to_arrow()
    assert read["day"].combine_chunks().equals(DAYS)
    assert read["at"].combine_chunks().equals(TIMES)
    if kind == "iceberg":
        (task,) = tables.iceberg().scan().plan_files()
        assert len(task.file.lower_bounds) == 4  # of name, n, partition and offset


def test_far_times_are_told_by_their_paths() -> None:
    """The first moment of year 1 and the last of year 9999 are no such times."""
    edges = pa.array([datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)], MICROS)
    far = pa.array([253_402_300_800_000_000, None], pa.int64()).view(MICROS)
    assert list(far_times(pa.table({"edges": edges, "far": far, "none": pa.nulls(2, pa.date32())}))) == ["far"]
    deep = pa.StructArray.from_arrays([pa.StructArray.from_arrays([DAYS], ["day"])], ["b"])
    assert list(far_times(pa.table({"a": deep}))) == ["a.b.day"]
