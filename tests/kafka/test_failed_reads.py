"""A connector that fails again and again leaves nothing in the worker's process: no thread, no file, no collector."""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import psutil
import pytest
from msgspec.structs import replace

from compactor.errors import StorageError
from compactor.storage.local import LocalStorage
from connectors.chain.spec import chain_spec
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import RegistryError
from connectors.kafka import consumers
from connectors.source.options import SourceOptions
from connectors.source.portion import Offer
from connectors.source.read_route import Route
from connectors.source.read_task import read_apart
from connectors.threads import CancellableThread
from tests.support.broker_source import BrokerSource
from tests.support.engine import intake
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.source_options import source_options

STARTS = 6
RECORDS = 3_000
VALUE = b"v" * 8_000
"""Records of this size fill a row group before all of them are read: the reader has some left when its store fails."""


class Full(LocalStorage):
    """A store that takes no file."""

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        """Refuses."""
        yield from ()
        raise StorageError(f"{path} cannot be written: no space left on device.")


def full_store(options: SourceOptions, folder: Path) -> SourceOptions:
    return replace(options, intake=intake(Full(str(folder))))


def registry_that_is_away(options: SourceOptions, folder: Path) -> SourceOptions:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    settings = {
        "compaction.key.identity": "avro",
        "key.converter": "keyfold.Avro",
        "key.converter.schema.registry.url": url,
    }
    return replace(options, intake=intake(LocalStorage(str(folder))), chain=chain_spec(settings))


def used() -> tuple[int, int]:
    """Counts the threads and the open files of this process, librdkafka's among them."""
    process = psutil.Process()
    return process.num_threads(), process.num_fds()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(full_store, StorageError), (registry_that_is_away, RegistryError)],
    ids=["store", "registry"],
)
def test_failed_starts_leave_nothing(
    broker: EmbeddedKafka,
    topic_name: str,
    tmp_path: Path,
    fault: Callable[[SourceOptions, Path], SourceOptions],
    expected: type[Exception],
) -> None:
    """Each error is kept, as that of a FAILED connector is; consumers are closed, and the collector is on."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, [(0, b"\0\0\0\0\x01\2k", VALUE)] * RECORDS)
    found = BrokerSource(broker.bootstrap, topic_name).range(topic_name, 0, RECORDS)
    given = {"bootstrap.servers": broker.bootstrap}
    options = fault(source_options(given, [topic_name]), tmp_path)
    offer = Offer(options, (found,), {}, Route.DRIVER)
    kept: list[CancellableThread] = []
    counts: list[tuple[int, int]] = []
    for _ in range(STARTS):
        thread = CancellableThread("reading", lambda halted: read_apart(cast("Any", None), offer, halted.is_set))
        thread.start()
        assert thread.join(60)
        assert isinstance(thread.failure, expected)
        kept.append(thread)
        assert gc.isenabled()
        counts.append(used())
    consumers.close_idle()
    first_threads, first_files = counts[0]
    wait_until(lambda: used()[0] <= first_threads, f"no thread more than after the first of {counts}", 10)
    assert used()[1] <= first_files + 2, counts
