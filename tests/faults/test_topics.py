"""Topics that change under a running worker: new partitions are taken up; deleted or made anew it is FAILED by name."""

from __future__ import annotations

import pytest

from tests.faults.cases import Cases
from tests.support.kafka import add_partitions, create_topic, delete_records, delete_topic

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "recreated"])
def test_the_output_goes_under_a_running_worker(cases: Cases, again: bool) -> None:
    """It is never made again behind the operator's back, and another of its name is not it."""
    with cases.case(f"output {'recreated' if again else 'deleted'}", "while running") as case:
        deployment = case.scenario.deployment
        case.scenario.running()
        case.strikes()
        delete_topic(deployment.bootstrap, deployment.output)
        if again:
            create_topic(deployment.bootstrap, deployment.output, 2, cleanup_policy="compact")
        case.fails(deployment.output)
    cases.renew()


def test_the_source_is_recreated_under_a_running_worker(cases: Cases) -> None:
    """Its offsets mean something else from then on."""
    with cases.case("source recreated", "while running") as case:
        deployment = case.scenario.deployment
        case.scenario.running()
        case.scenario.load.pause()
        case.scenario.until(deployment.caught_up, "everything is published")
        case.strikes()
        delete_topic(deployment.bootstrap, deployment.topic)
        create_topic(deployment.bootstrap, deployment.topic, 2, cleanup_policy="delete")
        case.fails("new connector name", deployment.topic)
    cases.renew()


def test_partitions_are_added_under_load(cases: Cases) -> None:
    """They are read from their first record on; a key that has moved counts in both of its partitions."""
    with cases.case("partitions added", "while running") as case:
        deployment, load = case.scenario.deployment, case.scenario.load
        case.scenario.running()
        case.strikes()
        add_partitions(deployment.bootstrap, deployment.topic, 4)
        load.spread(4)
        case.scenario.until(lambda: len(load.ends()) == 4, "records are in each partition")
        case.recovers()
        assert case.violations() == []
    cases.renew()


def test_retention_overtakes_a_stopped_worker(cases: Cases) -> None:
    """What was removed before it was read is an error that names the partition and the offsets."""
    with cases.case("retention overtook the worker", "while stopped") as case:
        deployment, load = case.scenario.deployment, case.scenario.load
        case.scenario.running().kill()
        reached = load.ends()
        case.scenario.rest(3)
        load.pause()
        end = load.ends()[1]
        assert end > reached[1]
        delete_records(deployment.bootstrap, deployment.topic, 1, end)
        case.strikes()
        case.scenario.start()
        case.fails(f"{deployment.topic}", "on.data.loss", str(end))
    cases.renew()
