"""keyfold and Kafka Connect on change events: both decode them and take the rows out of their envelopes.

Each run on Avro has an Apicurio Registry of its own, which is there before the clock begins. Plain JSON is rows, which
both read and write again without a transform.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from benchmarks.harness.change_events import AVRO, JSON, ROWS, register
from benchmarks.harness.process import Used, running
from benchmarks.harness.row import HEAP
from benchmarks.harness.topics import committed_to_end
from benchmarks.peers.keyfold import Keyfold
from connectors.dev.embedded_kafka import free_port
from connectors.jvm.java import find_java
from tests.support.apicurio import apicurio
from tests.support.apicurio_converter import avro_settings, ensure_converter
from tests.support.connect.real_worker import ensure_connect
from tests.support.connect_classes.keep import ensure_debezium

_ENVELOPE: Final = "io.debezium.transforms.ExtractNewRecordState"
_UNWRAP: Final = {
    "transforms": "row",
    "transforms.row.type": _ENVELOPE,
    "transforms.row.delete.tombstone.handling.mode": "tombstone",
}
_COMMIT_MS: Final = 1_000


class ChangesByKeyfold:
    """A worker on events in a `form` of `change_events`, keys compared by what they mean, into its output topic."""

    def __init__(self, form: str = AVRO) -> None:
        self.name = f"keyfold, change events in {form}"
        self._form = form

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer."""
        with registry_for(self._form, folder) as url:
            return Keyfold(connector=chain_settings(self._form, url)).run(bootstrap, topic, folder)


def chain_settings(form: str, registry_url: str) -> dict[str, str]:
    """Returns the settings of a connector on events in a form of `change_events`."""
    if form == AVRO:
        of_side = {"": "keyfold.Avro", ".schema.registry.url": registry_url}
    else:
        of_side = {"": "keyfold.Json", ".schemas.enable": str(form == JSON).lower()}
    return {**_steps(form), **_of_sides(of_side), "compaction.key.identity": "avro" if form == AVRO else "json"}


class ChangesByConnect:
    """Kafka Connect, standalone: `tasks.max=2`, converters for `form`, the same transform, into a file sink."""

    def __init__(self, form: str = AVRO) -> None:
        self.name = f"Kafka Connect, change events in {form}"
        self._form = form

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:
        """See Peer; what the sink has written counts once its offsets are committed, each second."""
        name = f"connect-{uuid4().hex[:8]}"
        with registry_for(self._form, folder) as url:
            worker = _properties(folder / "worker.properties", _worker(bootstrap, folder))
            connector = _properties(folder / "sink.properties", _sink(name, topic, folder, self._form, url))
            main = "org.apache.kafka.connect.cli.ConnectStandalone"
            command = [find_java(), f"-Xmx{HEAP}", "-cp", f"{ensure_connect()}/*", main, str(worker), str(connector)]
            with running(command, folder / "connect.log") as started:
                return started.used(committed_to_end(bootstrap, f"connect-{name}", topic))


@contextmanager
def registry_for(form: str, folder: Path) -> Iterator[str]:
    """Runs a registry with the schemas of events during the block, if the form needs one; yields its URL."""
    if form != AVRO:
        yield ""
        return
    with apicurio(folder) as registry:
        register(registry.url)
        yield registry.url


def _steps(form: str) -> dict[str, str]:
    return {} if form == ROWS else _UNWRAP


def _of_sides(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns settings of the converters of keys and values."""
    return {f"{side}.converter{more}": text for side in ("key", "value") for more, text in settings.items()}


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


def _sink(name: str, topic: str, folder: Path, form: str, registry_url: str) -> dict[str, str]:
    if form == AVRO:
        sides = avro_settings("key", registry_url) | avro_settings("value", registry_url)
    else:
        enabled = str(form == JSON).lower()
        sides = _of_sides({"": "org.apache.kafka.connect.json.JsonConverter", ".schemas.enable": enabled})
    return {
        "name": name,
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "tasks.max": "2",
        "topics": topic,
        "file": str(folder / "rows.txt"),
        **_steps(form),
        **sides,
    }


def _properties(file: Path, settings: Mapping[str, str]) -> Path:
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()), encoding="utf-8")
    return file
