"""A truncate that is applied: the rows from before it go from the output, and those after it stay."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest

from connectors.errors import EXIT_OK
from tests.support.deployment import Deployment
from tests.support.kafka import consume_all, create_topic, produce
from tests.unit.connectors.chain.test_truncates import UNWRAP, event, key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(420)
TRUNCATE = (0, None, event("t", None))


@pytest.fixture
def table(deployment: Deployment) -> Deployment:
    """A connector of one table, whose topic has one partition."""
    table = deployment.for_topic(f"{deployment.topic}-table")
    create_topic(table.bootstrap, table.topic, 1, cleanup_policy="delete")
    table.publishing_only().settings |= {**UNWRAP, "topics": table.topic, "debezium.truncate": "apply"}
    return table


def inserted(*numbers: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Returns an insert of each row."""
    return [(0, key(number), event("c", {"id": number})) for number in numbers]


def rows(table: Deployment) -> set[int]:
    """Returns the rows that a reader of the output has."""
    last = {record.key: record.value for record in consume_all(table.bootstrap, table.output)}
    return {json.loads(name or b"")["payload"]["id"] for name, value in last.items() if value is not None}


@pytest.mark.long  # make cdc truncates real tables
def test_a_truncate_takes_the_rows_from_before_it(spark: SparkSession, table: Deployment) -> None:
    """Published ones and those of its own batch; a row that comes again stays. A later run changes nothing more."""
    produce(table.bootstrap, table.topic, inserted(1, 2, 3))
    table.run_once(spark)
    assert rows(table) == {1, 2, 3}
    produce(table.bootstrap, table.topic, [*inserted(4), TRUNCATE, *inserted(1, 5)])
    with table.process("--once") as worker:
        assert worker.wait() == EXIT_OK, worker.tail()
    assert rows(table) == {1, 5}
    (log,) = table.state().logs
    assert (log.generation.number if log.generation else None, log.end) == (2, 7)
    produce(table.bootstrap, table.topic, inserted(6))
    table.run_once(spark)
    assert (rows(table), table.caught_up()) == ({1, 5, 6}, True)


@pytest.mark.long
def test_a_worker_killed_as_it_applies_a_truncate_applies_it_after_all(spark: SparkSession, table: Deployment) -> None:
    """Before and after the log begins again: test_a_truncate_takes_the_rows_from_before_it, and a kill at each."""
    produce(table.bootstrap, table.topic, inserted(1, 2, 3))
    table.run_once(spark)
    produce(table.bootstrap, table.topic, [TRUNCATE, *inserted(1)])
    for point in ("generation.before-commit", "generation.after-commit", "publish.sent"):
        with table.process("--once", failpoints=f"{point}=sleep:600000") as worker:
            worker.until_logged(f"failpoint {point}")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        assert rows(table) == {1, 2, 3}
    table.run_once(spark)
    assert rows(table) == {1}
    (log,) = table.state().logs
    assert log.generation is not None
    assert log.generation.number == 2
