"""The settings of all Kafka clients of one connector, secrets resolved: made once, pickled into Spark's tasks."""

from __future__ import annotations

from msgspec import Struct

from connectors.config.clients import client_config
from connectors.config.connector import ConnectorConfig
from connectors.config.worker import WorkerConfig
from connectors.kafka import consumers, producers
from connectors.kafka.consumers import Setting


class ClientSettings(Struct, frozen=True):
    """librdkafka settings by kind of client. Its repr shows none of them."""

    _admin: dict[str, Setting]
    _consumer: dict[str, Setting]
    _producer: dict[str, Setting]

    def __repr__(self) -> str:
        return "ClientSettings()"

    @classmethod
    def of(cls, worker: WorkerConfig, connector: ConnectorConfig) -> ClientSettings:
        """What both files say, under what keyfold pins and over what it prefers. Raises ConfigError."""
        name = connector.name
        return cls(
            client_config("admin", worker, connector, {"client.id": f"connector-admin-{name}"}),
            client_config(
                "consumer",
                worker,
                connector,
                {
                    "client.id": f"connector-consumer-{name}",
                    "group.id": connector.group_id,
                    **consumers.PINNED,
                },
                consumers.DEFAULTS,
            ),
            client_config("producer", worker, connector, producers.PINNED, producers.DEFAULTS),
        )

    def admin(self) -> dict[str, Setting]:
        """For an AdminClient."""
        return dict(self._admin)

    def consumer(self) -> dict[str, Setting]:
        """For a Consumer that is assigned, never subscribed."""
        return dict(self._consumer)

    def producer(self) -> dict[str, Setting]:
        """For a producer, which still needs its transactional id."""
        return dict(self._producer)
