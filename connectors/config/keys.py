"""Every key of the connector file and of the worker file: the one table that models, checks and docs come from.

Names, defaults and meanings are Kafka's (LogConfig) and Kafka Connect's (SinkConnectorConfig) where they have one.
"""

from __future__ import annotations

from typing import Final

from connectors.config.key import Key
from connectors.config.keys_errors import ERRORS
from connectors.config.keys_folding import COMPACTION, FOLD, SNAPSHOT
from connectors.config.keys_topics import CONNECTOR_PREFIXES, OUTPUT, PACE, WHAT
from connectors.config.keys_worker import WORKER, WORKER_PREFIXES

__all__ = ["CONNECTOR_KEYS", "CONNECTOR_PREFIXES", "WORKER_KEYS", "WORKER_PREFIXES"]

CONNECTOR_KEYS: Final[dict[str, Key]] = {
    key.name: key for key in (*WHAT, *OUTPUT, *COMPACTION, *FOLD, *SNAPSHOT, *PACE, *ERRORS)
}
WORKER_KEYS: Final[dict[str, Key]] = {key.name: key for key in WORKER}
