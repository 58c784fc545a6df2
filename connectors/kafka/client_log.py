"""Takes librdkafka's lines into the log, without secrets.

A client without a logger writes its lines to stderr as they are, with what a server has answered in them: a server of
tokens may repeat what it was sent. A client serves its lines when it is polled.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from compactor.secret_forms import without
from connectors.config.secrets import logged_text
from connectors.kafka.broker_text import SENT, without_answer

NAME: Final = "librdkafka"


class ClientLog:
    """What confluent-kafka takes for the logger of a client with the settings `config`. Its repr shows none."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        # In a task of Spark these are all secrets that are known.
        self._secrets = SENT.remember(config)

    def __repr__(self) -> str:
        return "ClientLog()"

    def log(self, level: int, message: str, *parts: object) -> None:
        """Logs a line of librdkafka's at Python's `level`."""
        logging.getLogger(NAME).log(level, "%s", logged_text(without(without_answer(message % parts), self._secrets)))


def logged(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings `config` with a logger; none of librdkafka's clients is made without one."""
    return {"logger": ClientLog(config), **config}
