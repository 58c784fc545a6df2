"""Several connectors of one worker, read by one query: what happens to one is nothing to the others."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from compactor.storage.locations import open_storage
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_FAILED
from connectors.runtime import status
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process, signal_each
from tests.support.kafka import create_topic, delete_records, delete_topic, end_offsets, produce, wait_until
from tests.support.records import random_records

pytestmark = pytest.mark.timeout(300)


class Several:
    """Connectors by their names, each with a topic of its own, and one worker of all of them."""

    def __init__(self, folder: Path, bootstrap: str, *names: str) -> None:
        self.folder = folder
        stem = uuid4().hex[:10]
        self.all = {name: Deployment(folder, bootstrap, f"{name}-{stem}").publishing_only() for name in names}
        # How often records were sent; the seed of the last ones.
        self._sent = 0
        for one in self.all.values():
            create_topic(bootstrap, one.topic, 2, cleanup_policy="delete")

    def write(self, name: str, **changes: object) -> Path:
        """Writes one connector's file; `changes` have underscores for dots."""
        self.all[name].settings |= {key.replace("_", "."): value for key, value in changes.items()}
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(self.all[name].settings))
        return path

    def process(self) -> Process:
        files = [str(self.write(name)) for name in self.all]
        worker = self.folder / "worker.json"
        worker.write_text(json.dumps(next(iter(self.all.values())).worker))
        return Process(["run", *files, "--worker", str(worker)], self.folder / "worker.log", {})

    def produce(self, *names: str) -> None:
        self._sent += 1
        for name in names:
            produce(self.all[name].bootstrap, self.all[name].topic, random_records(self._sent, 100))

    def publish(self, *names: str) -> None:
        """Sends records to these connectors' topics, and waits until they are published."""
        self.produce(*names)
        for name in names:
            wait_until(self.all[name].caught_up, f"connector {name} publishes", PROCESS_TIMEOUT_S)

    def epochs(self, *names: str) -> list[int]:
        """Returns how often each of these connectors was taken over."""
        return [self.all[name].state().epoch for name in names]

    def status(self, name: str) -> str:
        found = status.read(open_storage(str(self.folder / "storage")).sub(self.all[name].name))
        return "" if found is None else found.state

    def check(self, *names: str) -> None:
        """Everything of these connectors was published, exactly once."""
        for name in names:
            wait_until(self.all[name].caught_up, f"connector {name} publishes", PROCESS_TIMEOUT_S)
            assert self.all[name].violations() == []


LOSING, TWO_TOPICS, OVERRIDING, OTHER = "losing", "two-topics", "overriding", "other"
"""The connectors of `several`: each but the last has what one test does something to."""


