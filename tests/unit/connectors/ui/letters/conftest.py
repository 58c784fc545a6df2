"""A worker with a connector whose dead letters are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dead_letters import DEAD, DeadTopic, worker_of
from tests.support.rest import RestWorker

SETTINGS = {
    "topics": "t",
    "value.converter": "keyfold.Json",
    "value.converter.schemas.enable": "false",
    "transforms": "id",
    "transforms.id.type": "ValueToKey",
    "transforms.id.fields": "id",
    "key.converter": "keyfold.Json",
    "key.converter.schemas.enable": "false",
    "errors.tolerance": "all",
    "errors.deadletterqueue.topic.name": DEAD,
    "errors.deadletterqueue.context.headers.enable": "true",
}


@pytest.fixture
def topic() -> DeadTopic:
    return DeadTopic()


@pytest.fixture
def worker(tmp_path: Path, topic: DeadTopic) -> Iterator[RestWorker]:
    with worker_of(tmp_path, topic) as made:
        assert made.create("a", **SETTINGS).status_code == 201
        yield made
