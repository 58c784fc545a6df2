"""Finds the one record that the broker refuses, by bisection.

A refused record takes its whole produce batch along, and the broker does not say which one it was. So what was to go in
one transaction goes in several: one per partition, then halves, until a transaction holds a single record. The
records before it have been sent by then, those after it follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import structlog

from compactor.model.record import TopicPartition
from connectors.errors import RecordRefusedError, UnreachableError
from connectors.sinks.batching import PartitionBatch
from connectors.sinks.settings import WriteRules
from connectors.sinks.transaction import Refused

_log = structlog.get_logger()

Group = list[PartitionBatch]

REQUEST_BYTES: Final = 104_857_600
"""Kafka's default of socket.request.max.bytes."""


def send_all(
    batches: Sequence[PartitionBatch],
    send: Callable[[Sequence[PartitionBatch]], int],
    single: Callable[[PartitionBatch, Refused], None],
    reopen: Callable[[], None],
) -> None:
    """Sends all of `batches`, in order within each partition.

    `send` commits a prefix of what it is given and returns its length, or raises Refused; `single` decides about a
    batch of one record, and returns only if sending it again has another effect; `reopen` follows every refusal.
    """
    waiting: list[Group] = [list(batches)]
    while waiting:
        group = waiting.pop(0)
        try:
            done = send(group)
        except Refused as refusal:
            reopen()
            waiting[:0] = _smaller(group, refusal, single)
        else:
            if done < len(group):
                waiting.insert(0, group[done:])


def _smaller(group: Group, refusal: Refused, single: Callable[[PartitionBatch, Refused], None]) -> list[Group]:
    parts = smaller(group)
    if len(parts) == 1:
        single(parts[0][0], refusal)
    return parts


def smaller(group: Group) -> list[Group]:
    """Cuts `group` into one part per partition, else into halves; a single record stays the one part."""
    partitions: dict[TopicPartition, Group] = {}
    for batch in group:
        if batch.records:
            partitions.setdefault(batch.tp, []).append(batch)
    ends = [batch for batch in group if not batch.records]
    if len(partitions) > 1 or ends:
        return [*partitions.values(), *([ends] if ends else [])]
    if len(group) > 1:
        return [group[: len(group) // 2], group[len(group) // 2 :]]
    return [[half] for half in group[0].halves()] if group[0].records > 1 else [group]


class ErrorTolerance:
    """Decides by errors.tolerance about a record that is known to be refused."""

    def __init__(self, connector: str, rules: WriteRules, refused: dict[TopicPartition, dict[int, str]]) -> None:
        self._connector = connector
        self._rules = rules
        self._refused = refused

    def let_go(self, batch: PartitionBatch, refusal: Refused, output: str | None) -> None:
        """Marks the record of `batch` as a dead letter; raises RecordRefusedError if that is not allowed."""
        offset = batch.next_offset - 1
        mine = self._refused.setdefault(batch.tp, {})
        who = "the broker refuses" if refusal.setting is None else "librdkafka refuses"
        where = f"Connector {self._connector}: {who} record {batch.tp} at offset {offset} ({batch.bytes:,} bytes)"
        if offset in mine or batch.rows["rejected"][0].is_valid:
            raise RecordRefusedError(
                f"{where} also as a dead letter in {self._rules.dead_letters}: {refusal.reason}.",
                f"{_to_raise(refusal) or _to_change(output)}; or, for a record that need not get there, raise "
                "max.message.bytes of the dead letter topic, or unset errors.deadletterqueue.topic.name to only count "
                "such records.",
            )
        if not self._rules.tolerate:
            raise RecordRefusedError(
                f"{where} for output topic {output}: {refusal.reason}.",
                f"{_to_raise(refusal) or _to_change(output)}, or set errors.tolerance=all, with "
                "errors.deadletterqueue.topic.name to keep such records.",
                topic=batch.tp.topic,
            )
        mine[offset] = refusal.reason
        _log.warning(
            "record refused by the broker",
            connector=self._connector,
            topic=batch.tp.topic,
            partition=batch.tp.partition,
            offset=offset,
            output=output,
            reason=refusal.reason,
        )


def _to_raise(refusal: Refused) -> str | None:
    """Returns what to do if librdkafka refuses; None if the broker does."""
    if refusal.setting is None:
        return None
    return f"Raise or unset producer.override.{refusal.setting} (librdkafka sends records of up to 1,000,000,000 bytes)"


def _to_change(output: str | None) -> str:
    return (
        f"Change what the settings of {output} refuse (max.message.bytes, which counts compressed bytes: see "
        "producer.override.compression.type; message.timestamp.*)"
    )


def explained(error: UnreachableError, group: Sequence[PartitionBatch]) -> UnreachableError:
    """Returns `error` of sending `group`, with the record of more than REQUEST_BYTES that may have caused it.

    A broker hangs up on a request that is too large, without an answer.
    """
    large = next((batch for batch in group if batch.largest(REQUEST_BYTES)), None)
    if large is None:
        return error
    size = large.largest(REQUEST_BYTES)
    what = f"Among the records was one of {large.tp} below offset {large.next_offset} with {size:,} bytes"
    return UnreachableError(
        f"{error.message} {what}.",
        f"{error.action} A broker hangs up on a request that is larger, compressed, than its socket.request.max.bytes "
        f"({REQUEST_BYTES:,} by default): raise it on all brokers.",
    )
