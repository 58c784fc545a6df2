"""The run that class archives are made from: without it Spark starts as slowly as before, and only one line says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from compactor.model.record import RUN
from connectors.dev.cds_training import fold_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_the_training_run_reads_writes_and_folds(spark: SparkSession, tmp_path: Path) -> None:
    """It goes through whatever columns source and runs have now."""
    fold_once(spark, tmp_path)
    written = sorted(tmp_path.glob("*.parquet"))
    assert len(written) == 2
    assert pq.read_schema(written[0]).names == RUN.names
