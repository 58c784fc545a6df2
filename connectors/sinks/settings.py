"""Settings of writing records and of transactions: plain values, which Spark pickles into every task."""

from __future__ import annotations

from msgspec import Struct

from connectors.kafka.retry import NEVER, Retry


class WriteRules(Struct, frozen=True, kw_only=True):
    """How records are written, and what happens to one that cannot be.

    `source_headers`: output.source.headers.enable. `tolerate`: errors.tolerance is `all`. `dead_letters`:
    the dead letter topic, None if such records are only counted. `context_headers`: whether dead letters
    carry `__connect.errors.*`. `log_errors`: each such record is logged (errors.log.enable), with
    `log_messages` also which one it was.
    """

    source_headers: bool = True
    tolerate: bool = False
    dead_letters: str | None = None
    context_headers: bool = False
    log_errors: bool = False
    log_messages: bool = False


class TransactionLimits(Struct, frozen=True, kw_only=True):
    """Upper bounds of a transaction, and of waiting for the broker (s).

    `transaction_bytes`: by `record.measure`. `transaction_s`: how long records are added. `batch_records`: records that
    go to librdkafka at once. `deadline_s`: how long each step may take. `retry`: for how long a step without an answer
    is tried again.
    """

    # A larger transaction holds up read_committed readers longer, and all of it is sent again if it fails; a smaller
    # one pays the requests of steps 8, 10 and 11 for fewer records.
    transaction_bytes: int = 64 << 20
    transaction_s: float = 10.0
    # Deliveries and the time are looked at after each such group; records of neighbouring partitions are joined in it.
    batch_records: int = 10_000
    # Less than librdkafka's default of transaction.timeout.ms, 60 s.
    deadline_s: float = 50.0
    retry: Retry = NEVER
