"""A truncate that is applied: the rows from before it go from the output, and those after it stay."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

import pytest
from msgspec import UNSET

from connectors.errors import EXIT_OK
from tests.support.cli import invoke
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


@pytest.fixture
def spread(deployment: Deployment) -> Deployment:
    """A connector of one table, whose topic has two partitions, and events that say what is before what."""
    spread = deployment.for_topic(f"{deployment.topic}-spread")
    create_topic(spread.bootstrap, spread.topic, 2, cleanup_policy="delete")
    spread.publishing_only().settings |= {
        **UNWRAP,
        "topics": spread.topic,
        "debezium.truncate": "apply",
        "compaction.order": "field:source.lsn",
    }
    return spread


def at(partition: int, number: int, lsn: int) -> tuple[int, bytes | None, bytes | None]:
    """Returns an insert of a row at a place in the database's log."""
    return partition, key(number), event("c", {"id": number}, lsn)


def truncate(partition: int, lsn: int) -> tuple[int, bytes | None, bytes | None]:
    """Returns a truncate at a place in the database's log."""
    return partition, None, event("t", None, lsn)


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


@pytest.mark.long
@pytest.mark.parametrize("scope", ["partition", "topic"])
def test_a_truncate_takes_what_is_before_it_by_the_order(spark: SparkSession, spread: Deployment, scope: str) -> None:
    """In another partition, which was ahead: 2 (late) goes, 3 stays. What comes later from before it is late."""
    spread.settings |= {"compaction.scope": scope}
    produce(spread.bootstrap, spread.topic, [at(0, 1, 10), at(1, 3, 30), at(1, 2, 15)])
    spread.run_once(spark)
    assert rows(spread) == {1, 2, 3}
    produce(spread.bootstrap, spread.topic, [at(0, 4, 25), truncate(0, 20), at(1, 5, 12), at(0, 6, 21)])
    with spread.process("--once") as worker:
        assert worker.wait() == EXIT_OK, worker.tail()
    assert rows(spread) == {3, 4, 6}
    logs = sorted(spread.state().logs, key=lambda log: log.partition)
    assert [(log.generation.number if log.generation else None, log.end) for log in logs] == [(2, 4), (2, 3)]
    produce(spread.bootstrap, spread.topic, [truncate(1, 19), at(1, 7, 19), at(1, 8, 31), truncate(0, 18)])
    spread.run_once(spark)
    assert (rows(spread), spread.caught_up()) == ({3, 4, 6, 8}, True)


@pytest.mark.long
def test_a_worker_killed_between_two_partitions_sends_the_rest(spark: SparkSession, spread: Deployment) -> None:
    """As it applies a truncate: before and after the catalog has it, and after one of two transactions."""
    spread.settings |= {"tasks.max": "2"}
    produce(spread.bootstrap, spread.topic, [at(0, 1, 10), at(0, 2, 11), at(1, 3, 12), at(1, 4, 30)])
    spread.run_once(spark)
    produce(spread.bootstrap, spread.topic, [truncate(0, 20), at(0, 2, 31)])
    points = ("generation.carry", "generation.before-commit", "generation.after-commit", "publish.committed")
    for point in points:
        with spread.process("--once", failpoints=f"{point}=sleep:600000") as worker:
            worker.until_logged(f"failpoint {point}")
            worker.signal_all(signal.SIGKILL)
            worker.wait()
        assert rows(spread) >= {2, 4}
    spread.run_once(spark)
    assert rows(spread) == {2, 4}
    assert {log.generation.number for log in spread.state().logs if log.generation} == {2}


@pytest.mark.long
def test_a_rebuilt_catalog_knows_what_is_before_a_truncate(spark: SparkSession, spread: Deployment) -> None:
    """The committed positions say so: what comes late from before it stays away."""
    produce(spread.bootstrap, spread.topic, [at(0, 1, 10), at(1, 3, 30), truncate(0, 20)])
    with spread.process("--once") as worker:
        assert worker.wait() == EXIT_OK, worker.tail()
    fences = [topic.fence for topic in spread.state().topics.values()]
    spread.storage.delete_folder("")
    connector, worker_file = spread.write()
    rebuilt = invoke("rebuild", connector, "--worker", worker_file, "--json")
    assert rebuilt.exit_code == EXIT_OK, rebuilt.output
    assert [topic.fence for topic in spread.state().topics.values()] == fences != [UNSET]
    produce(spread.bootstrap, spread.topic, [at(1, 4, 19), at(1, 5, 31)])
    spread.run_once(spark)
    assert rows(spread) == {3, 5}
