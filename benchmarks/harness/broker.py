"""Runs a broker for measurements in a process of its own: python -m benchmarks.harness.broker FOLDER.

The embedded broker is asked by a librdkafka client whether it is up; a process that measures for hours has none.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from benchmarks.harness.process import ROOT
from benchmarks.harness.topics import create_topic
from connectors.dev.embedded_kafka import EmbeddedKafka

_HEAP: Final = "2g"
_START_S: Final = 60.0
_END_S: Final = 60.0
_FIRST: Final = "first"
"""Topic, group and transactional id of what is done before anything is measured."""


@contextmanager
def broker() -> Iterator[str]:
    """Starts a broker for the block, and gives its bootstrap servers.

    Raises:
        RuntimeError: it did not start.
    """
    with tempfile.TemporaryDirectory(prefix="bench-kafka-", ignore_cleanup_errors=True) as folder:
        holder, bootstrap = _start(folder)
        try:
            yield bootstrap
        finally:
            _end(holder)


def _start(folder: str) -> tuple[subprocess.Popen[str], str]:
    """Starts the broker's process, a second time if the first was ended by a signal, with which its broker ends."""
    for number in range(2):
        holder = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.harness.broker", str(Path(folder, str(number)))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            start_new_session=True,  # Ctrl-C is for the measuring process, which then ends it
        )
        assert holder.stdout is not None
        bootstrap = holder.stdout.readline().strip()
        if bootstrap:
            return holder, bootstrap
        if holder.wait() >= 0:
            break
    raise RuntimeError(f"the broker did not start: its process ended with {holder.returncode}")


def _end(holder: subprocess.Popen[str]) -> None:
    """Asks the process to end by closing its stdin."""
    try:
        holder.communicate(timeout=_END_S)
    except subprocess.TimeoutExpired:
        holder.kill()
        holder.communicate()


def main(folder: Path) -> None:
    """Runs a broker until stdin ends."""
    with EmbeddedKafka(folder, heap=_HEAP) as started:
        consumer = Consumer({"bootstrap.servers": started.bootstrap, "group.id": _FIRST, "log_level": 0})
        _wait_for_offsets_topic(consumer)
        _commit_a_transaction(consumer, started.bootstrap)
        consumer.close()
        print(started.bootstrap, flush=True)
        sys.stdin.read()


def _wait_for_offsets_topic(consumer: Consumer) -> None:
    """Waits until `__consumer_offsets` is there, which the broker makes when first asked: not to be measured.

    An admin client that is the first to ask for positions crashes its process: connectors/kafka/groups.py.
    """
    until = time.monotonic() + _START_S
    while True:
        try:
            consumer.committed([TopicPartition(_FIRST, 0)], _START_S)
            break
        except KafkaException:
            if time.monotonic() >= until:
                raise
            time.sleep(0.1)


def _commit_a_transaction(consumer: Consumer, bootstrap: str) -> None:
    """Commits a record with a position in a transaction, the first of which has a broker make `__transaction_state`.

    What is measured meets a broker that is in use, as that of a cluster is.
    """
    create_topic(bootstrap, _FIRST, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": _FIRST, "log_level": 0})
    producer.init_transactions(_START_S)
    producer.begin_transaction()
    producer.produce(_FIRST, b"")
    producer.send_offsets_to_transaction([TopicPartition(_FIRST, 0, 1)], consumer.consumer_group_metadata(), _START_S)
    producer.commit_transaction(_START_S)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
