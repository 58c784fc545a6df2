"""The broker goes away at a step, for an instant or for a minute, or forgets what it knew of transactional ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import Case, Cases
from tests.faults.scenario import Scenario
from tests.faults.step_settings import FILLED
from tests.faults.worker_process import GRACE_S, MARGIN_S

FORGETFUL = {
    "transactional.id.expiration.ms": "4000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
    "producer.id.expiration.ms": "4000",
    "producer.id.expiration.check.interval.ms": "1000",
}
HELD = "sleep:3000"
AWAY_S = 60.0
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker that no other test needs."""
    with EmbeddedKafka(tmp_path_factory.mktemp("own-kafka")) as running:
        yield running


@pytest.fixture(scope="module")
def own_cases(tmp_path_factory: pytest.TempPathFactory, own_broker: EmbeddedKafka) -> Iterator[Cases]:
    """Cases on that broker."""
    with Cases(tmp_path_factory.mktemp("own-cases"), own_broker.bootstrap, Scenario) as running:
        yield running


def kill_and_start(broker: EmbeddedKafka, case: Case, step: str) -> None:
    """Kills the broker while the worker is at `step`, and starts it at once; the same worker goes on."""
    worker = case.scenario.meet(step, HELD)
    case.strikes()
    broker.kill()
    broker.start()
    case.recovers()
    assert worker.alive, worker.tail()
    case.outcome = "same worker"


@pytest.mark.parametrize("step", ["source.read", "ingest.before-commit", "publish.sent", "publish.offsets"])
def test_a_killed_broker_that_is_started_again(own_broker: EmbeddedKafka, own_cases: Cases, step: str) -> None:
    """SIGKILL and a start at once: the worker goes on by itself."""
    with own_cases.case("broker killed and started", step) as case:
        kill_and_start(own_broker, case, step)
        assert case.violations() == []


@pytest.mark.parametrize("step", ["ingest.wait", "ingest.fill"])
def test_a_broker_that_is_killed_while_records_wait(own_broker: EmbeddedKafka, own_cases: Cases, step: str) -> None:
    """The ends that records wait for are asked of it: the worker goes on by itself, and fills the same."""
    with own_cases.case("broker killed and started, filled over a topic", step, FILLED) as case:
        kill_and_start(own_broker, case, step)
        assert case.violations() == []


@pytest.mark.parametrize(
    "step", ["any time", "source.read", "takeover.fence", "publish.begin", "publish.sent", "publish.before-commit"]
)
def test_a_broker_that_is_away_for_a_minute(own_broker: EmbeddedKafka, own_cases: Cases, step: str) -> None:
    """Longer than the clients' patience: the worker is started again and again until it is back, and goes on."""
    with own_cases.case("broker away 60 s", step) as case:
        scenario = case.scenario
        worker = scenario.running()
        if step.startswith("takeover."):
            worker.kill()
            scenario.control.arm(step, HELD)
            worker = scenario.start()
            worker.until_met(step)
        elif step != "any time":
            scenario.meet(step, HELD)
        own_broker.kill()
        scenario.rest(AWAY_S)
        own_broker.start()
        case.strikes()
        case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []


def test_a_worker_is_stopped_while_the_broker_is_away(own_broker: EmbeddedKafka, own_cases: Cases) -> None:
    """A stop does not wait for a broker that is not there: exit code 0 in its time."""
    with own_cases.case("SIGTERM", "broker away") as case:
        worker = case.scenario.running()
        own_broker.kill()
        case.scenario.rest(5)
        code, seconds = worker.terminate()
        own_broker.start()
        assert code == 0, worker.tail()
        assert seconds < GRACE_S + MARGIN_S
        case.outcome = f"exit 0 in {seconds:.1f} s"
        case.strikes()
        case.scenario.start()
        case.recovers()
        assert case.violations() == []


def test_transactional_ids_that_expire(tmp_path: Path) -> None:
    """The broker forgets ids and producers that rest, also one that is frozen in a transaction."""
    with (
        EmbeddedKafka(tmp_path / "kafka", properties=FORGETFUL) as forgetful,
        Cases(tmp_path / "cases", forgetful.bootstrap, Scenario) as cases,
        cases.case("transactional ids expired", "between transactions") as case,
    ):
        worker = case.scenario.running()
        for _ in range(3):
            case.scenario.load.pause()
            case.scenario.rest(10)
            before = case.scenario.load.ends()
            case.scenario.load.resume()
            case.strikes()
            case.scenario.until(
                lambda before=before: case.scenario.load.ends() != before, "something new is acknowledged"
            )
            case.recovers()
        assert worker.alive, worker.tail()
        case.outcome = "same worker"
        assert case.violations() == []
