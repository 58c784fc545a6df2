"""Several connectors of one worker, read by one query: what happens to one is nothing to the others."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from compactor.storage.locations import open_storage
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_FAILED, EXIT_OK
from connectors.runtime import status
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process, signal_each
from tests.support.kafka import create_topic, delete_records, delete_topic, end_offsets, produce, wait_until
from tests.support.records import random_records

pytestmark = pytest.mark.timeout(300)


class Three:
    """Three connectors, each with a topic of its own, and one worker of all of them."""

    def __init__(self, folder: Path, bootstrap: str, names: list[str]) -> None:
        self.folder = folder
        self.all = [Deployment(folder, bootstrap, name).publishing_only() for name in names]
        self.sent = 0
        for one in self.all:
            create_topic(bootstrap, one.topic, 2, cleanup_policy="delete")

    def write(self, number: int, **changes: object) -> Path:
        """Writes one connector's file; `changes` have underscores for dots."""
        self.all[number].settings |= {key.replace("_", "."): value for key, value in changes.items()}
        path = self.folder / f"connector-{number}.json"
        path.write_text(json.dumps(self.all[number].settings))
        return path

    def process(self) -> Process:
        files = [str(self.write(number)) for number in range(len(self.all))]
        worker = self.folder / "worker.json"
        worker.write_text(json.dumps(self.all[0].worker))
        return Process(["run", *files, "--worker", str(worker)], self.folder / "worker.log", {})

    def produce(self, *numbers: int) -> None:
        self.sent += 1
        for number in numbers:
            produce(self.all[number].bootstrap, self.all[number].topic, random_records(self.sent, 100))

    def publish(self, *numbers: int) -> None:
        """Sends records to these connectors' topics, and waits until they are published."""
        self.produce(*numbers)
        for number in numbers:
            wait_until(self.all[number].caught_up, f"connector {number} publishes", PROCESS_TIMEOUT_S)

    def status(self, number: int) -> str:
        one = self.all[number]
        found = status.read(open_storage(str(self.folder / "storage")).sub(one.name))
        return "" if found is None else found.state

    def check(self, *numbers: int) -> None:
        """Everything of these connectors was published, exactly once."""
        for number in numbers:
            wait_until(self.all[number].caught_up, f"connector {number} publishes", PROCESS_TIMEOUT_S)
            assert self.all[number].violations() == []


@pytest.fixture
def three(tmp_path: Path, broker: EmbeddedKafka, new_topic_name: Callable[[str], str]) -> Three:
    return Three(tmp_path, broker.bootstrap, [new_topic_name(stem) for stem in ("one", "two", "three")])


def test_one_that_lost_records_fails_alone(three: Three) -> None:
    """With on.data.loss=fail it is FAILED, and again when SIGHUP starts it; the others publish by the same query."""
    three.write(0, on_data_loss="fail", restart_backoff_initial_ms=500)
    with three.process() as worker:
        three.publish(0, 1, 2)
        epochs = [one.state().epoch for one in three.all]
        pause(worker)
        three.produce(0)
        lost = end_offsets(three.all[0].bootstrap, three.all[0].topic)
        for partition, end in lost.items():
            delete_records(three.all[0].bootstrap, three.all[0].topic, partition, end)
        three.produce(0, 1, 2)
        worker.signal_all(signal.SIGCONT)
        wait_until(lambda: three.status(0) == "FAILED", "the first fails", PROCESS_TIMEOUT_S)
        for _ in range(2):
            three.publish(1, 2)
        assert three.status(0) == "FAILED"
        worker.send(signal.SIGHUP)
        three.publish(1, 2)
        wait_until(lambda: worker.printed().count("connector FAILED") == 2, "it fails again", PROCESS_TIMEOUT_S)
        three.publish(1, 2)
        assert [one.state().epoch for one in three.all[1:]] == epochs[1:]  # neither was started again
        assert "query failed" not in worker.printed()
        worker.signal_all(signal.SIGTERM)
        assert worker.wait() == EXIT_FAILED, worker.tail()
    three.check(1, 2)


def test_a_deleted_topic_of_one_costs_the_others_nothing(three: Three) -> None:
    """Its position stays; where its partitions were asked for with the others', the brokers would answer for none.

    The connector itself goes on with its other topic, and none is started again.
    """
    first = three.all[0]
    second = create_topic(first.bootstrap, f"{first.topic}-second", 2, cleanup_policy="delete")
    three.write(0, topics=f"{first.topic},{second}", output_topic="${topic}.compacted")

    def is_published(topic: str) -> bool:
        published = {log.partition: log.published for log in first.state().logs if log.topic == topic}
        return published == end_offsets(first.bootstrap, topic)

    with three.process() as worker:
        three.publish(0, 1, 2)
        produce(first.bootstrap, second, random_records(1, 100))
        wait_until(lambda: is_published(second), "the second topic is published", PROCESS_TIMEOUT_S)
        epochs = [one.state().epoch for one in three.all]
        delete_topic(first.bootstrap, second)
        wait_until(lambda: "source topic does not exist" in worker.printed(), "it is seen", PROCESS_TIMEOUT_S)
        for _ in range(3):
            three.publish(0, 1, 2)
        assert [one.state().epoch for one in three.all] == epochs
        unanswered = [line for line in worker.printed().splitlines() if "source is not answered" in line]
        assert [line for line in unanswered if f"connector={first.name} " not in line] == []
        worker.signal_all(signal.SIGTERM)
        assert worker.wait() == EXIT_OK, worker.tail()
    three.check(0, 1, 2)


def pause(worker: Process) -> None:
    """Stops a worker with all its processes, until SIGCONT."""
    worker.signal_all(signal.SIGSTOP)


def test_other_settings_a_changed_file_and_a_killed_task(three: Three) -> None:
    """A connector with client settings of its own is read beside the others, exactly once.

    SIGHUP restarts one whose file has changed, with the query as it was. That Spark's planner process is killed costs
    none of them a record, and no restart.
    """
    three.write(2, **{"consumer.override.fetch.max.wait.ms": 50})
    with three.process() as worker:
        three.publish(0, 1, 2)
        epochs = [one.state().epoch for one in three.all]
        three.write(0, min_compaction_lag_ms=1)
        worker.send(signal.SIGHUP)
        three.publish(1, 2)
        wait_until(lambda: three.all[0].state().epoch > epochs[0], "the first is started again", PROCESS_TIMEOUT_S)
        three.publish(0, 1, 2)
        assert [one.state().epoch for one in three.all[1:]] == epochs[1:]
        assert "query failed" not in worker.printed()
        for _ in range(3):
            three.produce(0, 1, 2)
            assert signal_each(worker.processes("python_streaming_source_runner"), signal.SIGKILL)
            three.publish(0, 1, 2)
        assert [one.state().epoch for one in three.all] == [epochs[0] + 1, *epochs[1:]]
        worker.signal_all(signal.SIGTERM)
        assert worker.wait() == EXIT_OK, worker.tail()
    three.check(0, 1, 2)
