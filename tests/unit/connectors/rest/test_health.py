"""`/health?strict=true`: whether all connectors of a worker are well, which a probe of it alone does not say."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from connectors.clock import SystemClock
from connectors.config.errors import FaultyConfigError
from tests.support.logs import log, run
from tests.support.measured import state
from tests.support.rest import RestWorker, rest_worker

MINUTE_MS: Final = 60_000
STRICT: Final = "/health?strict=true"
Start = Callable[..., AbstractContextManager[RestWorker]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Starts a worker with the settings that it is given."""

    @contextmanager
    def started(**settings: str) -> Iterator[RestWorker]:
        with rest_worker(tmp_path, **settings) as found:
            yield found

    return started


def taken_in(worker: RestWorker, name: str, ago_ms: int, published: int = 0) -> None:
    """Has a connector have taken ten offsets in some time ago, of which `published` are."""
    arrived_ms = SystemClock().now_ms() - ago_ms
    worker.supervisor(name).catalog_state = state(log(run(0, 10, 100, arrived=arrived_ms), published=published))


def told(answer: httpx.Response) -> tuple[int, str, str]:
    body = answer.json()
    assert set(body) == {"status", "message"}
    return answer.status_code, body["status"], body["message"]


@pytest.mark.parametrize(
    ("most_ms", "ago_ms", "published", "min_lag_ms", "code"),
    [
        ("60000", 30_000, 0, 0, 200),
        ("60000", 90_000, 0, 0, 500),
        ("60000", 90_000, 5, 0, 500),
        ("60000", 90_000, 10, 0, 200),
        ("60000", 90_000, 0, 45_000, 200),
        ("60000", 150_000, 0, 45_000, 500),
        (None, 9_000_000, 0, 0, 200),
    ],
    ids=["within", "beyond", "beyond in part", "published", "as asked for", "beyond what was asked for", "no limit"],
)
def test_a_connector_that_is_behind(
    start: Start, most_ms: str | None, ago_ms: int, published: int, min_lag_ms: int, code: int
) -> None:
    """It is unwell when its oldest records wait for longer than health.max.lag.ms, beyond min.compaction.lag.ms."""
    with start(**({"health.max.lag.ms": most_ms} if most_ms else {})) as worker:
        worker.create("a", **{"min.compaction.lag.ms": min_lag_ms})
        taken_in(worker, "a", ago_ms, published)
        found = told(worker.ask("GET", STRICT))
        assert found[:2] == (code, "healthy" if code == 200 else "unhealthy")
        assert told(worker.ask("GET", "/health"))[0] == 200


def test_the_answer_says_how_far_it_is_behind(start: Start) -> None:
    """By its name, in ms, with the setting and its value."""
    with start(**{"health.max.lag.ms": str(MINUTE_MS)}) as worker:
        worker.create("a")
        taken_in(worker, "a", 2 * MINUTE_MS)
        said = told(worker.ask("GET", STRICT))[2]
        found = re.fullmatch(r"connector a is (\d+) ms behind, more than health\.max\.lag\.ms \(60000\)\.", said)
        assert found
        assert 2 * MINUTE_MS <= int(found[1]) < 3 * MINUTE_MS


def test_every_connector_that_is_unwell_is_named(start: Start) -> None:
    """A FAILED one with its error, also where it is behind; those that are well are not named."""
    with start(**{"health.max.lag.ms": str(MINUTE_MS)}) as worker:
        for name in ("behind", "failed", "well"):
            worker.create(name)
            taken_in(worker, name, 1_000 if name == "well" else 9 * MINUTE_MS)
        worker.supervisor("failed").fail("Topic t is gone.")
        code, status, said = told(worker.ask("GET", STRICT))
        assert (code, status) == (500, "unhealthy")
        assert re.match(r"connector behind is \d+ ms behind", said)
        assert said.endswith("connector failed is FAILED: Topic t is gone.")
        assert "well" not in said


def test_one_that_waits_for_an_outage_to_end_is_unwell(start: Start) -> None:
    """It does nothing meanwhile, though no alert on FAILED fires for it."""
    with start() as worker:
        worker.create("a")
        worker.supervisor("a").wait("Brokers are away.", since_ms=0)
        code, status, said = told(worker.ask("GET", STRICT))
        assert (code, status) == (500, "unhealthy")
        assert said.startswith("connector a waits for an outage to end: Brokers are away.\nWaits since")


def test_a_restart_that_will_come_is_told(start: Start) -> None:
    """A FAILED connector is unwell also where it is started again by itself; the answer says when."""
    with start() as worker:
        worker.create("a")
        worker.supervisor("a").fail("Away.", next_restart_ms=1_700_000_000_000)
        assert told(worker.ask("GET", STRICT)) == (
            500,
            "unhealthy",
            "connector a is FAILED: Away.\nStarted again at 2023-11-14T22:13:20Z or before.",
        )


def test_a_connector_that_is_well_again(start: Start) -> None:
    """So is the worker; and one that was deleted is nobody's."""
    with start() as worker:
        for name in ("a", "b"):
            worker.create(name)
            worker.supervisor(name).fail("Away.")
        worker.ask("POST", "/connectors/a/restart")
        assert "connector a" not in told(worker.ask("GET", STRICT))[2]
        worker.ask("DELETE", "/connectors/b")
        assert told(worker.ask("GET", STRICT))[0] == 200


@pytest.mark.parametrize("word", ["pause", "stop"])
def test_what_an_operator_wants_is_well(start: Start, word: str) -> None:
    """To be PAUSED or STOPPED fails no probe by itself."""
    with start(**{"health.max.lag.ms": str(MINUTE_MS)}) as worker:
        worker.create("a")
        worker.ask("PUT", f"/connectors/a/{word}")
        assert told(worker.ask("GET", STRICT))[:2] == (200, "healthy")


@pytest.mark.parametrize(("health", "code"), [("starting", 503), ("unhealthy", 500)])
def test_the_workers_own_state_comes_first(start: Start, health: str, code: int) -> None:
    """Before it has started, and when Spark is gone, nothing is said of connectors."""
    with start() as worker:
        worker.create("a")
        worker.supervisor("a").fail("Away.")
        worker.health = health
        found = told(worker.ask("GET", STRICT))
        assert found == told(worker.ask("GET", "/health"))
        assert found[:2] == (code, health)


@pytest.mark.parametrize("most_ms", ["0", "-1", "1s", ""])
def test_a_limit_is_a_number_of_ms(start: Start, most_ms: str) -> None:
    """Anything else is refused when the worker starts, with the key."""
    with pytest.raises(FaultyConfigError, match=r"health\.max\.lag\.ms"), start(**{"health.max.lag.ms": most_ms}):
        pass
