"""keyfold and Kafka Connect on change events in Avro: both decode them and take the rows out of their envelopes.

Each run has an Apicurio Registry of its own, which is there before the clock begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.harness.change_events import register
from benchmarks.harness.process import Used, running
from benchmarks.harness.row import HEAP
from benchmarks.harness.topics import committed_to_end
from benchmarks.peers.keyfold import Keyfold
from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from tests.support.apicurio import Apicurio, apicurio
from tests.support.apicurio_converter import avro_settings, ensure_converter
from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.keep import ensure_debezium

_ENVELOPE: Final = "io.debezium.transforms.ExtractNewRecordState"
_UNWRAP: Final = {"transforms": "row", "transforms.row.type": _ENVELOPE}
_COMMIT_MS: Final = 1_000


class ChangesByKeyfold:
    """A worker with `ExtractNewRecordState` and keys compared by `identity`, into its output topic."""

    def __init__(self, identity: str = "avro") -> None:
        self.name = "keyfold, change events" + ("" if identity == "avro" else f", keys by {identity}")
        self._identity = identity

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        with _registry(folder) as registry:
            sides = {
                f"{side}.converter{more}": text
                for side in ("key", "value")
                for more, text in (("", "keyfold.Avro"), (".schema.registry.url", registry.url))
            }
            settings = {**_UNWRAP, **sides, "compaction.key.identity": self._identity}
            return Keyfold(connector=settings).run(bootstrap, topic, folder)


class ChangesByConnect:
    """Kafka Connect, standalone: `tasks.max=2`, Apicurio's AvroConverter, the same transform, into a file sink."""

    name = "Kafka Connect, change events"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer; what the sink has written counts once its offsets are committed, each second."""
        name = f"connect-{uuid4().hex[:8]}"
        with _registry(folder) as registry:
            worker = _properties(folder / "worker.properties", _worker(bootstrap, folder))
            connector = _properties(folder / "sink.properties", _sink(name, topic, folder, registry))
            main = "org.apache.kafka.connect.cli.ConnectStandalone"
            command = [find_java(), f"-Xmx{HEAP}", "-cp", f"{ensure_connect()}/*", main, str(worker), str(connector)]
            with running(command, folder / "connect.log") as started:
                return started.used(committed_to_end(bootstrap, f"connect-{name}", topic))


@contextmanager
def _registry(folder: Path) -> Iterator[Apicurio]:
    with apicurio(folder) as found:
        register(found.url)
        yield found


def _worker(bootstrap: str, folder: Path) -> dict[str, str]:
    plugins = folder / "plugins"
    plugins.mkdir()
    for name, jars in (("apicurio", ensure_converter()), ("debezium", ensure_debezium())):
        (plugins / name).symlink_to(jars)
    return {
        "bootstrap.servers": bootstrap,
        "plugin.path": str(plugins),
        "listeners": f"http://127.0.0.1:{free_port()}",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": str(_COMMIT_MS),
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "consumer.max.poll.records": "5000",
    }


def _sink(name: str, topic: str, folder: Path, registry: Apicurio) -> dict[str, str]:
    sides = avro_settings("key", registry.url) | avro_settings("value", registry.url)
    return {
        "name": name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "2",
        "topics": topic,
        "file": str(folder / "rows.txt"),
        "transforms.row.delete.tombstone.handling.mode": "tombstone",
        **_UNWRAP,
        **sides,
    }


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()), encoding="utf-8")
    return file
