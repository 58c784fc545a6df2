"""Histories by chance on the real engine, held against plain dicts and docs/protocol.md after every step.

ORACLE_SEEDS names them: `0-99`, or `17` for one alone, which is then made as short as it can be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as hypothesis_settings
from pyspark.sql import SparkSession

from tests.support.oracle import steps
from tests.support.oracle.histories import histories
from tests.support.oracle.oracle import Oracle
from tests.support.oracle.steps import Advance, Fold, Ingest, Rec, Restart, Round, Settings, Tick

LENGTH: Final = 30
_FIRST, _, _LAST = os.environ.get("ORACLE_SEEDS", "0-3").partition("-")
SEEDS: Final = range(int(_FIRST), int(_LAST or _FIRST) + 1)
SHORTEN: Final = (Phase.shrink,) if "ORACLE_SEEDS" in os.environ and not _LAST else ()

ONCE_WRONG: Final[dict[str, list[steps.Any]]] = {
    "a file of two runs is read beyond its own": [
        Restart(Settings(lag=200)),
        Ingest((Rec(0, b"a", b"so large that what comes next is clean enough", time=-500),)),
        Round(),
        Ingest((Rec(0, b"b", b"1", time=-500), Rec(0, b"c", b"large enough for the rest to be counted anew"))),
        Round(),
        Fold(),
        Advance(500),
        Tick(),
        Fold(),
    ],
    "what an overlap has brought twice is counted anew, and read twice": [
        Ingest((Rec(0, b"a", b"so large that what comes next is clean enough"),)),
        Fold(),
        Ingest((Rec(0, b"b", b"1"), Rec(0, b"c", b"2"))),
        Ingest((Rec(0, b"d", b"so large that it hangs on these bytes whether a fold is due"),), again=2),
        Round(),
    ],
}
"""Histories that once broke a promise."""


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


def run(spark: SparkSession, history: list[steps.Any]) -> None:
    with TemporaryDirectory(prefix="keyfold-") as folder:
        Oracle(spark, Path(folder)).run(history)


@pytest.mark.timeout(1200 if SHORTEN else 300)
@pytest.mark.parametrize("number", SEEDS)
def test_every_history_keeps_the_promises(quick: SparkSession, number: int) -> None:
    """Whatever happens to a connector, and in whatever order, every promise holds after every step."""

    @seed(number)
    @given(histories(LENGTH))
    @hypothesis_settings(
        max_examples=2,  # the first has nothing in it
        phases=(Phase.generate, *SHORTEN),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def check(history: list[steps.Any]) -> None:
        run(quick, history)

    check()


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_what_was_once_wrong_stays_right(quick: SparkSession, name: str) -> None:
    """Each of these histories once broke a promise."""
    run(quick, ONCE_WRONG[name])
