"""Runs a history, and after every step holds everything that can be seen against what was promised."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compactor.catalog.commits import Commit, commit_path, list_versions, read
from compactor.model.record import TopicPartition
from compactor.model.state import State
from tests.support.oracle import kept, published, retained, snapshots, steps
from tests.support.oracle.model import Model
from tests.support.oracle.steps import Ingest, Round, Tick, Vacuum
from tests.support.oracle.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Oracle:
    """One connector from its first life on. `spark` None: what stands for it in this process."""

    def __init__(self, spark: SparkSession | None, folder: Path) -> None:
        self.world = World(spark, folder)
        self.model = Model(self.world.source)
        self._dumps = kept.Dumps(self.world.storage)
        self._shelf = snapshots.Shelf(self.world.shelf)
        self._version = 0
        self._latest_ms = 0

    def run(self, history: Iterable[steps.Any]) -> None:
        """Does all steps; AssertionError after the first that breaks a promise."""
        for number, step in enumerate(history):
            try:
                wrong = list(self._step(step))
            except Exception as error:
                error.add_note(f"in step {number}, {step}")
                raise
            assert not wrong, "\n".join([f"after step {number}, {step}:", *wrong])

    def _step(self, step: steps.Any) -> Iterator[str]:
        world = self.world
        world.times = {world.clock.now_ms()}
        before, uncertain = self.model.state, world.life.engine.uncertain()
        done = world.perform(step)
        yield from self._read_commits()
        yield from self._promises()
        if done:
            yield from self._done(step, before, uncertain)

    def _promises(self) -> Iterator[str]:
        """What is true at all times."""
        world, model = self.world, self.model
        state, output = world.life.catalog.state, world.outside.output
        if state != model.state:
            yield f"the owner knows {state}, its commits say {model.state}"
        yield from (f"{path} is named and not there" for path in state.paths if not world.storage.exists(path))
        yield from kept.breaches(state, model, self._dumps)
        yield from published.breaches(state, model, output, world.tampered)
        yield from snapshots.breaches(state, self._shelf, model.snapshots, output)

    def _done(self, step: steps.Any, before: State, uncertain: Collection[TopicPartition]) -> Iterator[str]:
        """What is true once a step came to its end undisturbed."""
        world, now_ms = self.world, self.world.clock.now_ms()
        state, settings = world.life.catalog.state, world.life.settings
        match step:
            case Tick() | Ingest():
                under_way = [log.tp for log in before.logs if log.published < log.folded_end]
                yield from published.waiting(self.model, under_way, now_ms, settings)
            case Round():
                logs = [log for log in before.logs if log.tp not in uncertain]
                yield from retained.left(logs, state, now_ms, settings)
                logs = [state.log(log.tp) for log in logs]
                yield from kept.undone(logs, self.model, self._dumps, now_ms, settings)
            case Vacuum() if now_ms > self._latest_ms:
                files = {info.path for info in world.storage.walk("runs")}
                yield from (f"{path} is needed by nobody" for path in files - state.paths)

    def _read_commits(self) -> Iterator[str]:
        """What is wrong with the commits since the last step."""
        world = self.world
        newest = list_versions(world.storage).newest
        for version in range(self._version + 1, newest + 1):
            commit = read(world.storage, commit_path(version), Commit)
            yield from self.model.take(commit, world.settings[commit.epoch], world.times)
            self._latest_ms = max(self._latest_ms, commit.at_ms)
        self._version = newest
