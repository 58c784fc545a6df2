"""A worker whose connectors fail again and again stays as small as it was."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil
import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import EXIT_FAILED, EXIT_OK
from tests.faults.failing_connectors import FailingConnectors
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment, Process
from tests.support.kafka import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.long]

FIRST, LAST = 4, 12
"""Starts of each connector between which nothing may have grown; a leak leaves twelve threads a start."""
LOOKS = 30
MORE_THREADS, MORE_FILES = 16, 24
"""What the clients of two starts that are under way have, of which one look may see more than another."""


def least_used(worker: psutil.Process) -> tuple[int, int]:
    """Returns the fewest threads and open files of some looks: what is there between two starts."""
    looks = []
    for _ in range(LOOKS):
        looks.append((worker.num_threads(), worker.num_fds()))
        time.sleep(0.1)
    threads, files = zip(*looks, strict=True)
    return min(threads), min(files)


def test_failed_starts_leave_no_threads_and_files(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> None:
    """One whose registry is away and one whose store takes nothing: each start ends all that it has begun."""
    failing = FailingConnectors(Deployment(tmp_path, broker.bootstrap, topic_name))
    worker_file = tmp_path / "worker.json"
    Deployment(tmp_path, broker.bootstrap, topic_name).write()
    with Process(["run", *failing.files(), "--worker", str(worker_file)], tmp_path / "worker.log", {}) as worker:
        process = psutil.Process(worker.process.pid)
        wait_until(lambda: min(failing.starts()) >= FIRST, "they have failed some times", PROCESS_TIMEOUT_S)
        threads, files = least_used(process)
        wait_until(lambda: min(failing.starts()) >= LAST, "they have failed many times", PROCESS_TIMEOUT_S)
        later = least_used(process)
        assert later[0] <= threads + MORE_THREADS, (threads, later)
        assert later[1] <= files + MORE_FILES, (files, later)
        worker.signal_all(signal.SIGTERM)
        assert worker.wait() in {EXIT_OK, EXIT_FAILED}, worker.tail()
