"""A standalone Spark cluster on bare machines, S3 for storage, and a connector's place on the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.support.deployment import Deployment
from tests.support.kafka import create_topic
from tests.support.spark_cluster import SparkCluster, bare_python, worker_settings
from tests.support.stores.chosen import running_store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each test time to start a Spark of three processes or more."""
    for item in items:
        if "tests/cluster" in item.path.as_posix():
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session", autouse=True)
def _s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Storage and snapshots of all deployments are on S3: executors have no folder in common with the worker."""
    with running_store("moto", "", tmp_path_factory.mktemp("store")):
        yield


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Python that has no packages."""
    return bare_python(tmp_path_factory.mktemp("python") / "bare")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, python: Path) -> Iterator[SparkCluster]:
    """The one cluster of the session: two workers of one core each."""
    with SparkCluster(tmp_path_factory.mktemp("cluster"), python) as running:
        yield running


@pytest.fixture
def deployment(tmp_path: Path, broker: EmbeddedKafka, topic_name: str, cluster: SparkCluster) -> Deployment:
    """A connector on the cluster that reads a new topic of two partitions; Spark's tasks publish and clean all."""
    create_topic(broker.bootstrap, topic_name, partitions=2, cleanup_policy="delete")
    found = Deployment(tmp_path, broker.bootstrap, topic_name)
    found.worker |= worker_settings(cluster)
    found.settings |= {"publish.local.max.records": -1, "fold.local.max.records": -1, "restart.backoff.initial.ms": 100}
    return found
