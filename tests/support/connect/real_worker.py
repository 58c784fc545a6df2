"""Runs Kafka Connect itself, distributed, from its Maven artifacts."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

from connectors.dev.embedded_kafka import EmbeddedKafka, free_port
from connectors.jvm.artifacts import KAFKA_VERSION, retrieve
from connectors.jvm.cache import default_cache
from connectors.jvm.java import find_java
from tests.support.connect.asking import Sink
from tests.support.kafka import wait_until

SINK: Final = Sink("org.apache.kafka.connect.file.FileStreamSinkConnector", "FileStreamSink")
STARTED_S: Final = 120.0
_MAIN: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
_MODULES: Final = ("connect-runtime", "connect-file", "connect-json")
_IVY: Final = """<ivy-module version="2.0">
  <info organisation="keyfold" module="connect"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    {dependencies}
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4" conf="default->default"/>
  </dependencies>
</ivy-module>
"""
_DEPENDENCY: Final = '<dependency org="org.apache.kafka" name="{name}" rev="{version}" conf="default->default"/>'


def ensure_connect() -> Path:
    """Returns the folder with Kafka Connect's JARs, which are fetched now where they are not there."""
    target = default_cache() / f"connect-{KAFKA_VERSION}"
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n    ".join(_DEPENDENCY.format(name=name, version=KAFKA_VERSION) for name in _MODULES)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        fetched = Path(scratch, "jars")
        retrieve(_IVY.format(dependencies=lines), Path(scratch), fetched)
        with suppress(FileExistsError):  # another process was quicker
            shutil.move(fetched, target)
    return target


@contextmanager
def real_worker(broker: EmbeddedKafka, folder: Path) -> Iterator[str]:
    """Runs a worker during the block; yields its address."""
    url = f"http://127.0.0.1:{free_port()}"
    settings = {
        "bootstrap.servers": broker.bootstrap,
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
        "plugin.discovery": "service_load",
    }
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    with (folder / "connect.log").open("wb") as log:
        command = [find_java(), "-Xmx512m", "-cp", f"{ensure_connect()}/*", _MAIN, str(properties)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: _is_ready(url), "Kafka Connect answers", STARTED_S)
            yield url
        finally:
            process.terminate()
            process.wait(STARTED_S)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=10.0).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
