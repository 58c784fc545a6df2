"""Connectors that run beside the one under fault in the same worker: each its own small topic, one load for all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from tests.faults import checks
from tests.faults.load import Sender, TopicRecords
from tests.faults.observe import observe
from tests.faults.output_watch import OutputWatch, watching
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic

COUNT: Final = 19
RATE: Final = 5
"""Records per second of each."""
SETTINGS: Final[Mapping[str, Any]] = {
    "tasks.max": 1,
    "snapshot.interval.ms": 30_000,
    "restart.backoff.initial.ms": 200,
    "restart.backoff.max.ms": 2_000,
}
_OBSERVERS: Final = 6
"""Checks at a time: most of their time they wait for the broker."""

Ends = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset."""


class Neighbour(NamedTuple):
    """One of them: its files, and what was sent to its topic."""

    deployment: Deployment
    records: TopicRecords


class Crowd(NamedTuple):
    """How many neighbours there are, records/s to each, and the settings of each."""

    size: int = COUNT
    rate: float = RATE
    settings: Mapping[str, Any] = SETTINGS


class Neighbours:
    """A crowd in the worker of `deployment`; `load`, a context manager, sends to all with one producer.

    Every second one has two partitions.
    """

    def __init__(self, deployment: Deployment, seed: int, crowd: Crowd) -> None:
        self._worker = deployment
        seeds = range(seed * 1000, seed * 1000 + crowd.size)
        self._all = [_made(deployment, crowd.settings, each, 1 + each % 2) for each in seeds]
        self.load = Sender(deployment.bootstrap, [one.records for one in self._all], crowd.rate * crowd.size)

    def __iter__(self) -> Iterator[Neighbour]:
        return iter(self._all)

    def files(self) -> list[str]:
        """Writes a connector file for each; returns their paths."""
        paths = [self._worker.folder / f"{deployment.name}.json" for deployment, _ in self._all]
        for path, (deployment, _) in zip(paths, self._all, strict=True):
            path.write_text(json.dumps(deployment.settings), encoding="utf-8")
        return [str(path) for path in paths]

    def ends(self) -> Ends:
        """Returns the offsets after the last acknowledged records."""
        return {deployment.topic: records.ends() for deployment, records in self._all}

    def behind(self, wanted: Ends) -> list[str]:
        """Returns the topics of which not everything below `wanted` is published."""
        return [one.topic for one, _ in self._all if not one.has_published(wanted[one.topic])]

    def epochs(self) -> dict[str, int]:
        """Returns the epoch of each, which rises with every start, by connector."""
        return {deployment.name: deployment.state().epoch for deployment, _ in self._all}

    def watched(self) -> AbstractContextManager[OutputWatch]:
        """Watches their outputs in a block."""
        return watching(self._worker.bootstrap, [deployment.output for deployment, _ in self._all])

    def violations(self) -> list[str]:
        """Returns every violation, by connector; while the load rests, and everything acknowledged is published."""
        with ThreadPoolExecutor(_OBSERVERS) as pool:
            return [line for lines in pool.map(_violations, self._all) for line in lines]

    @contextmanager
    def resting(self, until: Callable[[Callable[[], object], str], None]) -> Iterator[None]:
        """Pauses their load in the block, which begins when `until` has seen that all of it is published."""
        self.load.pause()
        try:
            wanted = self.ends()
            until(lambda: not self.behind(wanted), "the neighbours have published everything acknowledged")
            yield
        finally:
            self.load.resume()


def _made(worker: Deployment, settings: Mapping[str, Any], seed: int, partitions: int) -> Neighbour:
    topic = create_topic(worker.bootstrap, f"n-{uuid4().hex[:10]}", partitions, cleanup_policy="delete")
    deployment = Deployment(worker.folder, worker.bootstrap, topic)
    deployment.settings |= settings
    return Neighbour(deployment, TopicRecords(topic, seed, partitions))


def _violations(neighbour: Neighbour) -> list[str]:
    found = checks.violations(observe(neighbour.deployment, neighbour.records))
    return [f"neighbour {neighbour.deployment.name}: {line}" for line in found]
