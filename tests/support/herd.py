"""A herder over stand-ins for supervisors, as tests of the worker's connectors use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import structlog

from connectors.config.connector import ConnectorConfig
from connectors.config.files import load_connector, load_worker
from connectors.progress.observer import Observer
from connectors.runtime.herder import LOCKS_MS, Herder
from connectors.runtime.lifecycle import RunState, TargetState
from connectors.runtime.specs.connector_store import ConnectorStore
from connectors.runtime.status import ConnectorState, Status
from connectors.runtime.supervisor import RunContext
from tests.support.cli import worker_file
from tests.support.clocks import ManualClock


class Supervisor:
    """Notes what it is told; ends when a test lets it."""

    def __init__(self, config: ConnectorConfig) -> None:
        self.config = config
        self.said: list[str] = []
        self.error: BaseException | None = None
        self.over = True
        self.target = TargetState.RUNNING
        self.state = RunState.INIT
        self.status = Status()
        self.catalog_state: Any = None
        self.counters: dict[str, int] = {}

    def start(self, _: object) -> None:
        self.said.append("start")
        self.over = False
        self.state = RunState.RUNNING

    def aim(self, target: TargetState) -> None:
        if target is not self.target:
            self.said.append("pause" if target is TargetState.PAUSED else "resume")
        self.target = target

    def stop(self, *, drop_at_ms: int | None = None) -> None:
        word = "finish" if drop_at_ms is None else "drop"
        if self.target is not TargetState.STOPPED or (word == "drop" and self.said[-1:] != ["drop"]):
            self.said.append(word)
        self.target = TargetState.STOPPED

    def join(self, _: float | None = None) -> bool:
        return self.over

    def is_alive(self) -> bool:
        return not self.over

    def has_failed(self) -> bool:
        return self.status.state is ConnectorState.FAILED

    def __getattr__(self, name: str) -> Any:
        return lambda *_: self.said.append(name)


class Herd:
    """A herder in a folder, and the supervisors that it has made, by name and in order."""

    def __init__(self, folder: Path, locks_ms: int = LOCKS_MS) -> None:
        self.folder = folder
        self.worker = load_worker(worker_file(folder))
        self.clock = ManualClock()
        self.made: dict[str, list[Supervisor]] = {}
        self.woken = 0
        self._locks_ms = locks_ms
        self.supervise: Callable[..., Any] = self.make
        """Makes a connector's supervisor; a test may put its own in between."""

    def begin(self, *paths: Path, listens: bool = True, store: ConnectorStore | None = None) -> Herder:
        """A worker's next start over files and what is stored."""
        store = store or (ConnectorStore.of(self.worker) if listens else None)
        files = [load_connector(path, self.worker) for path in paths]
        with structlog.testing.capture_logs() as self.logged:
            self.herder = Herder(
                self.worker, cast("Any", self.clock), Observer(), files, store, self.supervise, self._locks_ms
            )
        self.herder.changed = self._wake
        self.herder.take_locks()
        self.herder.begin(RunContext(Mock(), Mock(), once=False, over=Mock()))
        return self.herder

    def end(self) -> None:
        """The worker's end."""
        self.herder.release()

    def states(self) -> dict[str, str]:
        return {name: self.herder.connector(name).spec.target.value for name in self.herder.names()}

    def said(self, name: str) -> list[list[str]]:
        """What each supervisor of a connector was told, without the words that change nothing."""
        return [
            [word for word in one.said if word not in ("take_lock", "release", "resume")] for one in self.made[name]
        ]

    def make(self, _worker: object, config: ConnectorConfig, *_: object) -> Supervisor:
        """Makes a stand-in for the supervisor of `config`."""
        found = Supervisor(config)
        self.made.setdefault(config.name, []).append(found)
        return found

    def _wake(self) -> None:
        self.woken += 1
        self.herder.reconcile()


def config(name: str, **more: str) -> ConnectorConfig:
    """A connector that reads the topic of its own name."""
    return ConnectorConfig.model_validate(
        {"name": name, "connector.class": "keyfold.CompactedTopic", "topics": name, **more}
    )


def put(herder: Herder, made: ConnectorConfig, target: TargetState | None = None, *, only_new: bool = False) -> bool:
    """Makes or changes a connector, whatever it was before."""
    return herder.specs.put(made.name, lambda _: made, target, only_new=only_new)
