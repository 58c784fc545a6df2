"""Kafka Streams as a peer; its JAR files are fetched once into the user's cache, as the embedded broker's are."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.harness.process import Used, running
from benchmarks.harness.row import MissingError
from benchmarks.harness.topics import committed_to_end, create_topic, end_offsets
from connectors.jvm.artifacts import KAFKA_VERSION, default_cache, retrieve

_PROGRAM: Final = Path(__file__).with_name("Latest.java")
_MODULE: Final = f"""<ivy-module version="2.0">
  <info organisation="keyfold" module="benchmarks"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka-streams" rev="{KAFKA_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""


class KafkaStreams:
    """`groupByKey().reduce(latest).toStream().to()`, exactly once, 2 threads, a record cache of 256 MiB."""

    name = "Kafka Streams"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        if shutil.which("javac") is None:
            raise MissingError("there is no JDK: javac is not on the PATH")
        jars = str(_streams_jars(default_cache()) / "*")
        subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(_PROGRAM)], check=True)
        group = f"streams-{uuid4().hex[:8]}"
        path = os.pathsep.join((jars, str(folder)))
        arguments = [bootstrap, topic, f"{group}-out", group, str(folder / "state")]
        create_topic(bootstrap, f"{group}-out", len(end_offsets(bootstrap, topic)), "compact")
        command = ["java", "-cp", path, "Latest", *arguments]
        with running(command, folder / "streams.log") as started:
            return started.used(committed_to_end(bootstrap, group, topic))


def _streams_jars(cache: Path) -> Path:
    """Returns the folder with the JAR files below `cache`.

    Raises:
        UnreachableError: Maven's repository cannot be reached.
    """
    target = cache / f"kafka-streams-{KAFKA_VERSION}"
    if not target.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as scratch:
            retrieve(_MODULE, Path(scratch), Path(scratch, "jars"))
            Path(scratch, "jars").rename(target)
    return target
