"""The programs that are measured, each as people run it, on a topic of a broker and in a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from benchmarks.harness import process
from benchmarks.harness.datasets import make
from benchmarks.harness.process import Used
from benchmarks.peers.committed import ends, reached
from benchmarks.peers.keyfold_worker import working
from benchmarks.peers.streams_jars import streams_jars
from connectors.jvm.artifacts import default_cache

HERE: Final = Path(__file__).parent


class MissingError(Exception):
    """A program cannot run on this machine; str() is why."""


class Peer(Protocol):
    """One program. `name` is how tables call it."""

    name: str

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """From its start until all of `topic` is done. Raises MissingError where it cannot run here."""
        ...


def run(peer: Peer, bootstrap: str, topic: str) -> Used:
    """`peer` on `topic`, in a folder that goes with it."""
    with tempfile.TemporaryDirectory() as folder:
        return peer.run(bootstrap, topic, Path(folder))


class Keyfold:
    """A worker with its defaults, and what is set beside them; no snapshots, which no peer makes."""

    name = "keyfold"

    def __init__(self, connector: Mapping[str, str] | None = None, worker: Mapping[str, str] | None = None) -> None:
        self._connector, self._worker = dict(connector or {}), dict(worker or {})

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        with working(bootstrap, topic, folder, self._connector, self._worker) as worker:
            return worker.running.used(worker.published())


class KafkaStreams:
    """`groupByKey().reduce(latest).toStream().to()`, exactly once, 2 threads, a record cache of 256 MiB."""

    name = "Kafka Streams"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        if shutil.which("javac") is None:
            raise MissingError("there is no JDK: javac is not on the PATH")
        jars = str(streams_jars(default_cache()) / "*")
        subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(HERE / "Latest.java")], check=True)
        group = f"streams-{uuid4().hex[:8]}"
        path = os.pathsep.join((jars, str(folder)))
        arguments = [bootstrap, topic, f"{group}-out", group, str(folder / "state")]
        make(bootstrap, f"{group}-out", len(ends(bootstrap, topic)), "compact")
        command = ["java", "-cp", path, "Latest", *arguments]
        with process.running(command, folder / "streams.log") as started:
            return started.used(reached(bootstrap, group, topic))


class Reading:
    """Nothing but librdkafka consuming, a process for each core: what no reader can be faster than."""

    name = "reading only"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:  # noqa: ARG002  # it keeps nothing
        """See Peer; the seconds are the slowest process's, from its first poll."""
        partitions = ends(bootstrap, topic)
        count = min(os.cpu_count() or 1, len(partitions))
        dealt = [[str(one) for one in partitions if one % count == number] for number in range(count)]
        running = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.reading", bootstrap, topic, *own],
                stdout=subprocess.PIPE, cwd=process.ROOT, text=True,
            )
            for own in dealt
        ]  # fmt: skip
        began = time.monotonic()
        printed = [one.communicate()[0] for one in running]
        if any(one.returncode < 0 for one in running):
            raise BrokenProcessPool  # it is tried again, as if this process had died
        took = [float(one) for one in printed]
        return Used(max(took), time.monotonic() - began, 0)
