"""What the clients of a connector are set to: pinned, overridden, preferred."""

from __future__ import annotations

import pickle
from typing import Any

from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.kafka.client_settings import CONSUMER_DEFAULTS, ClientSettings


def made(**connector: str) -> ClientSettings:
    worker: dict[str, Any] = {"bootstrap.servers": "h:1"}
    named = {"name": "c", "connector.class": "CompactedTopic", "topics": "t", **connector}
    return ClientSettings.of(WorkerConfig(**worker), ConnectorConfig.model_validate(named))


def test_pinned_settings_win_over_what_is_tuned() -> None:
    """Isolation level, offset reset and idempotence are keyfold's; tuning is the user's, else keyfold's default."""
    clients = made(**{"consumer.override.queued.min.messages": "7"})
    consumer = clients.consumer()
    assert consumer["isolation.level"] == "read_committed"
    assert consumer["auto.offset.reset"] == "error"
    assert consumer["queued.min.messages"] == "7"
    assert consumer["fetch.wait.max.ms"] == CONSUMER_DEFAULTS["fetch.wait.max.ms"]
    assert clients.producer()["enable.idempotence"] is True


def test_client_settings_travel_and_are_not_shown() -> None:
    """They are pickled into Spark's tasks, and may hold secrets."""
    clients = made(**{"producer.override.sasl.password": "hunter2"})
    assert pickle.loads(pickle.dumps(clients)) == clients
    assert "hunter2" not in repr(clients)


def test_what_is_changed_in_a_copy_changes_no_other_client() -> None:
    """Each client is given settings of its own."""
    clients = made()
    clients.admin()["client.id"] = "x"
    assert clients.admin()["client.id"] == "connector-admin-c"
