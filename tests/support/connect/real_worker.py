"""Runs Kafka Connect itself, distributed, from its Maven artifacts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import httpx

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.jvm.artifacts import KAFKA_VERSION
from connectors.jvm.java import find_java
from tests.support.connect.asking import Sink
from tests.support.fetched import dependency, ensure_jars, ivy_module
from tests.support.kafka import wait_until

SINK: Final = Sink("org.apache.kafka.connect.file.FileStreamSinkConnector", "FileStreamSink")
STARTED_S: Final = 120.0
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_IVY: Final = ivy_module(
    "connect",
    *(
        dependency("org.apache.kafka", name, KAFKA_VERSION)
        for name in ("connect-runtime", "connect-file", "connect-json")
    ),
    dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
)


def ensure_connect() -> Path:
    """Returns the folder with Kafka Connect's JARs, which are fetched now where they are not there."""
    return ensure_jars(f"connect-{KAFKA_VERSION}", _IVY)


class ConnectWorker:
    """A distributed worker, alone in its group; `url` is where it answers. What it knows is on the broker."""

    def __init__(self, broker: EmbeddedKafka, folder: Path, heap: str = "512m", **settings: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._log = folder / "connect.log"
        self._properties = folder / "worker.properties"
        self._heap = heap
        self._process: subprocess.Popen[bytes] | None = None
        plain = _settings(broker.bootstrap, self.url) | {
            name.replace("_", "."): text for name, text in settings.items()
        }
        self._properties.write_text("".join(f"{name}={text}\n" for name, text in plain.items()))

    def start(self) -> Self:
        """Starts it and waits until it answers, and its connectors of before are there."""
        command = [find_java(), f"-Xmx{self._heap}", "-cp", f"{ensure_connect()}/*", _MAIN, str(self._properties)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: _is_ready(self.url), "Kafka Connect answers", STARTED_S)
        return self

    def kill(self) -> None:
        """Ends it as `kill -9` does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Has it end by itself."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STARTED_S)


@contextmanager
def real_worker(broker: EmbeddedKafka, folder: Path) -> Iterator[str]:
    """Runs a worker with Kafka's own connectors during the block; yields its address."""
    worker = ConnectWorker(broker, folder, plugin_discovery="service_load")
    try:
        yield worker.start().url
    finally:
        worker.stop()


def _settings(bootstrap: str, url: str) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-worker",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "500",
        "listeners": url,
    }


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=10.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
