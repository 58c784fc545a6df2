"""Logs the records that are let go, a line each, as Kafka Connect does (errors.log.enable).

Source: `org.apache.kafka.connect.runtime.errors.LogReporter`. A reason may quote a part of a value.

On its own because the dead letters that it tells of need not be sent anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import structlog

from compactor.model.record import TIMESTAMP_TYPES, TopicPartition
from connectors.sinks.dead_letter import Refusals, rejection_for

_log: Final = structlog.get_logger()


def log_letters(
    connector: str, task: int, tp: TopicPartition, letters: pa.RecordBatch, refused: Refusals, *, messages: bool
) -> None:
    """Logs each row of `letters`; with `messages` (errors.log.include.messages) also which record it was."""
    for line, reason in _lines(connector, task, tp, letters, refused, messages=messages):
        _log.error(line, error=reason)


def _lines(
    connector: str, task: int, tp: TopicPartition, letters: pa.RecordBatch, refused: Refusals, *, messages: bool
) -> Iterator[tuple[str, str]]:
    mine = refused.get(tp, {})
    names = ("offset", "timestamp", "timestamp_type", "rejected")
    for offset, timestamp, kind, rejected in zip(*(letters[name].to_pylist() for name in names), strict=True):
        rejection = rejection_for(rejected, mine.get(offset))
        where = (
            f", where consumed record is {{topic='{tp.topic}', partition={tp.partition}, offset={offset}, "
            f"timestamp={timestamp}, timestampType={TIMESTAMP_TYPES[kind]}}}"
        )
        stage, name = rejection.stage.value, rejection.class_name
        what = f"Error encountered in task {connector}-{task}. Executing stage '{stage}' with class '{name}'"
        yield f"{what}{where if messages else ''}.", rejection.message
