"""How a worker's process ends: told to in the middle of a publish, or because Spark's JVM has gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from connectors.errors import EXIT_FAILED, EXIT_OK
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process
from tests.support.kafka import end_offsets, produce, wait_until
from tests.support.records import random_records

GRACEFUL_S = 10.0
AROUND_S = 5.0
"""What the process needs beside: to hear of it, and to end."""


@pytest.mark.long  # test_a_worker_whose_jvm_is_killed_ends_with_1 has another end
def test_a_publish_that_hangs_is_broken_off(deployment: Deployment) -> None:
    """SIGTERM: exit code 0 in its time; readers of the output do not wait for a transaction that nobody ends."""
    deployment.worker["task.shutdown.graceful.timeout.ms"] = round(GRACEFUL_S * 1000)
    deployment.write(publish_local_max_records=-1)  # a task that sleeps can be cancelled; a sleep in the driver cannot
    produce(deployment.bootstrap, deployment.topic, random_records(1, 200))
    with deployment.process(failpoints="publish.sent=sleep:600000") as worker:
        worker.until_logged("failpoint publish.sent")
        told = time.monotonic()
        worker.send(signal.SIGTERM)
        assert worker.wait() == EXIT_OK, worker.tail()
        assert time.monotonic() - told < GRACEFUL_S + AROUND_S
        left = [line for line in worker.printed().splitlines() if "left as it is" in line]
        assert [line for line in left if deployment.name in line] == []  # Spark may be slow to end on a busy machine
    stable, sent = (
        end_offsets(deployment.bootstrap, deployment.output, f"read_{what}committed") for what in ("", "un")
    )
    assert stable == sent
    assert sum(sent.values()) > 0


def test_a_worker_whose_jvm_is_killed_ends_with_1(deployment: Deployment) -> None:
    """As the system does it to one that takes too much memory: said what happened, and left to a service manager."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 50))
    with deployment.process() as worker:
        wait_until(deployment.caught_up, "it publishes", PROCESS_TIMEOUT_S)
        os.kill(jvm(worker), signal.SIGKILL)
        assert worker.wait() == EXIT_FAILED, worker.tail()
        assert "Spark's JVM has ended (signal 9)" in worker.printed()


def jvm(worker: Process) -> int:
    """The process id of a worker's JVM."""
    numbers = (each for each in Path("/proc").iterdir() if each.name.isdigit())
    children = [int(each.name) for each in numbers if parent(each) == worker.process.pid]
    return next(child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "java")


def parent(process: Path) -> int:
    """The process id of a process's parent; 0 where it has ended."""
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
