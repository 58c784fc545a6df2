"""Scenarios in which a fault strikes large work: what tasks read at once, and fold in two passes with keys on disk.

The limits from which on work is large are lowered, by settings and in the worker (`worker_main`), and a burst of
records goes beyond them before each fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from compactor.clean.due import would_change
from connectors.clock import SystemClock
from tests.faults.inject import reads, ways
from tests.faults.scenario import REWRITING_TASKS, TASKS, Scenario
from tests.faults.worker_main import TASK_KEYS, TASK_RECORDS, TRANSACTION_BYTES

BURST: Final = 24_000
"""Records, visible at once, in two partitions: more of each than the driver reads by itself."""
BURST_KEYS: Final = 16_000
LARGE: Final = 4_000
"""Records from which on a fold of a task counts as large; a quarter of a burst's keys, as two tasks share them."""

LEVEL0_FILES: Final = 2
PUBLISHING: Final[Mapping[str, Any]] = {
    **REWRITING_TASKS,
    "fold.level0.files": LEVEL0_FILES,
    "publish.local.max.records": 2_000,
    "segment.bytes": 65_536,
    TASK_RECORDS: "2000",
    TASK_KEYS: "4000",
    TRANSACTION_BYTES: str(128 << 10),
}
# No snapshot, and so no full fold, takes what the merges are to take.
MERGING: Final[Mapping[str, Any]] = {
    **{key: value for key, value in PUBLISHING.items() if key != "snapshot.interval.ms"},
    "snapshot.location": "none",
}
# Each of two tasks reads half of a burst, and writes several files of it.
READING: Final[Mapping[str, Any]] = {**TASKS, "segment.bytes": 65_536, reads.AT_ONCE: str(BURST // 4)}


class LargeReadScenario(Scenario):
    """A scenario whose armed step is taken while a burst is read at once."""

    def __init__(self, folder: Path, bootstrap: str, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, bootstrap, seed, settings)
        self.load.leave_headers_out()

    def arm(self, step: str, action: str) -> None:
        """Sends a burst, in whose work the next process that takes `step` does `action`, once."""
        self.load.pause()
        self.until(self.deployment.caught_up, "everything acknowledged is published")
        reads.forget(self.control.folder)
        super().arm(step, action)
        self.load.burst(BURST, BURST_KEYS)
        self.load.resume()

    def violations(self) -> list[str]:
        """Returns every violation; that the burst was not read at once is one."""
        count = reads.count(self.control.folder)
        missing = [] if count >= BURST // 2 else [f"only {count} records were read at once"]
        return [*missing, *super().violations()]


class LargeScenario(Scenario):
    """A scenario whose armed step is taken with a burst."""

    def __init__(self, folder: Path, bootstrap: str, seed: int, settings: Mapping[str, Any]) -> None:
        super().__init__(folder, bootstrap, seed, settings)
        self._kind = ways.REWRITE

    def arm(self, step: str, action: str) -> None:
        """Sends a burst, in whose work the next process that takes `step` does `action`, once.

        What is smaller is done before, so that the step is not that of a merge or clean which was under way.
        """
        self._kind = ways.PUBLISH if step.startswith("publish.") else ways.REWRITE
        self.load.pause()
        self.until(self.deployment.caught_up, "everything acknowledged is published")
        if step.startswith("merge."):
            self.until(self._is_merged, "nothing smaller is to be merged")
        if step.startswith("clean."):
            self.until(self._is_clean, "nothing smaller is to be cleaned")
        ways.forget(self.control.folder)
        super().arm(step, action)
        self.load.burst(BURST, BURST_KEYS)
        self.load.resume()

    def _is_merged(self) -> bool:
        logs = self.deployment.state().logs
        return all(sum(run.level == 0 for run in log.runs) < LEVEL0_FILES for log in logs)

    def _is_clean(self) -> bool:
        now_ms = SystemClock().now_ms()
        return not any(would_change(log, now_ms) for log in self.deployment.state().logs)

    def violations(self) -> list[str]:
        """Returns every violation; that the work was not large is one."""
        made = ways.read(self.control.folder, self._kind)
        large = [one for one in made if one.records >= LARGE and one.has_spilled]
        missing = [] if large else [f"no large {self._kind} in two passes, only {made}"]
        return [*missing, *super().violations()]
