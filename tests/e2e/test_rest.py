"""Connectors that are made, paused, stopped and deleted over REST, on a running worker and a real broker."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_OK
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import create_topic, end_offsets, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)

READS = 300
READ_S = 0.05
IDLE_S = 0.01
ROUNDS = 5
FRESH_S = 2.5
CLIENTS = 32
REQUESTS = 2_000


NewConnector = Callable[[], Deployment]
"""Gives connectors, each with a topic of its own and all in the storage of one worker."""


def _new_connectors(folder: Path, bootstrap: str, new_topic_name: Callable[[str], str]) -> NewConnector:
    def new() -> Deployment:
        topic = create_topic(bootstrap, new_topic_name("r"), 2, cleanup_policy="delete")
        return Deployment(folder, bootstrap, topic)

    return new


@pytest.fixture
def new_deployment(tmp_path: Path, broker: EmbeddedKafka, new_topic_name: Callable[[str], str]) -> NewConnector:
    """Of a worker that the test starts itself."""
    return _new_connectors(tmp_path, broker.bootstrap, new_topic_name)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of `worker`."""
    return tmp_path_factory.mktemp("rest")


@pytest.fixture(scope="module")
def watched(place: Path) -> Path:
    """The folder of the connector files of `worker`."""
    folder = place / "connectors"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def worker(broker: EmbeddedKafka, place: Path, watched: Path) -> Iterator[RestProcess]:
    """A worker for tests that do it no harm; SIGTERM ends it at the end of them all, with exit code 0."""
    settings: dict[str, Any] = {"connectors.dir": str(watched), "connectors.watch": True}
    with RestProcess(place, broker.bootstrap, **settings) as running:
        yield running
        running.send(signal.SIGTERM)
        assert running.wait() == EXIT_OK, running.tail()


@pytest.fixture
def new_connector(place: Path, broker: EmbeddedKafka, new_topic_name: Callable[[str], str]) -> NewConnector:
    """Of `worker`."""
    return _new_connectors(place, broker.bootstrap, new_topic_name)


def publish(deployment: Deployment, seed: int, count: int = 100) -> None:
    """Sends records of this moment and waits until they are published."""
    records = [record._replace(timestamp_ms=None) for record in random_records(seed, count)]
    produce(deployment.bootstrap, deployment.topic, records)
    wait_until(deployment.caught_up, "everything is published", PROCESS_TIMEOUT_S)


def check(deployment: Deployment) -> None:
    """Everything was published, exactly once."""
    wait_until(deployment.caught_up, "everything is published", PROCESS_TIMEOUT_S)
    assert deployment.violations() == []


@pytest.mark.long  # unit/connectors/runtime/test_connector_store.py has their store
def test_connectors_outlive_a_worker_that_is_killed(new_deployment: NewConnector, tmp_path: Path) -> None:
    """After `kill -9` the next worker has them, with their config and state: RUNNING, PAUSED or STOPPED."""
    running, paused, stopped = (new_deployment() for _ in range(3))
    with RestProcess(tmp_path, running.bootstrap) as worker:
        worker.create(running)
        worker.create(paused, initial_state="PAUSED")
        worker.create(stopped)
        publish(stopped, 1)
        worker.ask("PUT", f"/connectors/{stopped.name}/stop")
        worker.signal_all(signal.SIGKILL)
        worker.wait()
    for number, one in enumerate((running, paused, stopped)):
        produce(one.bootstrap, one.topic, random_records(2 + number, 100))
    with RestProcess(tmp_path, running.bootstrap) as worker:
        found = worker.ask("GET", "/connectors?expand=info").json()
        assert sorted(found) == sorted(one.name for one in (running, paused, stopped))
        assert found[running.name]["info"]["config"]["topics"] == running.topic
        check(running)
        worker.until_state(paused.name, "PAUSED")
        assert worker.state(stopped.name) == "STOPPED"
        assert not paused.taken_over() or sum(paused.published().values()) == 0
        for one in (paused, stopped):
            worker.ask("PUT", f"/connectors/{one.name}/resume")
        for one in (paused, stopped):
            check(one)


