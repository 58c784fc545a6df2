"""A command that publishes ends once readers see it, however late the broker ends its transactions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import Mock

import pytest

from compactor.errors import NotVisibleError
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.sinks import output_visibility
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, end_offsets, open_transaction, produce, wait_until
from tests.support.late_markers import MarkerGate, broker_with_gate
from tests.support.records import read_snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = [(number % 2, b"%d" % (number % 40), b"v" if number % 3 else None) for number in range(120)]
KEYLESS = [(0, None, b"no key")]


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedKafka, MarkerGate]]:
    with broker_with_gate(tmp_path_factory.mktemp("gated")) as running:
        yield running


class Once:
    """`run --once` of a connector in a thread; `error` is what it ended with."""

    def __init__(self, spark: SparkSession, deployment: Deployment) -> None:
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(spark, deployment))
        self._thread.start()

    def _run(self, spark: SparkSession, deployment: Deployment) -> None:
        try:
            deployment.run_once(spark)
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(60)
        assert self.ended


def _deployment(folder: Path, broker: EmbeddedKafka, topic: str) -> Deployment:
    create_topic(broker.bootstrap, topic, 2, cleanup_policy="delete")
    produce(broker.bootstrap, topic, RECORDS)
    return Deployment(folder, broker.bootstrap, topic)


def _visible(deployment: Deployment, topic: str) -> bool:
    """Whether a reader of `topic` sees all that is there."""
    return end_offsets(deployment.bootstrap, topic) == end_offsets(deployment.bootstrap, topic, "read_uncommitted")


def test_once_ends_when_readers_see_what_it_published(
    spark: SparkSession,
    gated: tuple[EmbeddedKafka, MarkerGate],
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the markers are late it waits and takes no snapshot; then readers see every record and dead letter."""
    broker, gate = gated
    deployment, dead = _deployment(tmp_path, broker, topic_name), f"{topic_name}.dead"
    produce(broker.bootstrap, topic_name, KEYLESS)
    deployment.settings |= {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dead}
    log = Mock()
    monkeypatch.setattr(output_visibility, "_log", log)
    gate.close()
    once = Once(spark, deployment)
    try:
        wait_until(lambda: once.ended or log.info.called, "it waits for the markers", 60)
        assert gate.held
        assert deployment.has_published({0: 61, 1: 60})
        assert not _visible(deployment, deployment.output)
        assert not _visible(deployment, dead)
        assert not once.ended
        assert deployment.state().snapshots == ()
    finally:
        gate.open()
    once.join()
    assert once.error is None
    assert _visible(deployment, deployment.output)
    assert _visible(deployment, dead)
    assert len(consume_all(broker.bootstrap, deployment.output)) == 40
    manifest, _ = read_snapshot(deployment)
    assert all(
        manifest["output_offsets"][str(number)] <= end
        for number, end in end_offsets(broker.bootstrap, deployment.output).items()
    )


@pytest.mark.long  # the error and its time limit are tried by test_output_visibility.py
def test_a_foreign_transaction_is_not_waited_for_without_end(
    spark: SparkSession,
    gated: tuple[EmbeddedKafka, MarkerGate],
    tmp_path: Path,
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that was opened below our records hides them: the run ends with an error. One above them hides none."""
    broker, gate = gated
    gate.open()
    deployment = _deployment(tmp_path, broker, topic_name)
    deployment.run_once(spark)
    monkeypatch.setattr(output_visibility, "VISIBLE_MS", 2_000)
    with open_transaction(broker.bootstrap, deployment.output, [(0, b"theirs", b"v")]):
        deployment.run_once(spark)
        produce(broker.bootstrap, topic_name, [(0, b"later", b"v")])
        with pytest.raises(NotVisibleError, match=rf"{deployment.output}-0 is visible up to offset"):
            deployment.run_once(spark, snapshot_location="none")
    deployment.run_once(spark)
    assert _visible(deployment, deployment.output)
