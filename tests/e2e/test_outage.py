"""A broker that goes away under a running connector, and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import structlog

from compactor.catalog.owner_lock import is_alive
from compactor.storage.base import Storage
from connectors.clock import SystemClock
from connectors.config.files import load_worker
from connectors.config.stores import connector_storage
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import UnreachableError
from connectors.operations.clean import clean
from connectors.progress.observer import Observer
from connectors.runtime import status
from connectors.runtime.supervisor import RunContext, Supervisor
from tests.support.deployment import PROCESS_TIMEOUT_S, Deployment
from tests.support.kafka import create_topic, produce, wait_until
from tests.support.queries import shared_query
from tests.support.records import random_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


BACKOFF_MS: Final = 600_000
SILENT_MS: Final = 15_000
"""After this time at the latest a question has failed: one may take 5 s, and the machine may be busy."""


def _said(storage: Storage) -> tuple[str, bool]:
    """What the worker says of the connector, and whether commands find one."""
    content = status.read(storage)
    return "None" if content is None else content.state, is_alive(storage)


@pytest.mark.long  # kafka/test_source_outcomes.py has a broker that is away
def test_a_killed_broker_is_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    """The connector lives through it, whatever it was at, and goes on where it stopped when the broker is back.

    At once, however long it would have waited; meanwhile its worker lives, and answers what is asked of it.
    """
    broker = EmbeddedKafka(tmp_path / "kafka")
    with broker:
        topic = create_topic(broker.bootstrap, "t", 2, cleanup_policy="delete")
        deployment = Deployment(tmp_path, broker.bootstrap, topic).publishing_only()
        produce(deployment.bootstrap, topic, random_records(1, 100))
        config = deployment.config(restart_backoff_initial_ms=BACKOFF_MS, restart_backoff_max_ms=BACKOFF_MS)
        worker = load_worker(deployment.folder / "worker.json")
        storage = connector_storage(worker, config.name)
        connector = Supervisor(worker, config, SystemClock(), Observer())
        with structlog.testing.capture_logs() as logged, shared_query(spark) as query:
            connector.start(RunContext(spark, query, once=False))
            try:
                wait_until(deployment.caught_up, "it publishes", PROCESS_TIMEOUT_S)
                broker.kill()
                killed_ms = SystemClock().now_ms()
                wait_until(lambda: connector.status.waits, "it waits for its restart", PROCESS_TIMEOUT_S)
                since_ms = connector.status.waiting_since_ms
                assert since_ms is not None
                assert since_ms - killed_ms < SILENT_MS  # not when it was noticed, which takes half a minute
                assert _said(storage) == ("RESTARTING", True)
                with pytest.raises(UnreachableError, match="waits for an outage to end, and is started again at"):
                    clean(worker, config)
                broker.start()
                produce(deployment.bootstrap, topic, random_records(2, 100))
                wait_until(deployment.caught_up, "it publishes what came later", 2 * PROCESS_TIMEOUT_S)
            finally:
                connector.stop()
                connector.join()
        assert connector.error is None
        assert "below our position" not in str(logged)
        assert deployment.violations() == []
