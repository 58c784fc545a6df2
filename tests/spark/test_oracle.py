"""Histories by chance on the real engine and Spark, held against plain dicts and docs/protocol.md after every step.

ORACLE_SEEDS names them: `0-99`, or `17` for one alone. tests/unit/compactor/test_histories.py
runs the same without Spark.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from tests.support.oracle.histories import history
from tests.support.oracle.regressions import NAMES, regressions
from tests.support.oracle.runner import run
from tests.support.oracle.steps import FoldMethod

LENGTH: Final = 30
_FIRST, _, _LAST = os.environ.get("ORACLE_SEEDS", "0").partition("-")
_NAMED: Final = range(int(_FIRST), int(_LAST or _FIRST) + 1)
SEEDS: Final = _NAMED if "ORACLE_SEEDS" in os.environ else [0, pytest.param(1, marks=pytest.mark.long)]


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """Spark, set up for queries over a few records each."""
    names = {"spark.sql.shuffle.partitions": "1"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, known in before.items():
        spark.conf.set(name, known or "")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_history_keeps_the_promises(quick: SparkSession, seed: int) -> None:
    """Whatever happens to a connector, and in whatever order, every promise holds after every step."""
    run(history(seed, LENGTH), quick)


@pytest.mark.parametrize("fold_method", [FoldMethod.PASSES, FoldMethod.SPARK])
@pytest.mark.parametrize("name", NAMES)
def test_what_was_once_wrong_stays_right(quick: SparkSession, name: str, fold_method: FoldMethod) -> None:
    """Each of these histories once broke a promise."""
    run(regressions(fold_method)[name], quick)
