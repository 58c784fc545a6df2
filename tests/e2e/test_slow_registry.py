"""A connector whose schema registry is slow holds up nobody but itself."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_OK
from tests.e2e.test_beside import Several
from tests.support.deployment import PROCESS_TIMEOUT_S
from tests.support.kafka import ToSend, produce, wait_until
from tests.support.memory.schema_registry import MemoryRegistry
from tests.support.records import random_records
from tests.unit.connectors.chain.test_key_identity import V1, encoded

pytestmark = pytest.mark.timeout(300)

ANSWERS_S = 1.0
IDS = 40
PUBLISHED_S = 15.0
"""By then the other connector has published, on a machine that does other work too; all answers take 40 s."""


class SlowRegistry(NamedTuple):
    """A registry that takes ANSWERS_S for each of IDS schemas, until `quick` is set."""

    url: str
    quick: threading.Event


@pytest.fixture
def registry() -> Iterator[SlowRegistry]:
    memory, quick = MemoryRegistry(), threading.Event()
    for number in range(IDS):
        memory.add({**V1, "doc": str(number)})

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            quick.wait(ANSWERS_S)
            found = memory.handle_request(httpx.Request("GET", f"http://memory{self.path}"))
            self.send_response(found.status_code)
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

        def log_message(self, *_: object) -> None:
            """Prints nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield SlowRegistry(f"http://127.0.0.1:{server.server_port}", quick)
        server.shutdown()


@pytest.mark.long  # kafka/test_failed_reads.py has a registry that fails
@pytest.mark.parametrize(
    "records",
    [
        pytest.param(IDS, id="the driver reads"),
        pytest.param(12_000, id="tasks of Spark's read"),
    ],
)
def test_ids_that_are_answered_slowly_hold_up_one_connector(
    tmp_path: Path, broker: EmbeddedKafka, registry: SlowRegistry, records: int
) -> None:
    """Each answer is in time; together they take 40 s, in which the other connector publishes as ever.

    Once the other has published several times, the rest is answered at once: the test waits for no more of it.
    """
    two = Several(tmp_path, broker.bootstrap, "slow", "other")
    slow, other = two.all["slow"], two.all["other"]
    slow.settings |= {
        "compaction.key.identity": "avro",
        "key.converter": "keyfold.Avro",
        "key.converter.schema.registry.url": registry.url,
    }
    with two.process() as worker:
        wait_until(lambda: slow.taken_over() and other.taken_over(), "both are there", PROCESS_TIMEOUT_S)
        two.publish("other")
        numbers = (number % IDS for number in range(records))
        made = [ToSend(number % 2, encoded(V1, number + 1, {"id": number}), b"v") for number in numbers]
        produce(broker.bootstrap, slow.topic, made)
        for _ in range(3):
            began = time.monotonic()
            produce(broker.bootstrap, other.topic, random_records(1, 100))
            wait_until(other.caught_up, "the other publishes", PUBLISHED_S)
            assert time.monotonic() - began < PUBLISHED_S
        assert not slow.caught_up()
        registry.quick.set()
        wait_until(slow.caught_up, "the slow one publishes too", PROCESS_TIMEOUT_S)
        assert "connector FAILED" not in worker.printed()
        worker.signal_all(signal.SIGTERM)
        assert worker.wait() == EXIT_OK, worker.tail()
    two.check("other")
