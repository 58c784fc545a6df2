"""A worker as an operator meets it: exit codes, SIGHUP, topics by pattern, a topic that comes later."""

from __future__ import annotations

import signal

import pytest

from connectors.dev.embedded_kafka import free_port
from connectors.errors import EXIT_OK, EXIT_UNREACHABLE
from tests.support.cli import invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import consume_all, create_topic, produce, wait_until
from tests.support.records import random_records


def holds(deployment: Deployment, topic: str, count: int) -> bool:
    """Whether the output of `topic` has come to `count` records."""
    state = deployment.state()
    known = state.topics.get(topic)
    return known is not None and len(consume_all(deployment.bootstrap, f"{topic}.compacted")) >= count


def test_a_broker_that_is_not_there_is_exit_code_4(deployment: Deployment) -> None:
    """`run --once` without a broker ends with 4 and names the address."""
    deployment.worker["bootstrap.servers"] = f"127.0.0.1:{free_port()}"
    with deployment.process("--once") as worker:
        assert worker.wait(150) == EXIT_UNREACHABLE
        assert deployment.worker["bootstrap.servers"] in worker.printed()


@pytest.mark.long  # test_rest.py has files that come and go
def test_topics_by_pattern_and_a_changed_file(deployment: Deployment) -> None:
    """A topic that appears joins, outputs never do, and SIGHUP restarts a connector whose file has changed.

    So does `keyfold restart`, which returns when the connector runs.
    """
    stem = deployment.topic
    deployment.settings["topics.regex"] = f"{stem}.*"
    del deployment.settings["topics"]
    produce(deployment.bootstrap, stem, random_records(1, 50))
    with deployment.process() as worker:
        wait_until(
            lambda: deployment.taken_over() and holds(deployment, stem, 1),
            "it publishes",
            PROCESS_TIMEOUT_S,
        )
        later = create_topic(deployment.bootstrap, f"{stem}-later", 1, cleanup_policy="delete")
        produce(deployment.bootstrap, later, [(0, b"k", b"v")])
        wait_until(lambda: holds(deployment, later, 1), "the new topic is published", PROCESS_TIMEOUT_S)
        assert set(deployment.state().topics) == {stem, later}
        epoch = deployment.state().epoch
        deployment.write(min_compaction_lag_ms=1)
        worker.send(signal.SIGHUP)
        wait_until(lambda: deployment.state().epoch > epoch, "the connector is started again", PROCESS_TIMEOUT_S)
        produce(deployment.bootstrap, later, [(0, b"k2", b"v")])
        wait_until(lambda: holds(deployment, later, 2), "it goes on", PROCESS_TIMEOUT_S)
        epoch = deployment.state().epoch
        files = deployment.write()
        shown = invoke("restart", files[0], "--worker", files[1], "--timeout", int(PROCESS_TIMEOUT_S))
        assert (shown.exit_code, "is RUNNING" in shown.stdout) == (EXIT_OK, True), shown.stderr
        assert deployment.state().epoch == epoch + 1
        worker.send(signal.SIGHUP)
        worker.until_logged("connector file unchanged: left running")
        worker.signal_all(signal.SIGTERM)  # as a service manager does: Spark's JVM is told as well
        assert worker.wait() == EXIT_OK, worker.tail()
