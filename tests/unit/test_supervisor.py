"""When a connector that failed is started again, over a clock that the test moves; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from compactor.errors import CatalogError, FencedError, KeyfoldError, StorageError
from compactor.testing import Clock
from connectors import spark as sparks
from connectors import status, supervisor
from connectors.config.load import load_connector, load_worker
from connectors.errors import EXIT_FAILED, SparkGoneError, exit_code
from connectors.progress import NullObserver
from connectors.stopping import Stop
from connectors.stores import connector_storage
from connectors.supervisor import Supervisor
from tests.support.cli import NAME, connector_file, worker_file

AWAY = StorageError("The store is away.")


class Lives:
    """What each life does: it runs for so long, then fails with that; the last of them is stopped."""

    def __init__(self, clock: Clock, *plan: tuple[int, Exception]) -> None:
        self.began: list[float] = []
        self.known: list[str | None] = []
        self.shown: list[dict[str, Any]] = []
        self._clock = clock
        self._plan = list(plan)

    def pipeline(self, *args: Any) -> Any:
        """Stands in for `Pipeline`: the last argument is where it reports to."""
        report: Callable[[dict[str, int]], None] = args[-1]
        self._made = SimpleNamespace(catalog_id=None, run=lambda stop, **how: self._run(report, stop, **how))
        return self._made

    def _run(self, report: Callable[[dict[str, int]], None], stop: Stop, *, once: bool, known: str | None) -> None:
        self.began.append(self._clock.monotonic())
        self.known.append(known)
        self._made.catalog_id = "c-1"
        report({})
        if not self._plan:
            stop.ask()
            return
        ran_ms, error = self._plan.pop(0)
        self._clock.advance(ran_ms)
        report({})
        raise error


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Supervisor, Lives]]:
    """Runs a supervisor to its end over lives that go as planned."""

    def run(*plan: tuple[int, Exception], stopped: bool = False) -> tuple[Supervisor, Lives]:
        clock = Clock(0)
        lives = Lives(clock, *plan)
        monkeypatch.setattr(supervisor, "Pipeline", lives.pipeline)
        worker = load_worker(worker_file(tmp_path))
        config = load_connector(connector_file(tmp_path), worker).config
        one = Supervisor(worker, config, clock, NullObserver())
        wait = clock.wait

        def noted(seconds: float, event: Any) -> bool:
            lives.shown.append(dict(status.read(connector_storage(worker, NAME)) or {}))
            if stopped:
                event.set()
            return wait(seconds, event)

        monkeypatch.setattr(clock, "wait", noted)
        with structlog.testing.capture_logs():  # to print an error with all that it came by takes seconds
            one._run(cast("Any", None), once=False)
        return one, lives

    return run


def _pauses(lives: Lives, ran_ms: int) -> list[int]:
    """Seconds between the end of a life and the start of the next."""
    return [round(after - before - ran_ms / 1000) for before, after in pairwise(lives.began)]


def test_a_connector_that_fails_in_each_batch_waits_longer_and_longer(start: Callable[..., Any]) -> None:
    """That it came up and took something in each time does not begin the back-off anew."""
    one, lives = start(*[(20_000, AWAY)] * 11)
    assert _pauses(lives, 20_000) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert one.error is None


def test_one_that_ran_well_begins_with_a_short_wait_again(start: Callable[..., Any]) -> None:
    """After a minute, an outage is a new one."""
    _, lives = start(*[(60_000, AWAY)] * 3)
    assert _pauses(lives, 60_000) == [1, 1, 1]


def test_describe_sees_a_connector_that_waits(start: Callable[..., Any]) -> None:
    """Error, failures and the time of the next start; the file is fresh however long the wait is."""
    _, lives = start(*[(0, AWAY)] * 6)
    last = lives.shown[-1]
    assert (last["state"], last["failures"], last["error"]) == ("FAILED", 6, str(AWAY))
    assert 0 <= last["next_restart_ms"] - last["updated_ms"] <= 32_000
    times = [shown["updated_ms"] for shown in lives.shown]
    assert max(after - before for before, after in pairwise(times)) <= status.WRITE_EVERY_MS


def test_a_stop_ends_the_wait(start: Callable[..., Any]) -> None:
    """It was to be started again, so that is a clean end."""
    one, lives = start((0, AWAY), stopped=True)
    assert (one.error, len(lives.began)) == (None, 1)


@pytest.mark.parametrize("error", [FencedError("Newer."), CatalogError("Damaged.")])
def test_what_nobody_can_wait_for_ends_the_connector(start: Callable[..., Any], error: KeyfoldError) -> None:
    """A fenced connector and one that an operator must see to are not started again."""
    one, lives = start((0, error))
    assert (one.error, len(lives.began)) == (error, 1)


def test_the_catalog_of_the_last_life_is_expected_by_the_next(start: Callable[..., Any]) -> None:
    """So an empty folder where a disk was unmounted is not taken for a connector that begins."""
    _, lives = start((0, AWAY))
    assert lives.known == [None, "c-1"]


def test_without_spark_nothing_is_started_again(start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a dead JVM breaks fails with what happened, and for good: exit code 1."""
    gone = SparkGoneError("Spark's JVM has ended (signal 9).")
    monkeypatch.setattr(sparks, "gone", lambda _: gone)
    one, lives = start((0, ConnectionRefusedError("py4j")))
    assert (one.error, exit_code(gone), len(lives.began)) == (gone, EXIT_FAILED, 1)