def test_a_connector_lives_over_rest(worker: RestProcess, new_connector: NewConnector) -> None:
    """It is made while the worker runs, paused, resumed, stopped and deleted; nothing is lost or sent twice.

    While it is PAUSED or STOPPED nothing is taken in and nothing sent. What it has kept is there when it is made again.
    """
    wait_until(lambda: worker.ask("GET", "/").json()["kafka_cluster_id"], "the cluster has told its id")
    paused, stopped = both = new_connector(), new_connector()
    for one in both:
        assert worker.create(one).status_code == 201
    for one in both:
        worker.until_state(one.name, "RUNNING")
        publish(one, 1)
    worker.ask("PUT", f"/connectors/{paused.name}/pause")
    worker.ask("PUT", f"/connectors/{stopped.name}/stop")
    worker.until_state(paused.name, "PAUSED")
    worker.until_state(stopped.name, "STOPPED")
    before = [(one.state().logs, end_offsets(one.bootstrap, one.output)) for one in both]
    for one in both:
        produce(one.bootstrap, one.topic, random_records(2, 100))
    other = new_connector()  # goes on meanwhile, so that time in which nothing happens is no guess
    worker.create(other)
    publish(other, 2)
    worker.ask("DELETE", f"/connectors/{other.name}")
    assert [(one.state().logs, end_offsets(one.bootstrap, one.output)) for one in both] == before
    for one in both:
        worker.ask("PUT", f"/connectors/{one.name}/resume")
    for one in both:
        worker.until_state(one.name, "RUNNING")
        check(one)
    assert worker.ask("DELETE", f"/connectors/{paused.name}").status_code == 204
    assert worker.state(paused.name) == ""
    produce(paused.bootstrap, paused.topic, random_records(3, 100))
    wait_until(lambda: worker.create(paused).status_code == 201, "it is made again", PROCESS_TIMEOUT_S)
    check(paused)


def test_files_of_the_folder_come_and_go(worker: RestProcess, watched: Path, new_connector: NewConnector) -> None:
    """With connectors.watch a new file is a new connector, a faulty one harms no other, a removed one ends its own."""
    one, two = new_connector(), new_connector()
    (watched / "one.json").write_text(json.dumps(one.settings))
    publish(one, 1)
    (watched / "faulty.json").write_text("{")
    worker.until_logged("connector file is not valid")
    (watched / "two.json").write_text(json.dumps(two.settings))
    publish(two, 2)
    refused = worker.ask("DELETE", f"/connectors/{one.name}")
    assert (refused.status_code, "one.json" in refused.json()["message"]) == (409, True)
    (watched / "one.json").unlink()
    wait_until(lambda: worker.state(one.name) == "", "the first is gone", PROCESS_TIMEOUT_S)
    publish(two, 3)
    check(two)
    (watched / "faulty.json").unlink()


def test_one_fails_and_is_restarted_alone(worker: RestProcess, new_connector: NewConnector) -> None:
    """Its trace begins with what happened; /health stays, its strict form does not; the other goes on all the time."""
    good, bad = new_connector(), new_connector()
    bad.settings |= {
        "topics": f"{bad.topic}-later",
        "restart.backoff.initial.ms": 3_600_000,
        "restart.backoff.max.ms": 3_600_000,
    }
    worker.create(good)
    assert worker.create(bad).status_code == 201
    worker.until_state(bad.name, "FAILED")
    status = worker.ask("GET", f"/connectors/{bad.name}/status").json()
    assert f"{bad.topic}-later" in status["connector"]["trace"].splitlines()[0]
    assert worker.ask("GET", "/health").status_code == 200
    strict = worker.ask("GET", "/health?strict=true")
    assert (strict.status_code, bad.name in strict.json()["message"]) == (500, True)
    publish(good, 1)
    later = bad.for_topic(create_topic(bad.bootstrap, f"{bad.topic}-later", 2, cleanup_policy="delete"))
    assert worker.ask("POST", f"/connectors/{bad.name}/restart").status_code == 204
    worker.until_state(bad.name, "RUNNING")
    publish(later, 2)
    publish(good, 3)
    assert worker.ask("GET", "/health?strict=true").status_code == 200
    for one in (good, later):
        check(one)


