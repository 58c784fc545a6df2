"""Finds by what keys that are in an output are compared, for steps G2 and R2.

On its own because both make records of a log from those of an output.
"""

from __future__ import annotations

from collections.abc import Sequence

from compactor.generation.tombstones import Compare as CompareKey
from connectors.chain.key_identity import compared, key_identity_of
from connectors.config.connector import ConnectorConfig
from connectors.data.record import Header
from connectors.placeholders import resolve
from connectors.sinks.output_records import Compare, by_bytes


def comparison_of_keys(connector: ConnectorConfig) -> CompareKey | None:
    """Returns how keys are compared of which nothing else is known; None where it is by their bytes."""
    identity = key_identity_of(connector.chain_spec(), resolve)
    return None if identity is None else lambda key: compared(identity, (), key)


def comparison_of_records(connector: ConnectorConfig) -> Compare:
    """Returns how the keys of records are compared, which may have the id of a schema in their headers."""
    identity = key_identity_of(connector.chain_spec(), resolve)
    if identity is None:
        return by_bytes

    def compare(headers: Sequence[tuple[str, object]], key: bytes) -> tuple[bytes | None, str | None]:
        return compared(identity, [Header(name, value) for name, value in headers], key)

    return compare
