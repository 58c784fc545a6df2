"""Histories by chance on the real engine, held against plain dicts and docs/protocol.md after every step.

ORACLE_SEEDS names them: `0-99`, or `17` for one alone, which is then made as short as it can be.
"""

from __future__ import annotations

import os
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

LENGTH: Final = 30
_FIRST, _, _LAST = os.environ.get("ORACLE_SEEDS", "0-3").partition("-")
SEEDS: Final = range(int(_FIRST), int(_LAST or _FIRST) + 1)
ALONE: Final = not _LAST and "ORACLE_SEEDS" in os.environ
PHASES: Final = (Phase.explicit, Phase.generate, Phase.shrink) if ALONE else (Phase.explicit, Phase.generate)


@pytest.mark.timeout(1200 if ALONE else 300)
@pytest.mark.parametrize("number", SEEDS)
def test_every_history_keeps_the_promises(spark: SparkSession, number: int) -> None:
    """Whatever happens to a connector, and in whatever order, every promise holds after every step."""

    @seed(number)
    @given(histories(LENGTH))
    @hypothesis_settings(
        max_examples=2,
        database=None,
        deadline=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    def check(history: list[steps.Any]) -> None:
        with TemporaryDirectory(prefix="keyfold-") as folder:
            Oracle(spark, Path(folder)).run(history)

    check()
