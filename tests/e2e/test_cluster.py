"""The same pipeline on executors of their own: nothing depends on the driver's process."""

from __future__ import annotations

from pathlib import Path

import pytest

from connectors.errors import EXIT_OK
from connectors.jvm.cds_archive import sharing
from connectors.jvm.spark_home import JARS, ensure_home
from tests.support.deployment import Deployment
from tests.support.kafka import end_offsets, produce
from tests.support.records import live_records, random_records, read_snapshot

EXECUTOR = "spark.executor.extraJavaOptions"


@pytest.mark.long  # make cluster has more of it
def test_run_once_on_a_local_cluster(deployment: Deployment) -> None:
    """With spark.master=local-cluster[2,1,1024] the output and the snapshot are what they are in one process."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 500))
    deployment.worker["spark.master"] = "local-cluster[2,1,1024]"
    archive = sharing(Path(ensure_home() or "", JARS))  # the executors' class path is the driver's: they start sooner
    deployment.worker[EXECUTOR] = " ".join([deployment.worker[EXECUTOR], *archive])
    with deployment.process("--once") as worker:
        assert worker.wait(150) == EXIT_OK, worker.tail()
    assert deployment.violations() == []
    assert deployment.published() == end_offsets(deployment.bootstrap, deployment.topic)
    assert read_snapshot(deployment)[1] == live_records(deployment)
