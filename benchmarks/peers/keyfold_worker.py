"""A keyfold worker on one topic, with its defaults and what is set beside them, that runs until it is told to end."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.harness.process import Running, running
from benchmarks.peers.committed import reached


class Worker:
    """`running` is its process, `published()` a condition: all that its topic holds now is. Made by `working`.

    `group` is the consumer group whose positions say so.
    """

    def __init__(self, running: Running, name: str, catalog: Path, published: Callable[[], Callable[[], bool]]) -> None:
        self.running = running
        self.name = name
        self.output = output_of(name)
        self.group = group_of(name)
        self.published = published
        self._catalog = catalog

    def has_read(self) -> bool:
        """Whether a commit of its catalog names a run: its first micro-batch is in."""
        return any('"append"' in one.read_text(encoding="utf-8") for one in self._catalog.glob("*.json"))


def output_of(name: str) -> str:
    """The output topic of the connector `name`."""
    return f"{name}-out"


def group_of(name: str) -> str:
    """The consumer group of the connector `name`."""
    return f"connect-{name}"


@contextmanager
def working(
    bootstrap: str,
    topic: str,
    folder: Path,
    connector_settings: Mapping[str, str] | None = None,
    worker_settings: Mapping[str, str] | None = None,
    name: str | None = None,
    *,
    once: bool = False,
) -> Iterator[Worker]:
    """A worker for as long as the block runs; the settings come on top of those that it needs.

    With the `name` of an earlier one in the same `folder` it goes on with that; `once` is `run --once`.
    """
    name, storage = name or f"bench-{uuid4().hex[:8]}", folder / "storage"
    connector = {
        "name": name,
        "connector.class": "keyfold.CompactedTopic",
        "topics": topic,
        "output.topic": output_of(name),
        "output.topic.replication.factor": 1,
        **(connector_settings or {}),
    }
    worker = {
        "bootstrap.servers": bootstrap,
        "storage.location": str(storage),
        "log.format": "json",
        **(worker_settings or {}),
    }
    files = folder / "connector.json", folder / "worker.json"
    for file, content in zip(files, (connector, worker), strict=True):
        file.write_text(json.dumps(content), encoding="utf-8")
    command = [sys.executable, "-m", "connectors.cli.main", "run", str(files[0]), "--worker", str(files[1])]
    command.extend(["--once"] if once else [])
    published = partial(reached, bootstrap, group_of(name), topic)
    with running(command, folder / "keyfold.log") as started:
        yield Worker(started, name, storage / name / "catalog", published)
