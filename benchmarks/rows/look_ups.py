"""How many look-ups over REST a worker answers while records come, and how late."""

from __future__ import annotations

import http.client
import random
import statistics
import tempfile
import time
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Final

from msgspec import Struct

from benchmarks.harness.call import call
from benchmarks.harness.datasets import DataSet, filled_topic, scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load, steady
from benchmarks.harness.watch import passed
from benchmarks.peers.keyfold import running_worker
from benchmarks.rows.worker import FRESH_S, PARTITIONS, RATE, SETTLE_S
from connectors.dev.embedded_kafka import free_port

KEPT: Final = DataSet(name="get", records=5_000_000, keys=5_000_000, partitions=PARTITIONS)
HOT: Final = 50_000
"""Keys that are asked for again and again, in the second half of the row."""
CONNECTIONS: Final = 4
"""Twice as many as a worker looks up side by side; each sends its next request when it has an answer."""
_TIMEOUT_S: Final = 10.0


class Asking(Struct, frozen=True, kw_only=True):
    """Clients ask `connector` on `port` for random ones of `keys` keys of each partition, one a request."""

    port: int
    connector: str
    keys: int
    seconds: float


def get(bootstrap: str) -> dict[str, float]:
    """Measures look-ups of keys of KEPT, then of HOT of them, while RATE records/s with as many keys come."""
    data = KEPT.scaled(scale())
    topic, port, settings = filled_topic(bootstrap, data), free_port(), {"state.index": "always"}
    with tempfile.TemporaryDirectory() as temporary:
        folder, listens = Path(temporary), {"listeners": f"http://127.0.0.1:{port}"}
        with running_worker(bootstrap, topic, folder, settings, once=True) as worker:
            worker.running.wait()
        load = Load(topics=(topic,), partitions=PARTITIONS, rate=RATE, keys=data.keys)
        values: dict[str, float] = {}
        with (
            running_worker(bootstrap, topic, folder, settings, listens, worker.name) as worker,
            steady(bootstrap, load, folder / "signals") as under_load,
        ):
            worker.running.until(worker.published())
            under_load.begin((worker.output,))
            worker.running.until(passed(SETTLE_S))
            began = time.time()
            worker.running.until(passed(FRESH_S))
            asked = time.time()
            for what, keys in (("", data.keys), ("hot keys, ", min(HOT, data.keys))):
                asking = Asking(port=port, connector=worker.name, keys=keys // PARTITIONS, seconds=FRESH_S)
                values |= {f"{what}{name}": value for name, value in call("look-ups", ask, asking).items()}
            ended = time.time()
            under_load.end_load()
            worker.running.until(worker.published())
            read = under_load.end()
            values["freshness before, p99, s"] = read.during(began, asked).percentile(0.99)
            values["freshness meanwhile, p99, s"] = read.during(asked, ended).percentile(0.99)
    return values


def ask(asking: Asking) -> dict[str, float]:
    """Asks for random keys on CONNECTIONS connections at once; returns look-ups per second and latencies."""
    until = time.monotonic() + asking.seconds
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        clients: list[Future[list[float]]] = [pool.submit(_client, asking, n, until) for n in range(CONNECTIONS)]
        took = sorted(chain.from_iterable(client.result() for client in clients))
    return {
        "look-ups/s": len(took) / asking.seconds,
        "p50, ms": 1_000 * statistics.median(took),
        "p99, ms": 1_000 * took[len(took) * 99 // 100],
    }


def _client(asking: Asking, number: int, until: float) -> list[float]:
    """Asks until `until`; returns the seconds that each answer took. Raises RuntimeError for a key without one."""
    chance, took = random.Random(number), list[float]()
    connection = http.client.HTTPConnection("127.0.0.1", asking.port, timeout=_TIMEOUT_S)
    while (began := time.monotonic()) < until:
        key = f"{chance.randrange(PARTITIONS)}-{chance.randrange(asking.keys):010d}"
        connection.request("GET", f"/keyfold/connectors/{asking.connector}/records?key={key}")
        answer = connection.getresponse()
        body = answer.read()
        took.append(time.monotonic() - began)
        if answer.status != http.HTTPStatus.OK or b'"offset"' not in body:
            raise RuntimeError(f"the look-up of {key} was answered with {answer.status}: {body[:200]!r}")
    connection.close()
    return took


GET: Final = Measurement(
    "get",
    f"look-ups over REST of 5 million keys while {RATE:,} records/s come",
    {"p99, ms": (20, 10), "hot keys, p99, ms": (20, 10)},
    get,
    at_least={"look-ups/s": (500, 1_000), "hot keys, look-ups/s": (500, 1_000)},
)
