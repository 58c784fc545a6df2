from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from connectors.progress.observer import Observer
from connectors.spark.job_progress import task_progress, tasks


def _stage(tasks: int, done: int) -> Any:
    return SimpleNamespace(numTasks=tasks, numCompletedTasks=done)


def _tracker(*stages: Any) -> Any:
    """Says what it is given, stage by stage; None stands for a stage that ends between the two questions."""
    return SimpleNamespace(getActiveStageIds=lambda: range(len(stages)), getStageInfo=lambda number: stages[number])


def _session(*stages: Any) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: _tracker(*stages)))


class Watcher(Observer):
    def __init__(self) -> None:
        self.stages: list[str] = []
        self.seen: set[tuple[str, int, int | None]] = set()
        self.heard = threading.Event()

    def stage(self, connector: str, name: str) -> None:
        self.stages.append(f"{connector}: {name}")

    def progress(self, connector: str, stage: str, done: int, total: int | None, unit: str) -> None:
        self.seen.add((f"{connector}: {stage}, {unit}", done, total))
        self.heard.set()


class Impatient:
    """A clock that hardly waits."""

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def wait_ms(self, ms: int, event: threading.Event) -> bool:
        return event.wait(0.001)

    def sleep_ms(self, ms: int) -> None:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("stages", "found"), [((), (0, 0)), ((_stage(8, 3), None, _stage(2, 2)), (5, 10)), ((None,), (0, 0))]
)
def test_tasks_of_all_running_stages_are_counted(stages: tuple[Any, ...], found: tuple[int, int]) -> None:
    """Done and all of them; a stage that has ended meanwhile is none."""
    assert tasks(_tracker(*stages)) == found


def test_a_watcher_hears_how_far_spark_is() -> None:
    """What is told inside the block names the tasks that follow; afterwards nothing is asked any more."""
    watcher = Watcher()
    before = threading.active_count()
    with task_progress(_session(_stage(8, 3)), watcher, "c", Impatient()) as tell:
        tell("counting")
        watcher.heard.clear()
        assert watcher.heard.wait(10)
    assert watcher.stages == ["c: counting"]
    assert ("c: counting, tasks", 3, 8) in watcher.seen
    assert threading.active_count() == before


def test_nothing_is_shown_while_spark_does_nothing() -> None:
    """Without a running stage there is no progress: a bar of no tasks says nothing."""
    watcher = Watcher()
    with task_progress(_session(), watcher, "c", Impatient()):
        assert not watcher.heard.wait(0.05)
    assert watcher.seen == set()
