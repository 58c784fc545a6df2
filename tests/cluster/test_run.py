"""A worker whose spark.master is a cluster: executors have nothing of keyfold's but what it sends them."""

from __future__ import annotations

import json
from pathlib import Path

from connectors.errors import EXIT_CONFIG, EXIT_OK, EXIT_UNREACHABLE
from connectors.spark.executor_settings import PYTHON_NAME
from tests.support.cli import invoke
from tests.support.deployment import Deployment
from tests.support.kafka import end_offsets, produce
from tests.support.records import live_records, random_records, read_snapshot
from tests.support.spark_cluster import SparkCluster, worker_settings

RECORDS = 12_000
"""More than the worker's own process reads: DRIVER_READ_MAX is 10,000."""
RUN_S = 240.0
STEPS = ("ingest.write", "publish.sent", "clean.write")
POINTS = "spark.executorEnv.KEYFOLD_FAILPOINTS"


def finish(deployment: Deployment, **environment: str) -> None:
    """Runs the worker until all is published and snapshotted, and holds it to the promises."""
    with deployment.process("--once", **environment) as worker:
        assert worker.wait(RUN_S) == EXIT_OK, worker.tail()
    assert_whole(deployment)


def assert_whole(deployment: Deployment) -> None:
    """Everything is published once, and the newest snapshot has the last record of every key."""
    assert deployment.violations() == []
    assert deployment.published() == end_offsets(deployment.bootstrap, deployment.topic)
    assert read_snapshot(deployment)[1] == live_records(deployment)


def test_run_once(cluster: SparkCluster, deployment: Deployment) -> None:
    """By spark.master alone: executors read, publish and clean, and it comes to what it is on one machine."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, RECORDS))
    deployment.worker[POINTS] = ",".join(f"{step}=sleep:1" for step in STEPS)
    before = {step: cluster.executor_logs().count(f"failpoint {step}") for step in STEPS}
    finish(deployment)
    for step in STEPS:
        assert cluster.executor_logs().count(f"failpoint {step}") > before[step]


def test_a_package_that_the_user_places(cluster: SparkCluster, deployment: Deployment, tmp_path: Path) -> None:
    """The settings that `keyfold package` prints are all that a worker file needs; nothing else is sent."""
    produce(deployment.bootstrap, deployment.topic, random_records(2, RECORDS))
    made = json.loads(invoke("package", str(tmp_path / "placed.tar.gz"), "--json").stdout)
    deployment.worker |= made["settings"]
    finish(deployment, PATH="/usr/bin:/bin")
    assert "placed.tar.gz" in cluster.executor_logs()


def test_authenticated_and_encrypted(
    tmp_path: Path, python: Path, cluster: SparkCluster, deployment: Deployment
) -> None:
    """With one secret for all and Spark's own encryption, and not without the secret."""
    security = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": "a secret of this test",
        "spark.network.crypto.enabled": "true",
    }
    produce(deployment.bootstrap, deployment.topic, random_records(3, RECORDS))
    with SparkCluster(tmp_path / "secured", python, settings=security) as secured:
        deployment.worker |= worker_settings(secured)
        with deployment.process("--once") as stranger:
            assert stranger.wait(RUN_S) == EXIT_UNREACHABLE, stranger.tail()
        assert f"Spark has not started on {secured.master}" in stranger.printed()
        assert not deployment.caught_up()
        deployment.worker |= security
        finish(deployment)


def test_other_versions_are_refused_by_name(cluster: SparkCluster, deployment: Deployment, tmp_path: Path) -> None:
    """Before anything is read: which executor has what, what the worker has, and what to do; exit code 3."""
    other = tmp_path / "other"
    (other / "pyarrow").mkdir(parents=True)
    (other / "pyarrow" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    deployment.worker |= {"executors.package": "installed", "spark.executorEnv.PYTHONPATH": str(other)}
    produce(deployment.bootstrap, deployment.topic, random_records(4, 100))
    with deployment.process("--once", PYSPARK_PYTHON=PYTHON_NAME) as worker:
        assert worker.wait(RUN_S) == EXIT_CONFIG, worker.tail()
    said = worker.printed()
    assert f"Executors of {cluster.master} do not fit this worker: " in said
    assert "is 1.2.3, here it is" in said
    assert "keyfold on" in said
    assert "executors.package=ship" in said
    assert not deployment.taken_over()


def test_a_python_that_is_not_there_is_named(cluster: SparkCluster, deployment: Deployment) -> None:
    """Spark says so in the midst of a traceback; the worker in a sentence, with what to do; exit code 3."""
    deployment.worker["spark.pyspark.python"] = "python3.99"
    with deployment.process("--once") as worker:
        assert worker.wait(RUN_S) == EXIT_CONFIG, worker.tail()
    assert f'Executors of {cluster.master} cannot run keyfold: they have no program "python3.99".' in worker.printed()
