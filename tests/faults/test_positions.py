"""Positions that others change under a running worker, and a transaction that a dead producer left in the source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Final

import pytest

from tests.faults.cases import Cases
from tests.support.deployment import ROOT, Deployment
from tests.support.group_offsets import commit_like_a_sink, delete_group, reset_offsets
from tests.support.kafka import TIMEOUT_S, end_offsets, wait_until

pytestmark = pytest.mark.timeout(600)

_LEAVES_ONE_OPEN: Final = """
import os, sys
from confluent_kafka import Producer
bootstrap, topic = sys.argv[1:]
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "transaction.timeout.ms": 15000})
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(topic, b"never seen", b"key-0", 0)
producer.flush(30)
os._exit(0)
"""


@pytest.mark.parametrize(
    ("fault", "do"),
    [
        pytest.param("group deleted while running", delete_group, id="deleted"),
        pytest.param("group set back while running", lambda deployment: reset_offsets(deployment, 3), id="set back"),
        pytest.param("Connect sink of the same name", lambda deployment: commit_like_a_sink(deployment, 5), id="sink"),
    ],
)
def test_the_position_is_changed_under_a_running_worker(
    cases: Cases, fault: str, do: Callable[[Deployment], None]
) -> None:
    """Catalog and output say how far it really was: the same worker goes on, and nothing is sent twice."""
    with cases.case(fault, "any time") as case:
        worker = case.scenario.running()
        for _ in range(3):
            case.strikes()
            do(case.scenario.deployment)
            case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


@pytest.mark.parametrize("step", ["publish.begin", "publish.offsets", "publish.before-commit"])
def test_the_position_is_set_back_in_a_transaction(cases: Cases, step: str) -> None:
    """An offset that somebody commits while a transaction is open changes nothing that the output's reader sees."""
    with cases.case("group set back", step) as case:
        worker = case.scenario.meet(step, "sleep:2000")
        case.strikes()
        commit_like_a_sink(case.scenario.deployment, 5)
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


def test_a_dead_producer_leaves_a_transaction_open(cases: Cases) -> None:
    """Nothing behind its first record is published before the broker aborts it; then all is."""
    with cases.case("open transaction of a dead producer", "any time") as case:
        scenario = case.scenario
        worker = scenario.running()
        command = [sys.executable, "-c", _LEAVES_ONE_OPEN, scenario.deployment.bootstrap, scenario.deployment.topic]
        subprocess.run(command, check=True, timeout=TIMEOUT_S, cwd=ROOT, capture_output=True)
        case.strikes()
        held = end_offsets(scenario.deployment.bootstrap, scenario.deployment.topic)[0]
        wait_until(lambda: scenario.load.ends()[0] > held, "the load goes on behind the open transaction")
        wanted = scenario.load.ends()

        def beyond_in_the_other() -> bool:
            published = scenario.deployment.published()
            assert (
                published[0] <= held or end_offsets(scenario.deployment.bootstrap, scenario.deployment.topic)[0] > held
            )
            return published[1] >= wanted[1]

        scenario.until(beyond_in_the_other, "the other partition goes on")
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "waited for its abort"
        assert case.violations() == []
