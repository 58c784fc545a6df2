"""Offsets of connectors on a running worker: set forward and back, reset, and read anew by `keyfold resync`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from connectors.clock import SYSTEM_CLOCK
from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.cli import invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.generations import broken, numbers, time_text
from tests.support.kafka import create_topic, delete_records, end_offsets, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the worker that all tests here share, and of its connectors."""
    return tmp_path_factory.mktemp("offsets")


@pytest.fixture(scope="module")
def running(folder: Path, broker: EmbeddedKafka) -> Iterator[RestProcess]:
    """The worker."""
    with RestProcess(folder, broker.bootstrap) as process:
        yield process


@pytest.fixture
def deployment(folder: Path, broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector on that worker, which reads a new topic of two partitions."""
    create_topic(broker.bootstrap, topic_name, partitions=2, cleanup_policy="delete")
    return Deployment(folder, broker.bootstrap, topic_name)


@pytest.fixture
def worker(running: RestProcess, deployment: Deployment) -> Iterator[RestProcess]:
    """The worker, with the connector, which has published 200 records."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    assert running.create(deployment).status_code == 201
    caught_up(deployment)
    yield running
    assert running.ask("DELETE", f"/connectors/{deployment.name}").status_code == 204


def caught_up(deployment: Deployment, *generations: int) -> None:
    """Waits until all of the source is published, in these generations."""

    def there() -> bool:
        return deployment.caught_up() and (not generations or numbers(deployment.state()) == list(generations))

    wait_until(there, "everything is published", PROCESS_TIMEOUT_S)


def alter(worker: RestProcess, deployment: Deployment, offsets: dict[int, Any], **more: Any) -> httpx.Response:
    """Asks for other offsets of the connector's partitions."""
    body = [
        {
            "partition": {"kafka_topic": deployment.topic, "kafka_partition": partition},
            "offset": None if offset is None else {"kafka_offset": offset},
        }
        for partition, offset in offsets.items()
    ]
    return worker.ask("PATCH", f"/connectors/{deployment.name}/offsets", json={"offsets": body}, **more)


def shown(worker: RestProcess, deployment: Deployment) -> list[int]:
    """The offsets that GET shows, by partition."""
    found = worker.ask("GET", f"/connectors/{deployment.name}/offsets").json()["offsets"]
    return [one["offset"]["kafka_offset"] for one in found]


def stop(worker: RestProcess, deployment: Deployment) -> None:
    """Stops the connector."""
    worker.ask("PUT", f"/connectors/{deployment.name}/stop")
    worker.until_state(deployment.name, "STOPPED")


def resume(worker: RestProcess, deployment: Deployment) -> None:
    """Lets the connector run."""
    worker.ask("PUT", f"/connectors/{deployment.name}/resume")


def test_back_forward_and_reset(worker: RestProcess, deployment: Deployment) -> None:
    """Back and reset begin generations, forward a gap that is counted; while it is not STOPPED nothing is changed."""
    name, ends = deployment.name, end_offsets(deployment.bootstrap, deployment.topic)
    refused = alter(worker, deployment, {0: 10})
    assert (refused.status_code, "must be in the STOPPED state" in refused.text) == (400, True)
    stop(worker, deployment)
    assert shown(worker, deployment) == [ends[0], ends[1]]

    done = alter(worker, deployment, {0: "10"})
    message = "The offsets for this connector have been altered successfully"
    assert (done.status_code, done.json()) == (200, {"message": message})
    assert shown(worker, deployment) == [10, ends[1]]
    resume(worker, deployment)
    caught_up(deployment, 2, 1)
    assert broken(deployment) == []

    stop(worker, deployment)
    produce(deployment.bootstrap, deployment.topic, random_records(2, 60))
    last = end_offsets(deployment.bootstrap, deployment.topic)
    assert alter(worker, deployment, {1: last[1]}).status_code == 200
    assert shown(worker, deployment)[1] == last[1]
    resume(worker, deployment)
    caught_up(deployment, 2, 1)
    given_up = range(ends[1], last[1])
    assert given_up, "some offsets must be given up, or nothing is tried"
    assert broken(deployment, {1: given_up}) == []
    connector, worker_file = deployment.write()
    described = json.loads(invoke("describe", connector, "--worker", worker_file, "--json").stdout)
    assert [one["lost_offsets"] for one in described["partitions"]] == [0, len(given_up)]

    stop(worker, deployment)
    reset = "The offsets for this connector have been reset successfully"
    for _ in range(2):  # the second finds all done
        assert worker.ask("DELETE", f"/connectors/{name}/offsets").json() == {"message": reset}
        assert shown(worker, deployment) == [0, 0]
    resume(worker, deployment)
    caught_up(deployment, 3, 2)
    assert broken(deployment) == []


@pytest.mark.parametrize(
    ("offsets", "said"),
    [({0: 100_000}, "cannot go on at offset 100000"), ({7: 0}, "keeps nothing of topic"), ({0: "x"}, "whole number")],
)
def test_what_cannot_be(worker: RestProcess, deployment: Deployment, offsets: dict[int, Any], said: str) -> None:
    """A clear 400, and nothing has changed."""
    stop(worker, deployment)
    before = deployment.state().logs
    refused = alter(worker, deployment, offsets)
    assert (refused.status_code, said in refused.json()["message"]) == (400, True), refused.text
    assert deployment.state().logs == before


@pytest.mark.long  # unit/connectors/operations/test_changed_output.py
def test_offsets_of_another_output(worker: RestProcess, deployment: Deployment) -> None:
    """They are refused while the config names another output, and nothing changes; it goes on with the first one."""
    path = f"/connectors/{deployment.name}"
    stop(worker, deployment)
    config = worker.ask("GET", f"{path}/config").json()
    assert worker.ask("PUT", f"{path}/config", json={**config, "output.topic": "another"}).status_code == 200
    before = deployment.state()
    for refused in (alter(worker, deployment, {0: 10}), worker.ask("DELETE", f"{path}/offsets")):
        assert refused.status_code == 400, refused.text
        assert "but it began with" in refused.json()["message"]
    assert (deployment.state(), shown(worker, deployment)[0]) == (before, before.logs[0].end)
    assert worker.ask("PUT", f"{path}/config", json=config).status_code == 200
    assert alter(worker, deployment, {0: 10}).status_code == 200
    resume(worker, deployment)
    caught_up(deployment, 2, 1)
    assert broken(deployment) == []


def test_records_that_the_source_has_lost(worker: RestProcess, deployment: Deployment) -> None:
    """A reset that would give keys up is refused until that is accepted; so it is by the command."""
    delete_records(deployment.bootstrap, deployment.topic, 0, 20)
    stop(worker, deployment)
    before = deployment.state().logs
    command = ("connectors", "offsets", deployment.name, "--url", worker.url, "--reset")
    refused = invoke(*command)
    assert (refused.exit_code, "begins at 20 now" in " ".join(refused.output.split())) == (3, True), refused.output
    assert deployment.state().logs == before
    said = invoke(*command, "--accept-loss")
    assert [line.split()[1:] for line in said.output.splitlines()[1:]] == [["0", "20"], ["1", "0"]]
    resume(worker, deployment)
    caught_up(deployment, 2, 2)
    assert broken(deployment) == []


def test_a_source_that_begins_above_the_position(worker: RestProcess, deployment: Deployment) -> None:
    """What was never read is a loss: the reset and the resync refuse it until it is accepted; the metric counts it."""
    stop(worker, deployment)
    produce(deployment.bootstrap, deployment.topic, random_records(2, 100))
    start, before = end_offsets(deployment.bootstrap, deployment.topic)[0] - 5, deployment.state().logs
    lost = start - deployment.published()[0]
    delete_records(deployment.bootstrap, deployment.topic, 0, start)
    connector, worker_file = deployment.write()
    for command in (
        ("connectors", "offsets", deployment.name, "--url", worker.url, "--reset"),
        ("resync", connector, "--worker", worker_file),
    ):
        refused = invoke(*command)
        assert refused.exit_code != 0
        assert f"The {lost} offsets from {start - lost} on are in no output" in " ".join(refused.output.split())
    assert deployment.state().logs == before
    assert invoke("resync", connector, "--worker", worker_file, "--accept-loss").exit_code == 0
    resume(worker, deployment)
    caught_up(deployment, 2, 2)
    assert broken(deployment) == []
    counted = f'keyfold_offsets_lost_total{{connector="{deployment.name}"}} {lost}.0'
    wait_until(lambda: counted in worker.ask("GET", "/metrics").text, "the loss is counted", PROCESS_TIMEOUT_S)


def test_resync_of_what_runs(worker: RestProcess, deployment: Deployment) -> None:
    """A worker is asked, while the connector is RUNNING, PAUSED or STOPPED; it goes on by itself where it ran.

    It is also asked to read from a time on.
    """
    connector, worker_file = deployment.write()
    command = ("resync", connector, "--worker", worker_file)
    assert invoke(*command).exit_code == 0
    caught_up(deployment, 2, 2)
    assert broken(deployment) == []
    worker.ask("PUT", f"/connectors/{deployment.name}/pause")
    worker.until_state(deployment.name, "PAUSED")
    produce(deployment.bootstrap, deployment.topic, random_records(3, 50))
    assert invoke(*command).exit_code == 0
    worker.until_state(deployment.name, "PAUSED")
    assert numbers(deployment.state()) == [3, 3]
    assert not deployment.caught_up()
    stop(worker, deployment)
    assert invoke(*command).exit_code == 0
    resume(worker, deployment)
    caught_up(deployment, 4, 4)
    assert broken(deployment) == []
    assert invoke(*command, "--since", time_text(SYSTEM_CLOCK.now_ms()), "--accept-loss").exit_code == 0
    produce(deployment.bootstrap, deployment.topic, random_records(4, 50))
    caught_up(deployment, 5, 5)
    assert broken(deployment) == []
    assert all(log.generation and log.generation.start > 0 for log in deployment.state().logs)
