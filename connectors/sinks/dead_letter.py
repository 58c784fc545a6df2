"""Makes dead letters, as Kafka Connect does, of records that cannot be folded or that the broker refuses.

They keep key, value, headers and timestamp, which a topic with LogAppendTime, as keyfold makes it, replaces; with
context headers enabled, the original timestamp and Connect's `__connect.errors.*` headers follow the record's own
(`org.apache.kafka.connect.runtime.errors.DeadLetterQueueReporter`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

import compactor.errors
import connectors.errors
from compactor.errors import RejectedRecordError
from compactor.ingest.rejected import action_for
from compactor.model.record import TopicPartition
from connectors.errors import RecordRefusedError
from connectors.rejection import SINK_CLASS, Rejection, Stage, rejection_of
from connectors.sinks.encode import TIMESTAMP, Header, Row, original_headers, rows
from connectors.sinks.settings import WriteRules

PREFIX: Final = "__connect.errors."

Refusals = Mapping[TopicPartition, Mapping[int, str]]
"""Offsets that the broker refused, and why."""


def split(tp: TopicPartition, batch: pa.RecordBatch, refused: Refusals) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Splits `batch` into the rows for the output and those that are dead letters, None if there are none."""
    mine = refused.get(tp)
    odd = pc.is_valid(batch["rejected"])
    if mine:
        odd = pc.or_(odd, pc.is_in(batch["offset"], pa.array(list(mine), pa.int64())))
    if not pc.any(odd).as_py():
        return batch, None
    return batch.filter(pc.invert(odd)), batch.filter(odd)


def refuse_rejected(connector: str, tp: TopicPartition, letters: pa.RecordBatch, refused: Refusals) -> None:
    """Raises RejectedRecordError for the first row that errors.tolerance=none does not let go."""
    mine = refused.get(tp, {})
    pairs = zip(letters["offset"].to_pylist(), letters["rejected"].to_pylist(), strict=True)
    for offset, reason in pairs:
        if offset not in mine:
            raise RejectedRecordError(
                f"Connector {connector}: record {tp} at offset {offset} cannot be folded: {reason.removesuffix('.')}.",
                action_for(reason),
                topic=tp.topic,
            )


def records(
    connector: str, bucket: int, tp: TopicPartition, letters: pa.RecordBatch, refused: Refusals, rules: WriteRules
) -> Iterator[Row]:
    """Makes the rows of `letters` as they go to the dead letter topic."""
    headers = original_headers(letters) or repeat([], letters.num_rows)
    if not rules.context_headers:
        return rows(letters, headers)
    mine = refused.get(tp, {})
    names = ("offset", "timestamp", "rejected")
    values = zip(*(letters[name].to_pylist() for name in names), headers, strict=True)
    return rows(
        letters,
        (own + _time(ms) + _context(connector, bucket, tp, at, why, mine.get(at)) for at, ms, why, own in values),
    )


def _time(timestamp: int) -> list[Header]:
    """Returns the header with the source's time, which the topic may replace; for time 0 `encode` adds it to each."""
    return [(TIMESTAMP, b"%d" % timestamp)] if timestamp else []


def _context(
    connector: str, bucket: int, tp: TopicPartition, offset: int, rejected: str | None, refused: str | None
) -> list[Header]:
    rejection = rejection_for(rejected, refused)
    name, message, stage = _error_name(rejection), rejection.message, rejection.stage.value
    context = {
        "topic": tp.topic,
        "partition": str(tp.partition),
        "offset": str(offset),
        "connector.name": connector,
        "task.id": str(bucket),
        "stage": stage,
        "class.name": rejection.class_name,
        "exception.class.name": name,
        "exception.message": message,
        "exception.stacktrace": f"{name}: {message}\n\tat {stage} {rejection.class_name} ({tp} at offset {offset})",
    }
    return [(PREFIX + key, text.encode()) for key, text in context.items()]


def rejection_for(rejected: str | None, refused: str | None) -> Rejection:
    """Returns why a record is let go: as the broker refused it, or as its run says."""
    if refused is not None:
        return Rejection(Stage.KAFKA_PRODUCE, SINK_CLASS, RecordRefusedError.__qualname__, refused)
    return rejection_of(rejected or "")


def _error_name(rejection: Rejection) -> str:
    """Returns the name of an error's class with its module, as Java's names have their package."""
    for module in (connectors.errors, compactor.errors):
        if hasattr(module, rejection.exception):
            return f"{module.__name__}.{rejection.exception}"
    return rejection.exception or f"{RejectedRecordError.__module__}.{RejectedRecordError.__qualname__}"
