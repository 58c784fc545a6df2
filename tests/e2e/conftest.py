"""A connector's place on the session's broker, and the query that it is read by."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic
from tests.support.queries import QUERIES


@pytest.fixture(scope="package", autouse=True)
def _kept_query() -> Iterator[None]:
    """The runs of these tests read through one query, as the connectors of a worker do."""
    with QUERIES.keeping():
        yield


@pytest.fixture
def deployment(tmp_path: Path, broker: EmbeddedKafka, topic_name: str) -> Deployment:
    """A connector that reads a new topic of two partitions."""
    create_topic(broker.bootstrap, topic_name, partitions=2, cleanup_policy="delete")
    return Deployment(tmp_path, broker.bootstrap, topic_name)
