"""A worker as an operator meets it: exit codes, SIGHUP, topics by pattern, a topic that comes later."""

from __future__ import annotations

import signal

from connectors.dev.embedded_kafka import free_port
from connectors.errors import EXIT_OK, EXIT_UNREACHABLE
from tests.support.cli import invoke
from tests.support.kafka import consume_all, create_topic, produce, wait_until
from tests.support.place import PATIENCE_S, Place
from tests.support.records import some_records


def holds(place: Place, topic: str, count: int) -> bool:
    """Whether the output of `topic` has come to `count` records."""
    state = place.state()
    known = state.topics.get(topic)
    return known is not None and len(consume_all(place.bootstrap, f"{topic}.compacted")) >= count


def test_a_broker_that_is_not_there_is_exit_code_4(place: Place) -> None:
    """`run --once` without a broker ends with 4 and names the address."""
    place.worker["bootstrap.servers"] = f"127.0.0.1:{free_port()}"
    with place.process("--once") as worker:
        assert worker.wait(150) == EXIT_UNREACHABLE
        assert place.worker["bootstrap.servers"] in worker.printed()


def test_topics_by_pattern_and_a_changed_file(place: Place) -> None:
    """A topic that appears joins, outputs never do, and SIGHUP restarts a connector whose file has changed.

    So does `keyfold restart`, which returns when the connector runs.
    """
    stem = place.topic
    place.settings["topics.regex"] = f"{stem}.*"
    del place.settings["topics"]
    produce(place.bootstrap, stem, some_records(1, 50))
    with place.process() as worker:
        wait_until(lambda: (place.folder / "storage").exists() and holds(place, stem, 1), "it publishes", PATIENCE_S)
        later = create_topic(place.bootstrap, f"{stem}-later", 1, cleanup_policy="delete")
        produce(place.bootstrap, later, [(0, b"k", b"v")])
        wait_until(lambda: holds(place, later, 1), "the new topic is published", PATIENCE_S)
        assert set(place.state().topics) == {stem, later}
        epoch = place.state().epoch
        place.write(min_compaction_lag_ms=1)
        worker.send(signal.SIGHUP)
        wait_until(lambda: place.state().epoch > epoch, "the connector is started again", PATIENCE_S)
        produce(place.bootstrap, later, [(0, b"k2", b"v")])
        wait_until(lambda: holds(place, later, 2), "it goes on", PATIENCE_S)
        epoch = place.state().epoch
        files = place.write()
        shown = invoke("restart", files[0], "--worker", files[1], "--timeout", int(PATIENCE_S))
        assert (shown.exit_code, "is RUNNING" in shown.stdout) == (EXIT_OK, True), shown.stderr
        assert place.state().epoch == epoch + 1
        worker.send(signal.SIGHUP)
        worker.until_logged("connector file unchanged: left running")
        worker.signal_all(signal.SIGTERM)  # as a service manager does: Spark's JVM is told as well
        assert worker.wait() == EXIT_OK, worker.tail()
