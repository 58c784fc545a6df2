"""What the publisher is told of a connector: plain values, which Spark pickles into every task."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from connectors.kafka.consumers import Setting
from connectors.kafka.retry import NEVER, Retry


class SinkClients(Struct, frozen=True, kw_only=True):
    """The librdkafka settings of the publishing clients. Its repr shows none of them."""

    producer: Mapping[str, Setting]
    admin: Mapping[str, Setting]

    def __repr__(self) -> str:
        return "Clients()"


class WriteRules(Struct, frozen=True, kw_only=True):
    """How records are written, and what happens to one that cannot be.

    `source_headers`: output.source.headers.enable. `tolerate`: errors.tolerance is `all`. `dead_letters`:
    the dead letter topic, None where such records are only counted. `context_headers`: whether dead letters
    carry `__connect.errors.*`.
    """

    source_headers: bool = True
    tolerate: bool = False
    dead_letters: str | None = None
    context_headers: bool = False


class TransactionLimits(Struct, frozen=True, kw_only=True):
    """What a transaction holds at most, how long the broker is waited for at each step, and what follows then."""

    transaction_bytes: int = 64 << 20
    transaction_s: float = 10.0
    piece_records: int = 10_000
    deadline_s: float = 50.0
    retry: Retry = NEVER
