"""Files that an older version has written, in Spark's hands; tests/unit has all else about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.oracle.steps import FoldMethod
from tests.support.written.folder import Written, every
from tests.support.written.onward import breaches, go_on

_ALL = every()


@pytest.mark.parametrize(
    "written",
    [
        # The newest is tried each time, as it has every field; unit/test_written_before.py goes on from each.
        pytest.param(written, id=written.folder.name, marks=[] if written is _ALL[-1] else [pytest.mark.long])
        for written in _ALL
    ],
)
def test_spark_goes_on_from_it(written: Written, spark: SparkSession, tmp_path: Path) -> None:
    """Where Spark folds, publishes and copies snapshots, nothing is lost and nothing comes twice either."""
    simulation = written.simulation(tmp_path, spark)
    go_on(simulation, FoldMethod.SPARK)
    assert list(breaches(simulation)) == []
