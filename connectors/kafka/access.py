"""What a take-over and commands ask of a connector's brokers before they change anything: one value, with its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from connectors.kafka.admin import Admin
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.probe import probe_all
from connectors.kafka.producers import fence_all


class KafkaAccess(Struct, frozen=True):
    """Probes brokers, fences producers and makes admin clients; a test gives others."""

    probe_brokers: Callable[[str, ClientSettings, float], None] = probe_all
    fence: Callable[[Mapping[str, Setting], Iterable[str]], None] = fence_all
    admin: Callable[[Mapping[str, Setting]], Admin] = Admin
    probe_s: float = 10.0
    """How long (s) the brokers may take to answer before a connector is taken over or deleted."""

    def probe(self, connector: str, clients: ClientSettings) -> None:
        """Checks that the brokers let all clients of `connector` in. Raises NoConnectionError after `probe_s`."""
        self.probe_brokers(connector, clients, self.probe_s)
