"""A worker with a connector whose dead letters are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dead_letters import DEAD, KEEPS_LETTERS, DeadTopic, worker_of
from tests.support.rest import RestWorker

SETTINGS = {**KEEPS_LETTERS, "topics": "t", "errors.deadletterqueue.topic.name": DEAD}


@pytest.fixture
def topic() -> DeadTopic:
    return DeadTopic()


@pytest.fixture
def worker(tmp_path: Path, topic: DeadTopic) -> Iterator[RestWorker]:
    with worker_of(tmp_path, topic) as made:
        assert made.create("a", **SETTINGS).status_code == 201
        yield made
