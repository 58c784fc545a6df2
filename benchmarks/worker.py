"""A keyfold worker on one topic that runs until it is told to end, and what its process tree uses meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.committed import reached
from benchmarks.process import Meter, end

ROOT: Final = Path(__file__).parent.parent
_LONGEST_S: Final = 300.0


class Worker:
    """`keyfold run` with its defaults but for what `settings` change; made by `working`."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, settings: dict[str, object]) -> None:
        self.name = f"bench-{uuid4().hex[:8]}"
        self.output = f"{self.name}-out"
        self.catalog = folder / "storage" / self.name / "catalog"
        self.log = folder / "keyfold.log"
        self._topic, self._bootstrap = topic, bootstrap
        connector = {
            "name": self.name,
            "connector.class": "keyfold.CompactedTopic",
            "topics": topic,
            "output.topic": self.output,
            "output.topic.replication.factor": 1,
            **settings,
        }
        worker = {"bootstrap.servers": bootstrap, "storage.location": str(folder / "storage"), "log.format": "json"}
        self.files = folder / "connector.json", folder / "worker.json"
        for file, content in zip(self.files, (connector, worker), strict=True):
            file.write_text(json.dumps(content), encoding="utf-8")
        self.began = time.monotonic()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "connectors.cli.main",
                    "run",
                    str(self.files[0]),
                    "--worker",
                    str(self.files[1]),
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                start_new_session=True,
            )
        self.meter = Meter(self.process.pid)

    def until(self, condition: Callable[[], bool]) -> float:
        """Waits for `condition`; the seconds since its start. Raises RuntimeError after five minutes, or if it ends."""
        while not condition():
            if self.process.poll() is not None or time.monotonic() - self.began > _LONGEST_S:
                raise RuntimeError(f"it did not come:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.02)
        return time.monotonic() - self.began

    def has_read(self) -> bool:
        """Whether a commit of its catalog names a run: its first micro-batch is in."""
        commits = self.catalog.glob("*.json")
        return any('"append"' in one.read_text(encoding="utf-8") for one in commits)

    def published(self) -> Callable[[], bool]:
        """A condition: everything that its topic holds now is published."""
        return reached(self._bootstrap, f"connect-{self.name}", self._topic)


@contextmanager
def working(bootstrap: str, topic: str, folder: Path, **settings: object) -> Iterator[Worker]:
    """A worker for as long as the block runs; settings with `_` for `.`."""
    worker = Worker(bootstrap, topic, folder, {key.replace("_", "."): value for key, value in settings.items()})
    try:
        yield worker
    finally:
        worker.meter.stop()
        end(worker.process, signal.SIGTERM)
