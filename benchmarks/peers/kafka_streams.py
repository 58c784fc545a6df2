"""Kafka Streams as a peer; its JAR files are fetched once into the user's cache, as the embedded broker's are."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple
from uuid import uuid4

from benchmarks.harness.process import Running, Used, running
from benchmarks.harness.row import HEAP, MissingError
from benchmarks.harness.topics import committed_to_end, create_topic, end_offsets
from connectors.jvm.artifacts import KAFKA_VERSION
from tests.support.fetched import dependency, ensure_jars, ivy_module

_PROGRAM: Final = Path(__file__).with_name("Latest.java")
_OWN_COMMIT_MS: Final = 100
"""Its default with exactly-once."""
_MODULE: Final = ivy_module("benchmarks", dependency("org.apache.kafka", "kafka-streams", KAFKA_VERSION))


class KafkaStreams:
    """`groupByKey().reduce(latest)` or `builder.table()`, then `toStream().to()`: exactly once, 2 threads.

    The record cache has 256 MiB, the heap HEAP. `table` has topology optimisation: the source is its own changelog.
    """

    def __init__(self, topology: Literal["reduce", "table"] = "reduce", commit_ms: int = _OWN_COMMIT_MS) -> None:
        self._topology: Literal["reduce", "table"] = topology
        self._commit_ms = commit_ms
        self.name = _name(topology, commit_ms)

    @property
    def starts_as(self) -> KafkaStreams:
        """The same topology with its default commits: see `row.starting`."""
        return KafkaStreams(self._topology)

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        with self.running(bootstrap, topic, folder) as job:
            return job.running.used(job.published())

    @contextmanager
    def running(self, bootstrap: str, topic: str, folder: Path) -> Iterator[StreamsJob]:
        """Runs it on `topic` during the block, with its files in `folder`.

        Raises:
            MissingError: there is no JDK.
        """
        if shutil.which("javac") is None:
            raise MissingError("there is no JDK: javac is not on the PATH")
        jars = str(ensure_jars(f"kafka-streams-{KAFKA_VERSION}", _MODULE) / "*")
        subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True)
        group = f"streams-{uuid4().hex[:8]}"
        output, path = f"{group}-out", os.pathsep.join((jars, str(folder)))
        create_topic(bootstrap, output, len(end_offsets(bootstrap, topic)), "compact")
        arguments = [bootstrap, topic, output, group, str(folder / "state"), self._topology, str(self._commit_ms)]
        command = ["java", f"-Xmx{HEAP}", "-cp", path, "Latest", *arguments]
        with running(command, folder / "streams.log") as started:
            yield StreamsJob(started, output, partial(committed_to_end, bootstrap, group, topic))


class StreamsJob(NamedTuple):
    """A job that runs. `published()` returns a condition: all that the source holds at this call is published."""

    running: Running
    output: str
    published: Callable[[], Callable[[], bool]]


def _name(topology: str, commit_ms: int) -> str:
    """Returns its name in tables; what Kafka Streams does by itself goes without saying."""
    parts = [
        "Kafka Streams",
        *(["table"] if topology == "table" else []),
        *([f"commits each {commit_ms / 1000:g} s"] if commit_ms != _OWN_COMMIT_MS else []),
    ]
    return ", ".join(parts)
