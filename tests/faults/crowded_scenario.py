"""A scenario whose worker runs neighbours beside the connector under fault, which alone is struck."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

from tests.faults.load import RATE
from tests.faults.neighbours import Crowd, Neighbours
from tests.faults.output_watch import OutputWatch
from tests.faults.scenario import PATIENCE, RECOVERY_S, Scenario
from tests.faults.worker_process import WorkerProcess

FRESH_S: Final = 10.0 * PATIENCE
"""Seconds within which each neighbour publishes something new, whatever happens to the connector under fault."""

THE_CROWD: Final = Crowd()


class CrowdedScenario(Scenario):
    """A scenario of one connector and its `neighbours`; it waits for all of them, and judges all."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        seed: int,
        settings: Mapping[str, Any],
        rate: float = RATE,
        crowd: Crowd = THE_CROWD,
    ) -> None:
        super().__init__(folder, bootstrap, seed, settings, rate)
        self.neighbours = Neighbours(self.deployment, seed, crowd)

    def __enter__(self) -> Self:
        super().__enter__()
        self._stack.enter_context(self.neighbours.load)
        return self

    def start(self, *args: str) -> WorkerProcess:
        """Starts a worker of all of them."""
        return super().start(*self.neighbours.files(), *args)

    def arm(self, step: str, action: str) -> None:
        """Makes the next process that takes `step` for the connector under fault do `action`, once."""
        self.control.arm(step, f"{action}@{self.deployment.name}")

    def until_publishing(self, timeout_s: float = RECOVERY_S) -> float:
        """Waits until all records of all connectors acknowledged by now are published; returns the seconds it took."""
        wanted = self.neighbours.ends()
        seconds = super().until_publishing(timeout_s)
        self.until(lambda: not self.neighbours.behind(wanted), "the neighbours publish", timeout_s)
        return seconds

    def violations(self) -> list[str]:
        """Pauses all loads until everything acknowledged is published; returns every violation."""
        found = super().violations()
        with self.neighbours.resting(self.until):
            return [*found, *self.neighbours.violations()]

    @contextmanager
    def neighbours_undisturbed(self) -> Iterator[OutputWatch]:
        """Fails at the end of the block if any neighbour was started again, or had nothing new for FRESH_S."""
        epochs = self.neighbours.epochs()
        with self.neighbours.watched() as watch:
            yield watch
            gap = watch.longest()
        assert gap.seconds <= FRESH_S, f"{gap.topic} had nothing new for {gap.seconds:.1f} s"
        assert self.neighbours.epochs() == epochs
