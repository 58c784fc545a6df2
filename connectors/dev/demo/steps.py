"""The demo's steps, one after the other, each timed: broker, load, run, read back, readback."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
from confluent_kafka import Message, TopicPartition
from msgspec import Struct

from compactor.snapshot import listing
from connectors.clock import Clock
from connectors.dev.demo import load
from connectors.dev.demo.data import FLIGHTS, flights
from connectors.dev.demo.folder import DemoFolder
from connectors.dev.demo.named_table import QueryAnswer, carriers, name_table
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_FAILED, ConnectorError
from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import reading
from connectors.progress.observer import Observer, observing
from connectors.sinks.output_reader import OutputPartitionReader

CONNECTOR: Final = "flights"
OUTPUT: Final = "flights.compacted"
DEAD_LETTERS: Final = "flights.dead"
STEPS: Final = (
    "start the broker",
    "load the flights into the topic",
    "keyfold run --once",
    "read the outputs back",
    "query the table",
)
# How long (s) the worker may take to end after SIGTERM.
_END_S: Final = 60.0


class RunFailedError(ConnectorError):
    """`keyfold run` ended with another code than 0, after it said why; the demo ends with the same.

    A negative `code` is the signal that ended it, as in subprocess.
    """

    def __init__(self, code: int) -> None:
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        super().__init__(f"The demo's connector {how}.", "What it said stands above.")
        self.code = code if code > 0 else EXIT_FAILED


class DemoRun(Struct, frozen=True):
    """What the demo found at its end. `seconds`: how long each step took, in their order."""

    bootstrap: str
    loaded: int
    output: TopicCount
    dead_letters: TopicCount
    snapshot: Snapshot
    answer: QueryAnswer
    seconds: dict[str, float]


class Timer:
    """Takes the time of named steps, and tells a person of each as it begins."""

    def __init__(self, clock: Clock, tell: Callable[[str], object]) -> None:
        self._clock = clock
        self._tell = tell
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times the block as `name`."""
        self._tell(f"demo, step {len(self.seconds) + 1} of {len(STEPS)}: {name}")
        begin_ms = self._clock.monotonic_ms()
        yield
        self.seconds[name] = (self._clock.monotonic_ms() - begin_ms) / 1000


def play(folder: DemoFolder, clock: Clock, tell: Callable[[str], object]) -> DemoRun:
    """Plays the whole demo in `folder`; the broker has ended when this returns.

    `tell` gets a line as each step begins: on a busy machine one may take a minute. Raises RunFailedError, or what a
    step of its own fails with.
    """
    timer = Timer(clock, tell)
    folder.make_anew()
    broker = EmbeddedKafka(folder.kafka)
    try:
        with timer.step(STEPS[0]), observing(clock) as observer:
            observer.stage(CONNECTOR, "starting the broker")
            folder.write_files(broker.start().bootstrap)
        return _with_broker(folder, broker.bootstrap, clock, timer)
    finally:
        broker.stop()


def _with_broker(folder: DemoFolder, bootstrap: str, clock: Clock, timer: Timer) -> DemoRun:
    with timer.step(STEPS[1]), observing(clock) as observer:
        loaded = _load(bootstrap, observer)
    with timer.step(STEPS[2]):
        _run(folder)
    with timer.step(STEPS[3]):
        output, dead_letters = count(bootstrap, OUTPUT), count(bootstrap, DEAD_LETTERS)
    with timer.step(STEPS[4]):
        snapshot = newest_snapshot(folder.snapshots, CONNECTOR, load.TOPIC)
        name_table(folder.database, folder.snapshots / CONNECTOR / load.TOPIC / listing.CURRENT)
        answer = carriers(folder.database)
    return DemoRun(bootstrap, loaded, output, dead_letters, snapshot, answer, timer.seconds)


def _load(bootstrap: str, observer: Observer) -> int:
    observer.stage(CONNECTOR, "loading")
    load.create_topic(bootstrap)
    return load.load(bootstrap, flights(), lambda n: observer.progress(CONNECTOR, "loading", n, FLIGHTS, "flights"))


def run_command(folder: DemoFolder) -> list[str]:
    """Returns the command of the `--once` run, which is a process of its own."""
    files = [str(folder.connector_file), "--worker", str(folder.worker_file)]
    return [sys.executable, "-m", "connectors.cli.main", "run", *files, "--once"]


def _run(folder: DemoFolder) -> None:
    process = subprocess.Popen(run_command(folder), stdout=sys.stderr, cwd=Path.cwd())
    try:
        code = process.wait()
    except BaseException:  # Ctrl-C: the worker got it too, or gets SIGTERM now, and ends by itself
        process.send_signal(signal.SIGTERM)
        process.wait(_END_S)
        raise
    if code != 0:
        raise RunFailedError(code)


class TopicCount(Struct, frozen=True):
    """How much is in a topic: records, among them tombstones, and how many different keys."""

    records: int
    tombstones: int
    keys: int


def count(bootstrap: str, topic: str) -> TopicCount:
    """Reads `topic` from start to end; raises UnreachableError if its end does not come in time."""
    records = tombstones = 0
    keys: set[bytes] = set()
    for message in read(bootstrap, topic):
        records += 1
        tombstones += message.value() is None
        key = message.key()
        if key is not None:
            keys.add(key)
    return TopicCount(records, tombstones, len(keys))


def read(bootstrap: str, topic: str) -> Iterator[Message]:
    """Yields every record of `topic` up to its last stable offsets of now, partition by partition."""
    config: dict[str, Setting] = {"bootstrap.servers": bootstrap}
    partitions = Admin(config).describe([topic])[topic].partitions
    with reading(config, f"The demo's topic {topic}", topic):
        for partition in range(partitions):
            reader = OutputPartitionReader(config, TopicPartition(topic, partition))
            yield from reader.read(*reader.bounds())


class Snapshot(Struct, frozen=True):
    """A finished snapshot: its folder, and how many records its manifest promises."""

    path: Path
    records: int
    files: int


def newest_snapshot(location: Path, connector: str, topic: str) -> Snapshot:
    """Returns the snapshot that LATEST names."""
    folder = location / connector / topic
    path = folder / (folder / "LATEST").read_text(encoding="utf-8").strip()
    manifest = msgspec.json.decode((path / "_manifest.json").read_bytes())
    return Snapshot(path, manifest["records"], len(manifest["files"]))
