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

from compactor.ingest.rejected import GIVE_IT_A_KEY
from compactor.model.record import NULL_KEY, TIMESTAMP_TYPES, TopicPartition
from connectors.clock import SYSTEM_CLOCK
from connectors.progress.rare_warnings import RareWarnings
from connectors.sinks.dead_letter import Refusals, rejection_for

_log: Final = structlog.get_logger()
_EVENTS: Final = {
    (False, True): "records are let go",
    (False, False): "records go to the dead letter topic",
    (True, True): "records without a key are let go",
    (True, False): "records without a key go to the dead letter topic",
}
"""What is logged, by whether the records have no key, and whether there is no dead letter topic."""
_WARNINGS: Final = RareWarnings(SYSTEM_CLOCK)
"""What was warned of, by connector, topic and class; of this process."""


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
    explained: bool,
    warnings: RareWarnings = _WARNINGS,
) -> None:
    """Warns of the first row of each class that has refused some of `letters`, if its time has come.

    It says how many there were since the last warning. `topic` is the dead letter topic, None if they are only counted;
    `explained`: whether letters say in headers what was wrong. Records without a key are a class of their own.
    """
    mine = refused.get(tp, {})
    first: dict[tuple[str, bool], tuple[int, str]] = {}
    counts = Counter[tuple[str, bool]]()
    for offset, rejected in zip(letters["offset"].to_pylist(), letters["rejected"].to_pylist(), strict=True):
        rejection = rejection_for(rejected, mine.get(offset))
        kind = rejection.class_name, rejection.message == NULL_KEY
        first.setdefault(kind, (offset, rejection.stage.value))
        counts[kind] += 1
    for (name, is_keyless), (offset, stage) in first.items():
        records = warnings.due((connector, tp.topic, name, is_keyless), counts[name, is_keyless])
        if records is None:
            continue
        _log.warning(
            _EVENTS[is_keyless, topic is None],
            connector=connector,
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            records=records,
            stage=stage,
            refused_by=name,
            dead_letters=topic,
            next=GIVE_IT_A_KEY if is_keyless else _look(topic, explained=explained),
        )


def _look(topic: str | None, *, explained: bool) -> str:
    """Returns what says why records were let go."""
    if topic is None or not explained:
        headers = ", errors.deadletterqueue.context.headers.enable=true has letters say why" if topic else ""
        return f"errors.log.enable=true logs each{headers}"
    return "keyfold dlq list CONNECTOR.json says why"


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