@pytest.fixture(scope="module")
def several(broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Several:
    """Four connectors; one has two topics, of which the second is named after the first."""
    made = Several(tmp_path_factory.mktemp("several"), broker.bootstrap, LOSING, TWO_TOPICS, OVERRIDING, OTHER)
    made.write(LOSING, on_data_loss="fail", restart_backoff_initial_ms=500)
    first = made.all[TWO_TOPICS]
    create_topic(first.bootstrap, f"{first.topic}-second", 2, cleanup_policy="delete")
    made.write(TWO_TOPICS, topics=f"{first.topic},{first.topic}-second", output_topic="${topic}.compacted")
    made.write(OVERRIDING, **{"consumer.override.fetch.max.wait.ms": 50})
    return made


@pytest.fixture(scope="module")
def worker(several: Several) -> Iterator[Process]:
    """The worker of `several`. SIGTERM ends it, with exit code 1 if one of them has failed by then."""
    with several.process() as running:
        several.publish(LOSING, TWO_TOPICS, OVERRIDING, OTHER)
        yield running
        failed = several.status(LOSING) == "FAILED"
        running.signal_all(signal.SIGTERM)
        assert running.wait() == (EXIT_FAILED if failed else 0), running.tail()


def test_other_settings_a_changed_file_and_a_killed_task(several: Several, worker: Process) -> None:
    """A connector with client settings of its own is read beside the others, exactly once.

    SIGHUP restarts one whose file has changed, with the query as it was. That Spark's planner process is killed costs
    none of them a record, and no restart.
    """
    (before,), others = several.epochs(OTHER), several.epochs(TWO_TOPICS, OVERRIDING)
    several.write(OTHER, min_compaction_lag_ms=1)
    worker.send(signal.SIGHUP)
    several.publish(TWO_TOPICS, OVERRIDING)
    wait_until(lambda: several.epochs(OTHER) > [before], "it is started again", PROCESS_TIMEOUT_S)
    several.publish(TWO_TOPICS, OVERRIDING, OTHER)
    assert several.epochs(TWO_TOPICS, OVERRIDING) == others
    assert "query failed" not in worker.printed()
    for _ in range(2):
        several.produce(TWO_TOPICS, OVERRIDING, OTHER)
        # What the first kill left is read apart, and may be published before Spark has a planner again.
        wait_until(
            lambda: signal_each(worker.processes("python_streaming_source_runner"), signal.SIGKILL) > 0,
            "Spark's planner is there, and killed",
            PROCESS_TIMEOUT_S,
        )
        several.publish(TWO_TOPICS, OVERRIDING, OTHER)
    assert several.epochs(OTHER, TWO_TOPICS, OVERRIDING) == [before + 1, *others]
    several.check(TWO_TOPICS, OVERRIDING, OTHER)


def test_one_that_lost_records_fails_alone(several: Several, worker: Process) -> None:
    """With on.data.loss=fail it is FAILED, and again when SIGHUP starts it; the others publish by the same query."""
    losing, others = several.all[LOSING], (OVERRIDING, OTHER)
    several.publish(LOSING, *others)
    epochs, failures = several.epochs(*others), worker.printed().count("query failed")
    worker.signal_all(signal.SIGSTOP)
    several.produce(LOSING)
    for partition, end in end_offsets(losing.bootstrap, losing.topic).items():
        delete_records(losing.bootstrap, losing.topic, partition, end)
    several.produce(LOSING, *others)
    worker.signal_all(signal.SIGCONT)
    wait_until(lambda: several.status(LOSING) == "FAILED", "it fails", PROCESS_TIMEOUT_S)
    for _ in range(2):
        several.publish(*others)
    assert several.status(LOSING) == "FAILED"
    worker.send(signal.SIGHUP)
    several.publish(*others)
    wait_until(lambda: worker.printed().count("connector FAILED") == 2, "it fails again", PROCESS_TIMEOUT_S)
    several.publish(*others)
    assert several.epochs(*others) == epochs  # neither was started again
    assert worker.printed().count("query failed") == failures
    several.check(*others)


@pytest.mark.long  # kafka/test_source_outcomes.py has a deleted topic
def test_a_deleted_topic_of_one_costs_the_others_nothing(several: Several, worker: Process) -> None:
    """Its position stays; if its partitions were asked for with the others', the brokers would answer for none.

    The connector itself goes on with its other topic, and none is started again.
    """
    first, names = several.all[TWO_TOPICS], (TWO_TOPICS, OVERRIDING, OTHER)
    second = f"{first.topic}-second"

    def is_published(topic: str) -> bool:
        published = {log.partition: log.published for log in first.state().logs if log.topic == topic}
        return published == end_offsets(first.bootstrap, topic)

    before = len(worker.printed())
    several.publish(*names)
    produce(first.bootstrap, second, random_records(1, 100))
    wait_until(lambda: is_published(second), "the second topic is published", PROCESS_TIMEOUT_S)
    epochs = several.epochs(*names)
    delete_topic(first.bootstrap, second)
    wait_until(lambda: "source topic does not exist" in worker.printed(), "it is seen", PROCESS_TIMEOUT_S)
    for _ in range(3):
        several.publish(*names)
    assert several.epochs(*names) == epochs
    unanswered = [line for line in worker.printed()[before:].splitlines() if "source is not answered" in line]
    assert [line for line in unanswered if f"connector={first.name} " not in line] == []
    several.check(*names)
