"""keyfold as a peer: a worker process with one connector on one topic, with its defaults and given settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from benchmarks.harness.process import Running, Used, running
from benchmarks.harness.topics import committed_to_end


class Keyfold:
    """A worker without snapshots, which no other peer makes, with `connector` and `worker` settings."""

    name = "keyfold"

    def __init__(self, connector: Mapping[str, str] | None = None, worker: Mapping[str, str] | None = None) -> None:
        self._connector, self._worker = dict(connector or {}), dict(worker or {})

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        with running_worker(bootstrap, topic, folder, self._connector, self._worker) as worker:
            return worker.running.used(worker.published())


class Worker:
    """A worker that runs; made by `running_worker`.

    `published()` returns a condition: all that the source topic holds at this call is published. `group` is the
    consumer group whose committed positions it looks at.
    """

    def __init__(self, running: Running, name: str, catalog: Path, published: Callable[[], Callable[[], bool]]) -> None:
        self.running = running
        self.name = name
        self.output = output_of(name)
        self.group = group_of(name)
        self.published = published
        self._catalog = catalog

    def has_ingested(self) -> bool:
        """Whether the first micro-batch is committed: a commit of the catalog appends a run."""
        return any('"append"' in one.read_text(encoding="utf-8") for one in self._catalog.glob("*.json"))


def output_of(name: str) -> str:
    """Returns the output topic of the connector `name`."""
    return f"{name}-out"


def group_of(name: str) -> str:
    """Returns the consumer group of the connector `name`."""
    return f"connect-{name}"


@contextmanager
def running_worker(
    bootstrap: str,
    topic: str,
    folder: Path,
    connector_settings: Mapping[str, str] | None = None,
    worker_settings: Mapping[str, str] | None = None,
    name: str | None = None,
    *,
    once: bool = False,
) -> Iterator[Worker]:
    """Runs a worker during the block; the given settings override those that it needs.

    With the `name` of an earlier connector in the same `folder` it continues that one; `once` is `run --once`.
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
    published = partial(committed_to_end, bootstrap, group_of(name), topic)
    with running(command, folder / "keyfold.log") as started:
        yield Worker(started, name, storage / name / "catalog", published)
