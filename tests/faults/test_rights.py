"""A right that is taken from a running worker, and given back after tombstones have passed their horizon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from connectors.dev.embedded_kafka import EmbeddedKafka
from tests.faults.cases import Cases
from tests.faults.scenario import CALM, TASKS, Scenario
from tests.support.kafka import TIMEOUT_S, admin

ANYBODY = "User:ANONYMOUS"
WITH_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
pytestmark = pytest.mark.timeout(600)


def deny_writing(bootstrap: str, topic: str) -> None:
    """Everything but writing is allowed on `topic`."""
    rights = [(AclOperation.ALL, AclPermissionType.ALLOW), (AclOperation.WRITE, AclPermissionType.DENY)]
    wanted = [
        AclBinding(ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, ANYBODY, "*", operation, permission)
        for operation, permission in rights
    ]
    client = admin(bootstrap)
    for future in client.create_acls(wanted).values():
        future.result(TIMEOUT_S)


def grant_writing(bootstrap: str, topic: str) -> None:
    """What was denied is allowed again."""
    denied = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        ANYBODY,
        "*",
        AclOperation.WRITE,
        AclPermissionType.DENY,
    )
    client = admin(bootstrap)
    for future in client.delete_acls([denied]).values():
        future.result(TIMEOUT_S)


@pytest.mark.parametrize(("settings", "step"), [(CALM, "while the worker publishes"), (TASKS, "while tasks publish")])
def test_the_right_to_write_is_taken(tmp_path: Path, settings: Mapping[str, Any], step: str) -> None:
    """FAILED, naming topic and right, and started again until it has it back; old deletions still arrive."""
    with (
        EmbeddedKafka(tmp_path / "kafka", properties=WITH_RIGHTS) as broker,
        Cases(tmp_path / "cases", broker.bootstrap, Scenario) as cases,
        cases.case("producer refused by ACL", step, {**settings, "delete.retention.ms": 1}) as case,
    ):
        scenario = case.scenario
        deployment = scenario.deployment
        scenario.running()
        deny_writing(deployment.bootstrap, deployment.output)
        case.strikes()
        case.is_failing(deployment.output, "Write")
        scenario.rest(5)
        grant_writing(deployment.bootstrap, deployment.output)
        scenario.control.move_clock(600_000)
        case.strikes()
        case.recovers()
        assert case.violations() == []
