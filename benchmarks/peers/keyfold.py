"""keyfold as a peer: a worker process with a connector on each of some topics, its defaults and given settings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

from msgspec import Struct

from benchmarks.harness.process import Running, Used, running
from benchmarks.harness.topics import all_have_records, committed_to_end

OUTPUT_BY_TOPIC: Final = "${topic}-out"
"""Names the output after the source, as a connector with several sources has to."""
FIRST_S: Final = 900.0
"""How long (s) until each connector has published: a hundred take some minutes. One that fails is not waited for."""


class Keyfold:
    """A worker without snapshots, which no other peer makes, with `connector` and `worker` settings."""

    def __init__(
        self,
        connector: Mapping[str, str] | None = None,
        worker: Mapping[str, str] | None = None,
        name: str = "keyfold",
    ) -> None:
        self.name = name
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
    name = name or f"bench-{uuid4().hex[:8]}"
    files = [write_connector(folder, name, topic, connector_settings)]
    command = _command(bootstrap, folder, files, worker_settings)
    command.extend(["--once"] if once else [])
    published = partial(committed_to_end, bootstrap, group_of(name), topic)
    with running(command, folder / "keyfold.log") as started:
        yield Worker(started, name, folder / "storage" / name / "catalog", published)


class Connectors(Struct, frozen=True):
    """A worker that runs a connector for each of `topics`, in their order, with its files in `folder`."""

    running: Running
    bootstrap: str
    folder: Path
    topics: tuple[str, ...]
    names: tuple[str, ...]

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output topics, in the order of the connectors."""
        return tuple(f"{topic}-out" for topic in self.topics)

    def has_published(self) -> bool:
        """Whether each output topic has a committed record."""
        return all_have_records(self.bootstrap, self.outputs)

    def until_published(self, longest_s: float = FIRST_S) -> float:
        """Waits until each output topic has a committed record; returns the seconds since the start.

        Raises:
            RuntimeError: the worker ended before that, or `longest_s` are over; has the end of its log.
        """
        return self.running.until(self.has_published, longest_s)

    def published(self) -> Callable[[], bool]:
        """Returns a condition: all that the source topics hold at this call is published."""
        pairs = zip(self.names, self.topics, strict=True)
        conditions = [committed_to_end(self.bootstrap, group_of(name), topic) for name, topic in pairs]
        return lambda: all(reached() for reached in conditions)


@contextmanager
def running_connectors(
    bootstrap: str,
    topics: Sequence[str],
    folder: Path,
    connector_settings: Mapping[str, str] | None = None,
    worker_settings: Mapping[str, str] | None = None,
) -> Iterator[Connectors]:
    """Runs one worker with a connector for each of `topics` during the block."""
    stem = f"bench-{uuid4().hex[:8]}"
    names = tuple(f"{stem}-{number}" for number in range(len(topics)))
    settings = {"output.topic": OUTPUT_BY_TOPIC, **(connector_settings or {})}
    files = [write_connector(folder, name, topic, settings) for name, topic in zip(names, topics, strict=True)]
    with running(_command(bootstrap, folder, files, worker_settings), folder / "keyfold.log") as started:
        yield Connectors(started, bootstrap, folder, tuple(topics), names)


def write_connector(folder: Path, name: str, topics: str, settings: Mapping[str, str] | None = None) -> Path:
    """Writes the file of connector `name` on `topics`, with commas between them, into `folder`; returns it.

    The given settings override those that it needs; `topics.regex` has to be among them where `topics` is empty.
    """
    connector = {
        "name": name,
        "connector.class": "keyfold.CompactedTopic",
        **({"topics": topics} if topics else {}),
        "output.topic": output_of(name),
        "output.topic.replication.factor": 1,
        **(settings or {}),
    }
    file = folder / f"{name}.json"
    file.write_text(json.dumps(connector), encoding="utf-8")
    return file


def command_on(name: str, folder: Path, connector: str, *options: str) -> list[str]:
    """Returns keyfold's command `name` on a connector whose files are in `folder`."""
    files = [str(folder / f"{connector}.json"), "--worker", str(folder / "worker.json")]
    return [sys.executable, "-m", "connectors.cli.main", name, *files, "--json", *options]


def _command(bootstrap: str, folder: Path, files: Sequence[Path], settings: Mapping[str, str] | None) -> list[str]:
    """Writes the worker's file into `folder`; returns the command that runs the connectors of `files`."""
    worker = {
        "bootstrap.servers": bootstrap,
        "storage.location": str(folder / "storage"),
        "log.format": "json",
        "listeners": "http://127.0.0.1:0",  # any free port: another worker may have the usual one
        **(settings or {}),
    }
    file = folder / "worker.json"
    file.write_text(json.dumps(worker), encoding="utf-8")
    connectors = [str(one) for one in files]
    return [sys.executable, "-m", "connectors.cli.main", "run", *connectors, "--worker", str(file)]
