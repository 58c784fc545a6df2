"""The settings of a connector's clients, for tests that name little more than the brokers."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.kafka.client_settings import (
    CONSUMER_DEFAULTS,
    CONSUMER_PINNED,
    PRODUCER_DEFAULTS,
    PRODUCER_PINNED,
    ClientSettings,
    Setting,
)


def client_settings(given: Mapping[str, Setting], connector: str = "c", **producer: Setting) -> ClientSettings:
    """`given` for all clients and `producer` for producers, with what keyfold pins and prefers."""
    named: dict[str, Setting] = {"client.id": f"connector-consumer-{connector}", "group.id": f"connect-{connector}"}
    return ClientSettings(
        dict(given),
        {**CONSUMER_DEFAULTS, **given, **named, **CONSUMER_PINNED},
        {**PRODUCER_DEFAULTS, **given, **producer, **PRODUCER_PINNED},
    )
