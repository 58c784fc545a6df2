"""Logs records that are let go: a line each, as Kafka Connect does (errors.log.enable), else a warning now and then.

Source: `org.apache.kafka.connect.runtime.errors.LogReporter`. A reason may quote a part of a value, so a warning, for
which no setting asks, holds none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import structlog

from compactor.model.record import TIMESTAMP_TYPES, TopicPartition
from connectors.clock import SYSTEM_CLOCK
from connectors.progress.observer import Interval
from connectors.sinks.dead_letter import Refusals, rejection_for

_log: Final = structlog.get_logger()
PAUSES_MS: Final = (60_000, 600_000, 3_600_000)
"""After the first warning of a kind the next ones follow after these pauses: a source may be malformed for days."""
_times: Final = Interval(SYSTEM_CLOCK, *PAUSES_MS)
"""When a warning is due, by connector, topic and class; of this process."""


def log_letters(
    connector: str, task: int, tp: TopicPartition, letters: pa.RecordBatch, refused: Refusals, *, messages: bool
) -> None:
    """Logs each row of `letters`; with `messages` (errors.log.include.messages) also which record it was."""
    for line, reason in _lines(connector, task, tp, letters, refused, messages=messages):
        _log.error(line, error=reason)


def warn_of_letters(
    connector: str,
    tp: TopicPartition,
    letters: pa.RecordBatch,
    refused: Refusals,
    *,
    topic: str | None,
    due: Interval | None = None,
) -> None:
    """Warns of the first row of each class that has refused some of `letters`, if its time has come.

    `topic` is the dead letter topic, None if they are only counted. `due` says when a warning's time has come.
    """
    mine, due = refused.get(tp, {}), due or _times
    first: dict[str, tuple[int, str]] = {}
    counts = Counter[str]()
    for offset, rejected in zip(letters["offset"].to_pylist(), letters["rejected"].to_pylist(), strict=True):
        rejection = rejection_for(rejected, mine.get(offset))
        first.setdefault(rejection.class_name, (offset, rejection.stage.value))
        counts[rejection.class_name] += 1
    for name, (offset, stage) in first.items():
        if not due.ready((connector, tp.topic, name)):
            continue
        _log.warning(
            "records are let go" if topic is None else "records go to the dead letter topic",
            connector=connector,
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            records=counts[name],
            stage=stage,
            refused_by=name,
            dead_letters=topic,
            next="errors.log.enable=true logs each" if topic is None else "keyfold dlq list CONNECTOR.json says why",
        )


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
