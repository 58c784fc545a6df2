"""A worker whose Spark has nothing beyond its public interface does the same work."""

from __future__ import annotations

import re

from connectors.errors import EXIT_OK
from connectors.source.read_route import DRIVER_READ_MAX
from connectors.spark import private
from tests.support.deployment import Deployment
from tests.support.kafka import produce
from tests.support.records import live_records, random_records, read_snapshot


def test_a_worker_without_private_switches_folds_publishes_and_snapshots(deployment: Deployment) -> None:
    """Its query reads in tasks, its publish sends in tasks, and its snapshot is the last record of each key."""
    deployment.settings |= {"publish.local.max.records": -1, "fold.local.max.records": -1}
    deployment.worker = {key: value for key, value in deployment.worker.items() if "codegen" not in key}
    produce(deployment.bootstrap, deployment.topic, random_records(1, DRIVER_READ_MAX + 2_000))
    with deployment.process("--once", **{private.VARIABLE: private.ALL}) as process:
        assert process.wait() == EXIT_OK, process.tail()
    assert deployment.caught_up()
    assert deployment.violations() == []
    _, table = read_snapshot(deployment)
    assert table == live_records(deployment)
    # The session's Spark has set SPARK_HOME for its processes; `user` is for who has no account.
    assert set(re.findall(r"switch=(\w+)", process.printed())) >= private.SWITCHES.keys() - {"home", "user"}
