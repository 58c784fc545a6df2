"""Decides which settings of Kafka clients a connector may override: `connector.client.config.override.policy`.

The policies are Kafka Connect's (KIP-458, org.apache.kafka.connect.connector.policy).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from connectors.config.connector import ConnectorConfig
from connectors.config.errors import Fault

POLICY: Final = "connector.client.config.override.policy"
OverridePolicy = Literal["all", "principal", "none"]
PRINCIPAL: Final = frozenset(
    {
        "sasl.jaas.config",
        "sasl.mechanism",
        "security.protocol",
        "sasl.mechanisms",  # librdkafka's name of sasl.mechanism, and its form of a JAAS entry
        "sasl.username",
        "sasl.password",
    }
)
"""What `Principal` leaves to connectors: as whom their clients log in."""
_ALLOWED: Final[dict[OverridePolicy, str]] = {
    "principal": f"Allowed are {', '.join(sorted(PRINCIPAL))}",
    "none": "No override is allowed",
}


def override_faults(policy: OverridePolicy, connector: ConnectorConfig) -> Iterator[Fault]:
    """Yields a fault for each override of `connector` that `policy` does not allow."""
    if policy == "all":
        return
    overrides = {
        "consumer": connector.consumer_override,
        "producer": connector.producer_override,
        "admin": connector.admin_override,
    }
    for kind, settings in overrides.items():
        for name in settings:
            if policy == "none" or name not in PRINCIPAL:
                yield Fault(
                    f"{kind}.override.{name}",
                    f"The '{policy.capitalize()}' policy does not allow '{name}' to be overridden in the connector "
                    f"configuration. {_ALLOWED[policy]} by {POLICY} of the worker file; remove the key.",
                )
