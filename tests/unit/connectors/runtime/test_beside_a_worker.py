"""What commands find beside a worker whose connector waits; without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import structlog

from compactor.errors import CatalogError, StorageError
from connectors.clock import SystemClock
from connectors.config.files import load_connector, load_worker
from connectors.progress.observer import Observer
from connectors.runtime import status
from connectors.runtime.connector_task import TaskReport
from connectors.runtime.status import StatusContent
from connectors.runtime.stop import Stop
from connectors.runtime.supervisor import RunContext, Supervisor
from connectors.spark import session
from tests.support.cli import connector_file, invoke, keep, row, storage_of, worker_file
from tests.support.kafka import wait_until

BACKOFF = {"restart.backoff.initial.ms": "600000", "restart.backoff.max.ms": "600000"}


class Beside:
    """A supervisor whose first run fails and whose next ones go on, and the commands beside it."""

    def __init__(self, folder: Path) -> None:
        keep(folder, [row(0, b"a", b"1")])
        self.files = connector_file(folder, **BACKOFF), worker_file(folder)
        self.storage = storage_of(folder)
        self.error: Exception | None = None
        worker = load_worker(self.files[1])
        connector = load_connector(self.files[0], worker).config
        observer = Observer()
        self.one = Supervisor(
            worker, connector, SystemClock(), observer, tasks=self.task, brokers_answer=lambda *_: False
        )

    def start(self, error: Exception) -> None:
        """Returns once the connector has failed with `error`."""
        self.error = error
        self.one.start(RunContext(cast("Any", None), Mock(), once=False))
        wait_until(lambda: (status.read(self.storage) or StatusContent()).failures, "it fails", 30)

    def state(self) -> object:
        """What the worker says of the connector."""
        return (status.read(self.storage) or StatusContent()).state

    def command(self, name: str, *more: str) -> Any:
        """Runs a command on the connector."""
        return invoke(name, self.files[0], "--worker", self.files[1], *more)

    def task(self, *args: Any) -> Any:
        """Stands in for `ConnectorTask`: the last argument but the lock is where it reports to."""
        report: Callable[[TaskReport], None] = args[-2]

        def run(stop: Stop, _: object, **__: object) -> None:
            if self.error:
                error, self.error = self.error, None
                raise error
            while not stop.wait(0.05):
                report(TaskReport({"records_read": 1}, worked=False))

        return SimpleNamespace(catalog=None, worked=False, counted=None, run=run)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Beside]:
    def rival(*_: object) -> None:
        raise AssertionError("a command started a Spark of its own beside a worker")

    made = Beside(tmp_path)
    monkeypatch.setattr(session, "get_session", rival)
    with structlog.testing.capture_logs():
        yield made
        made.one.stop()
        assert made.one.join(30)


@pytest.mark.parametrize(("error", "state"), [(StorageError("Away."), "RESTARTING"), (CatalogError("Bad."), "FAILED")])
def test_a_worker_that_waits_lives(beside: Beside, error: Exception, state: str) -> None:
    """`describe` says so, whether it starts the connector again by itself or an operator does."""
    beside.start(error)
    shown = json.loads(beside.command("describe", "--json").stdout)
    assert (shown["owner"]["alive"], shown["status"]["state"]) == (True, state)
    assert "a worker is running" in beside.command("describe").stdout


def test_a_command_beside_a_worker_that_waits_takes_nothing_over(beside: Beside) -> None:
    """It is told the error and the time of the restart, within a moment; `restart` is what helps."""
    beside.start(StorageError("Away."))
    for asked in (("clean",), ("release", "--topic", "orders", "--partition", "0")):
        shown = beside.command(*asked, "--timeout", "30")
        said = "waits for an outage to end, and is started again at"
        assert (shown.exit_code, said in " ".join(shown.stderr.split())) == (4, True), shown.stderr
        assert "Away." in shown.stderr
    shown = beside.command("restart", "--timeout", "30")
    assert (shown.exit_code, "RUNNING" in shown.stdout) == (0, True), shown.stderr
    assert beside.state() == "RUNNING"


def test_a_connector_that_failed_for_good_is_restarted(beside: Beside) -> None:
    """What the error named is mended by then; the worker, with its other connectors, need not end for it."""
    beside.start(CatalogError("Damaged."))
    shown = beside.command("clean", "--timeout", "30")
    assert (shown.exit_code, "`keyfold restart` starts the connector" in shown.stderr) == (1, True), shown.stderr
    assert beside.command("restart", "--timeout", "30").exit_code == 0
    assert beside.one.is_alive()
