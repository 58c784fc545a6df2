"""Runs a history and checks every promise after every step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from compactor.catalog.commits import Commit, commit_path, list_versions
from compactor.catalog.commits import read as read_commit
from compactor.model.actions import AddSnapshot, Clean
from compactor.model.log import Run
from compactor.model.record import TopicPartition
from compactor.model.state import BY_OFFSET, CatalogState
from compactor.runs.reader import read
from compactor.runs.scan import OffsetRange
from tests.support.oracle import log_contents, lookups, output, retention, snapshots, steps, topics
from tests.support.oracle.model import Model
from tests.support.oracle.named_ids import NamedIds
from tests.support.oracle.rebuilding import LostCatalog
from tests.support.oracle.simulation import Simulation
from tests.support.oracle.steps import AtFailpoint, Ingest, Round, Tick, Vacuum

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Oracle:
    """One connector from its creation on. `spark` None: LocalSpark.

    `any_case`: keys have an identity (`identity`); `order`: which record of a key wins (compaction.order); `fills`:
    values are filled (`filling`); `of_topics`: a key has one winner over all partitions of a topic, at first.
    `keeps_all`: all records are kept, and none is published.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        folder: Path,
        *,
        any_case: bool = False,
        order: str = BY_OFFSET,
        fills: bool = False,
        of_topics: bool = False,
        keeps_all: bool = False,
    ) -> None:
        self.simulation = Simulation(
            spark, folder, any_case=any_case, order=order, fills=fills, of_topics=of_topics, keeps_all=keeps_all
        )
        self._keeps_all = keeps_all
        self.model = Model(self.simulation.source, lambda: self.simulation.broker.output, self._offsets_of)
        self._dumps = log_contents.LogContents(self.simulation.storage)
        self._look_ups = lookups.LookUps(self.simulation.storage)
        self._shelf = snapshots.SnapshotReader(self.simulation.shelf)
        self._ids = NamedIds()
        self._version = 0
        self._latest_ms = 0

    def run(self, history: Iterable[steps.AnyStep]) -> None:
        """Performs all steps; raises AssertionError after the first that breaks a promise."""
        for number, step in enumerate(history):
            try:
                wrong = list(self._step(step))
            except Exception as error:
                error.add_note(f"in step {number}, {step}")
                raise
            assert not wrong, "\n".join([f"after step {number}, {step}:", *wrong])

    def _step(self, step: steps.AnyStep) -> Iterator[str]:
        simulation = self.simulation
        simulation.times = {simulation.clock.now_ms()}
        before, uncertain = self.model.state, simulation.components.engine.positions.uncertain()
        self.model.begin(decides=isinstance(step.step if isinstance(step, AtFailpoint) else step, Ingest))
        lost = simulation.lost
        done = simulation.perform(step)
        if simulation.lost is not None and simulation.lost is not lost:
            self._forget(simulation.lost)
        yield from self._read_commits()
        yield from self._promises()
        if done:
            yield from self._done(step, before, uncertain)

    def _forget(self, lost: LostCatalog) -> None:
        """Forgets what it knows of a catalog whose storage is lost."""
        self.model.lose(lost)
        self._dumps = log_contents.LogContents(self.simulation.storage)
        self._look_ups = lookups.LookUps(self.simulation.storage)
        self._version = self._latest_ms = 0

    def _promises(self) -> Iterator[str]:
        """Yields violations of what is true after every step."""
        simulation, model = self.simulation, self.model
        state, sent = simulation.components.catalog.state, simulation.broker.output
        if state != model.state:
            yield f"the owner knows {state}, its commits say {model.state}"
        yield from (f"{path} is named and not there" for path in state.paths if not simulation.storage.exists(path))
        yield from log_contents.violations(state, model, self._dumps)
        if not self._keeps_all:
            yield from self._look_ups.violations(state, self._dumps)
        if self.model.state.is_of_topics:
            yield from self._of_topics_violations()
            return
        if self._keeps_all:
            yield from snapshots.violations(state, self._shelf, model.snapshots, None)
            yield from (f"{sent.records} and {sent.letters} are published" for _ in sent.records or sent.letters)
            return
        yield from output.violations(state, model, sent, simulation.tampered, skips=simulation.has_skipped)
        yield from snapshots.violations(state, self._shelf, model.snapshots, sent, model.scoped_otherwise)
        yield from self._ids.violations(simulation.broker.entries)

    def _of_topics_violations(self) -> Iterator[str]:
        """Yields the same of the output and of snapshots, if a key has one winner over all partitions of a topic."""
        simulation, model = self.simulation, self.model
        state, sent = simulation.components.catalog.state, simulation.broker.output
        yield from topics.violations(state, model, sent, simulation.tampered)
        for taken in state.snapshots:
            loaded, moments = self._shelf.load(taken), model.snapshots[taken.id]
            yield from snapshots.record_violations(loaded, moments)
            generations = snapshots.generations(model.logs[tp] for tp in moments)
            if loaded.manifest.generations == generations and taken.id not in model.scoped_otherwise:
                yield from topics.resumed(loaded, taken.topic, model, sent)
        yield from self._ids.violations(simulation.broker.entries)

    def _done(self, step: steps.AnyStep, before: CatalogState, uncertain: Collection[TopicPartition]) -> Iterator[str]:
        """Yields violations of what is true after a step that completed."""
        simulation, now_ms = self.simulation, self.simulation.clock.now_ms()
        state, settings = simulation.components.catalog.state, simulation.components.settings
        match step:
            case Tick() | Ingest():
                under_way = [log.tp for log in before.logs if log.published < log.folded_end or log.tp in uncertain]
                if self.model.state.is_of_topics:
                    yield from topics.unpublished(self.model, under_way, now_ms, settings)
                    yield from topics.reader_violations(state, self.model, simulation.broker.output)
                    return
                yield from output.unpublished(self.model, under_way, now_ms, settings)
            case Round() if not self.model.state.is_of_topics:
                logs = [log for log in before.logs if log.tp not in uncertain]
                yield from retention.missed(logs, state, now_ms, settings)
                logs = [] if self._keeps_all else [state.log(log.tp) for log in logs]
                yield from log_contents.missed_cleaning(logs, self.model, self._dumps, now_ms, settings)
            case Vacuum() if now_ms > self._latest_ms:
                files = {info.path for info in simulation.storage.walk("runs")}
                yield from (f"{path} is not referenced" for path in files - state.paths)

    def _read_commits(self) -> Iterator[str]:
        """Applies the commits since the last step to the model; yields what is wrong with them."""
        simulation = self.simulation
        newest = list_versions(simulation.storage).newest
        for version in range(self._version + 1, newest + 1):
            commit = read_commit(simulation.storage, commit_path(version), Commit)
            settings = simulation.settings[commit.epoch]
            yield from self.model.take(commit, settings, simulation.times)
            if self.model.state.is_of_topics:
                yield from topics.cleaned(self.model, commit.actions, settings, self._offsets_in_base)
                for action in commit.actions:
                    if isinstance(action, AddSnapshot):
                        yield from topics.snapshot_violations(self.model, action)
            self._latest_ms = max(self._latest_ms, commit.at_ms)
        self._version = newest

    def _offsets_in_base(self, clean: Clean) -> list[int]:
        """Returns the offsets of the records of a base run."""
        return self._offsets_of(clean.tp, clean.base)

    def _offsets_of(self, tp: TopicPartition, run: Run) -> list[int]:
        """Returns the offsets of the records of a run."""
        offsets = OffsetRange(tp=tp, start=run.start, end=run.end, runs=(run,))
        batches = read(self.simulation.storage, offsets, ("offset",))
        return [offset for batch in batches for offset in batch["offset"].to_pylist()]
