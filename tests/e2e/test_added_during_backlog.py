"""A connector that is added while the only one reads its backlog does not wait for all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import ToSend, create_topic, end_offsets, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

pytestmark = pytest.mark.timeout(300)

BACKLOG = 600_000
"""Records whose chain takes some ten seconds in two tasks: long enough to come in between."""


@pytest.mark.long
def test_the_backlog_of_the_only_connector_is_left_for_one_that_comes(
    tmp_path: Path, broker: EmbeddedKafka, new_topic_name: Callable[[str], str]
) -> None:
    """The one micro-batch of all of it ends early; the other publishes before it is read, and no record is lost."""
    large, other = (
        Deployment(tmp_path, broker.bootstrap, create_topic(broker.bootstrap, new_topic_name(stem), 2))
        for stem in ("large", "other")
    )
    produce(broker.bootstrap, other.topic, random_records(1, 100))
    values = (b'{"id": %d, "at": "2020-01-01T00:00:00Z", "name": "n-%d"}' % (at, at) for at in range(BACKLOG))
    sent = (ToSend(number % 2, b"k-%d" % (number % 5_000), value) for number, value in enumerate(values))
    produce(broker.bootstrap, large.topic, sent)
    for one in (large, other):
        one.publishing_only()
    large.settings |= {
        "min.compaction.lag.ms": 1,  # so that files are written while it is read, and show that it is
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "renamed",
        "transforms.renamed.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.renamed.renames": "name:title",
    }
    folder = tmp_path / "connectors"
    folder.mkdir()
    (folder / "large.json").write_text(json.dumps(large.settings))
    settings: dict[str, Any] = {"connectors.dir": str(folder), "connectors.watch": True}
    with RestProcess(tmp_path, broker.bootstrap, **settings) as worker:
        runs = tmp_path / "storage" / large.name / "runs"
        wait_until(lambda: list(runs.glob("**/*")), "the backlog is being read", PROCESS_TIMEOUT_S)
        assert sum(log.end for log in large.state().logs) == 0, "nothing of it is taken"
        (folder / "other.json").write_text(json.dumps(other.settings))
        wait_until(other.caught_up, "the other publishes", PROCESS_TIMEOUT_S)
        taken = sum(log.end for log in large.state().logs)
        assert 0 < taken < BACKLOG, "a part of the backlog is taken, and not all of it"
        wait_until(large.caught_up, "the backlog is published too", PROCESS_TIMEOUT_S)
        assert "connector FAILED" not in worker.printed()
        assert "read again" not in worker.printed(), "it has ended early by itself"
    assert {log.partition: log.end for log in large.state().logs} == end_offsets(broker.bootstrap, large.topic)
    assert other.violations() == []