@pytest.mark.long
def test_a_flood_leaves_the_pipeline_alone(new_deployment: NewConnector, tmp_path: Path) -> None:
    """2,000 requests of 32 clients, half of them malformed, while records come: all are answered, promises hold.

    The records are published as soon as without them.
    """
    one = new_deployment()
    codes: list[int] = []

    def ask(url: str, number: int) -> None:
        with httpx.Client(base_url=url, timeout=PROCESS_TIMEOUT_S) as client:
            codes.extend(_flood(client, one.name, number + each) for each in range(REQUESTS // CLIENTS + 1))

    with RestProcess(tmp_path, one.bootstrap) as worker:
        worker.create(one)
        publish(one, 1)
        before = freshness(worker)
        clients = [threading.Thread(target=ask, args=(worker.url, number)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        seed = 1
        while any(client.is_alive() for client in clients):
            seed += 1
            publish(one, seed)
        for client in clients:
            client.join()
        assert len(codes) >= REQUESTS
        assert p99_s(before, freshness(worker)) <= FRESH_S
        assert set(codes) == {200, 400, 404, 405, 415}
        assert worker.state(one.name) == "RUNNING"
        assert worker.ask("GET", "/connectors").json() == [one.name]
    check(one)


@pytest.mark.long
def test_reads_are_quick_while_folding(new_deployment: NewConnector, tmp_path: Path) -> None:
    """99 of 100 are answered in 50 ms, while records come, are published and are folded again and again.

    Of several rounds one has to be like that, and where this machine has more to do than this test, so that reads of an
    idle worker take longer than IDLE_S, the others may take as many times longer.
    """
    one = new_deployment()
    one.settings |= {"min.cleanable.dirty.ratio": 0}
    with RestProcess(tmp_path, one.bootstrap) as worker:
        worker.create(one)
        publish(one, 1, 20_000)
        most = READ_S * max(1.0, _p99_of_reads(worker, one.name, lambda: True) / IDLE_S)
        stop = threading.Event()

        def load() -> None:
            seed = 1
            while not stop.is_set():
                seed += 1
                publish(one, seed, 5_000)

        loading = threading.Thread(target=load)
        loading.start()
        try:
            found = [_p99_while_folding(worker, one.name)]
            while found[-1] >= most and len(found) < ROUNDS:
                found.append(_p99_while_folding(worker, one.name))
        finally:
            stop.set()
            loading.join()
    assert found[-1] < most, found


def _p99_while_folding(worker: RestProcess, name: str) -> float:
    """Returns the 99th percentile (s) of reads during which partitions were folded."""
    before = folded(worker)
    return _p99_of_reads(worker, name, lambda: folded(worker) > before)


def _p99_of_reads(worker: RestProcess, name: str, is_enough: Callable[[], bool]) -> float:
    """Reads until READS are answered and `is_enough`; returns the 99th percentile (s)."""
    paths = ("/connectors", f"/connectors/{name}/status", "/connectors?expand=status&expand=info", "/health")
    took: list[float] = []
    while len(took) < READS or not is_enough():
        for _ in range(READS // 10):
            began = time.perf_counter()
            assert worker.ask("GET", paths[len(took) % len(paths)]).status_code == 200
            took.append(time.perf_counter() - began)
    return sorted(took)[len(took) * 99 // 100]


def folded(worker: RestProcess) -> float:
    """Returns how many partitions the worker has folded fully, each as often as it was."""
    return sum(sample(worker, "keyfold_log_cleaner_compactions_total").values())


def freshness(worker: RestProcess) -> dict[float, float]:
    """Returns how many records were published up to each age in seconds."""
    found = sample(worker, "keyfold_publish_freshness_seconds_bucket")
    return {float(labels["le"]): value for labels, value in ((dict(key), value) for key, value in found.items())}


def sample(worker: RestProcess, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Returns the values of a metric by their labels."""
    families = text_string_to_metric_families(worker.ask("GET", "/metrics").text)
    return {
        tuple(sorted(one.labels.items())): one.value
        for family in families
        for one in family.samples
        if one.name == name
    }


def p99_s(before: dict[float, float], after: dict[float, float]) -> float:
    """Returns the least bound (s) up to which 99 of 100 of the records between the two were published."""
    counts = {bound: after[bound] - before.get(bound, 0.0) for bound in after}
    return min(bound for bound, count in counts.items() if count >= 0.99 * counts[math.inf])


def _flood(client: httpx.Client, name: str, number: int) -> int:
    """Sends one request, a malformed one every other time; returns the status."""
    good = ("/connectors", f"/connectors/{name}/status", "/connectors?expand=status&expand=info", "/metrics")
    if number % 2:
        return client.get(good[number // 2 % len(good)]).status_code
    bad = (
        ("POST", "/connectors", b"{", "application/json"),
        ("POST", "/connectors", b"x" * 1_000, "text/plain"),
        ("PUT", "/connectors/..%2f..%2fetc/config", b"{}", "application/json"),
        ("PATCH", "/health", b"\xff\xfe", "application/json"),
        ("GET", "/connectors/no-such-one", b"", "application/json"),
    )
    method, path, body, kind = bad[number // 2 % len(bad)]
    return client.request(method, path, content=body, headers={"Content-Type": kind}).status_code
