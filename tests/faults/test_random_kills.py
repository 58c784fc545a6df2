"""Kills at random times under load: FAULT_KILLS of them, one after the other, with a verdict every ten."""

from __future__ import annotations

import os
import random
from typing import Final

import pytest

from tests.faults.cases import Cases
from tests.faults.scenario import BUSY

KILLS: Final = int(os.environ.get("FAULT_KILLS", "100"))
SEED: Final = int(os.environ.get("FAULT_SEED", "5"))
LONGEST_S: Final = 20.0
"""From a start: what it takes to start, take over and publish, and then a while of everything."""
VERDICT_EVERY: Final = 10
LOCAL: Final = (250_000, -1, 500)
"""publish.local.max.records of one life after the other: here, in Spark's tasks, and by turns."""


@pytest.mark.timeout(120 * max(KILLS, 10))
def test_random_kills_under_load(cases: Cases) -> None:
    """SIGKILL of all processes at random times after a start: nothing is lost and nothing is sent twice."""
    chance = random.Random(SEED)
    with cases.case(f"{KILLS} random SIGKILLs of all", "any time", BUSY) as case:
        scenario = case.scenario
        case.strikes()
        for number in range(1, KILLS + 1):
            scenario.deployment.write(publish_local_max_records=LOCAL[number % len(LOCAL)])
            worker = scenario.start()
            scenario.rest(chance.uniform(0.5, LONGEST_S))
            assert worker.alive, worker.tail()
            worker.kill()
            if number % VERDICT_EVERY == 0 or number == KILLS:
                case.strikes()
                scenario.start()
                case.recovers()
                assert case.violations() == []
                scenario.clear()
        case.outcome = f"nothing lost, nothing twice, seed {SEED}"
