"""`keyfold delete`: after it the same connector file begins anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compactor.errors import PositionError
from compactor.failpoints import STEPS
from connectors.errors import ConnectorError
from connectors.kafka.admin import Admin
from tests.support.cli import execute, invoke
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import consume_all, produce, wait_until
from tests.support.records import random_records
from tests.support.rest_process import RestProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete(deployment: Deployment, *more: str) -> str:
    """What `keyfold delete` prints; it has to end with 0."""
    connector, worker = deployment.write()
    done = invoke("delete", connector, "--worker", worker, "--yes", *more)
    assert done.exit_code == 0, done.output
    return done.output


def test_starting_over_after_the_storage_is_lost(spark: SparkSession, deployment: Deployment) -> None:
    """The error of a lost storage says how to start over; done, the same file publishes everything anew."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.publishing_only().run_once(spark)
    before = consume_all(deployment.bootstrap, deployment.output)
    deployment.storage.delete_folder("")
    with pytest.raises(PositionError, match=r"keyfold delete CONNECTOR\.json --outputs"):
        deployment.run_once(spark)
    assert f"output topic {deployment.output}" in delete(deployment, "--outputs")
    admin = Admin({"bootstrap.servers": deployment.bootstrap})
    assert (admin.describe([deployment.output]), admin.has_group(f"connect-{deployment.name}")) == ({}, False)
    assert deployment.storage.walk("") == []
    deployment.run_once(spark)
    assert deployment.violations() == []
    assert [(one.key, one.value) for one in consume_all(deployment.bootstrap, deployment.output)] == [
        (one.key, one.value) for one in before
    ]


def test_an_output_that_is_left_is_not_published_to_again(spark: SparkSession, deployment: Deployment) -> None:
    """Without --outputs the next run refuses it, and says what to do; with another output.topic it begins anew."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.publishing_only().run_once(spark)
    assert "refuses to publish into it" in delete(deployment)
    with pytest.raises(PositionError, match=r"set another output\.topic, and then run keyfold delete"):
        deployment.run_once(spark)
    assert f"topic {deployment.output}: nothing shows" in delete(deployment, "--outputs")
    deployment.run_once(spark, output_topic="${topic}.again")
    assert len(consume_all(deployment.bootstrap, f"{deployment.topic}.again")) == len(
        consume_all(deployment.bootstrap, deployment.output)
    )


@pytest.mark.long
def test_a_deletion_that_is_killed_at_any_step_is_gone_on_with(spark: SparkSession, deployment: Deployment) -> None:
    """From X2 on a worker refuses the connector, though half of it is there; the next deletion removes the rest."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 100))
    deployment.publishing_only().run_once(spark)
    connector, worker = deployment.write()
    words = ("delete", connector, "--worker", worker, "--yes", "--outputs")
    admin = Admin({"bootstrap.servers": deployment.bootstrap})
    # Whether the group, the output topic and the catalog are there after a kill at the step.
    there = {
        "delete.fenced": (True, True, True),
        "delete.begun": (True, True, True),
        "delete.groups": (False, True, True),
        "delete.outputs": (False, False, True),
        "delete.folder": (False, False, False),
    }
    assert list(there) == [step for step in STEPS if step.startswith("delete.")]
    for step, expected in there.items():
        assert execute(*words, KEYFOLD_FAILPOINTS=f"{step}=kill").returncode < 0, step
        has = admin.has_group(f"connect-{deployment.name}"), bool(admin.describe([deployment.output]))
        assert (*has, bool(deployment.storage.list("catalog"))) == expected, step
        if step != "delete.fenced":
            with pytest.raises(ConnectorError, match="keyfold delete"):
                deployment.run_once(spark)
    delete(deployment, "--outputs")
    assert deployment.storage.walk("") == []
    deployment.run_once(spark)
    assert deployment.violations() == []


@pytest.mark.long
def test_a_connector_made_over_rest_does_not_come_back(deployment: Deployment, tmp_path: Path) -> None:
    """While its worker lives it is refused, also if it is STOPPED; without one its config goes with the rest."""
    produce(deployment.bootstrap, deployment.topic, random_records(1, 50))
    admin = Admin({"bootstrap.servers": deployment.bootstrap})
    with RestProcess(tmp_path, deployment.bootstrap) as worker:
        assert worker.create(deployment).status_code == 201
        wait_until(deployment.caught_up, "everything is published", PROCESS_TIMEOUT_S)
        worker.ask("PUT", f"/connectors/{deployment.name}/stop")
        worker.until_state(deployment.name, "STOPPED")
        connector, settings = deployment.write()
        refused = invoke("delete", connector, "--worker", settings, "--yes", "--outputs")
        assert refused.exit_code == 2, refused.output
        assert f"keyfold connectors delete {deployment.name}" in " ".join(refused.output.split())
        assert admin.describe([deployment.output])
        worker.ask("PUT", f"/connectors/{deployment.name}/resume")
        worker.until_state(deployment.name, "RUNNING")
    assert f".worker/connectors/{deployment.name}@" in delete(deployment, "--outputs")
    with RestProcess(tmp_path, deployment.bootstrap) as worker:
        assert worker.ask("GET", "/connectors").json() == []
    assert admin.describe([deployment.output]) == {}
