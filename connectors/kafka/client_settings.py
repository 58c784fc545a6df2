"""The settings of all Kafka clients of one connector, secrets resolved: merged once, pickled into Spark's tasks.

What keyfold pins weighs most, then the connector's overrides, then the worker's settings, then keyfold's defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from connectors.config.connector import ConnectorConfig
    from connectors.config.worker import WorkerConfig

Setting = str | int | float | bool

CONSUMER_PINNED: Final[dict[str, Setting]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": False,
    "allow.auto.create.topics": False,
}
"""What no override may change: reading is exact because of it."""

CONSUMER_DEFAULTS: Final[dict[str, Setting]] = {
    # With librdkafka's own 100,000 records and 1 s of back-off a process reads a third of what it can; a million small
    # records take 400 MiB while they wait, whatever their own bytes are.
    "queued.min.messages": 200_000,
    "fetch.queue.backoff.ms": 1,
    # What is read is always there; a long poll would only hold up the next assignment of a kept consumer.
    "fetch.wait.max.ms": 20,
    # Compressed bytes: what they unfold to is bounded by nothing here (docs/operating.md). 50 MB of zeros are 1.6 KB of
    # zstd, so a smaller number would not bound it either.
    "max.partition.fetch.bytes": 8 << 20,
    "receive.message.max.bytes": 1 << 30,
    "queued.max.messages.kbytes": 64 << 10,
    "check.crcs": True,
    # What goes wrong is raised; librdkafka's own lines would only repeat it, several times a second.
    "log_level": 2,
}

PRODUCER_PINNED: Final[dict[str, Setting]] = {
    "acks": "all",
    "enable.idempotence": True,
    "allow.auto.create.topics": False,
    "delivery.report.only.error": True,
    # After a re-bootstrap, send_offsets_to_transaction of librdkafka 2.16 waits without end, whatever its time-out, for
    # a broker that it has dropped. The bootstrap servers are asked by the next producer.
    "metadata.recovery.strategy": "none",
}
"""What no override may change: exactly once, a deleted output topic that stays deleted, and an end to all waiting."""

PRODUCER_DEFAULTS: Final[dict[str, Setting]] = {
    "linger.ms": 20,
    "batch.num.messages": 100_000,
    # max.message.bytes counts what is compressed: a record that fits into the source because of it must fit here too.
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
    # The topic's own max.message.bytes decides, not librdkafka's 1,000,000.
    "message.max.bytes": 1_000_000_000,
    # Everything that goes wrong is raised; librdkafka's lines would only repeat it without the connector's name.
    "log_level": 2,
}


class ClientSettings(Struct, frozen=True):
    """librdkafka settings by kind of client, each complete. Its repr shows none of them."""

    _admin: dict[str, Setting]
    _consumer: dict[str, Setting] = {}
    _producer: dict[str, Setting] = {}

    def __repr__(self) -> str:
        return "ClientSettings()"

    @classmethod
    def of(cls, worker: WorkerConfig, connector: ConnectorConfig) -> ClientSettings:
        """Merges the settings of both files with those that keyfold pins and its defaults. Raises ConfigError."""
        from connectors.config.clients.merged import client_config  # not in Spark's tasks, which never merge anything

        name = connector.name
        named: dict[str, Setting] = {"client.id": f"connector-consumer-{name}", "group.id": connector.group_id}
        return cls(
            client_config("admin", worker, connector, {"client.id": f"connector-admin-{name}"}),
            client_config("consumer", worker, connector, {**named, **CONSUMER_PINNED}, CONSUMER_DEFAULTS),
            client_config("producer", worker, connector, PRODUCER_PINNED, PRODUCER_DEFAULTS),
        )

    def admin(self) -> dict[str, Setting]:
        """Returns the settings of an admin client."""
        return dict(self._admin)

    def consumer(self) -> dict[str, Setting]:
        """Returns the settings of a consumer that is assigned, never subscribed."""
        return dict(self._consumer)

    def producer(self) -> dict[str, Setting]:
        """Returns the settings of a producer, to which `producers.settings` adds the transactional id."""
        return dict(self._producer)
