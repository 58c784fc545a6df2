"""Says what a connector leaves out of its tables, though it runs: truncates, records without a key, records let go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import structlog

from compactor.ingest.rejected import GIVE_IT_A_KEY
from compactor.model.record import RangeRead
from connectors.clock import SYSTEM_CLOCK
from connectors.progress.rare_warnings import RareWarnings
from connectors.transforms.transform import SWEEP

STILL_THERE: Final = "what the table held before is still in output and snapshots."
_LOOK: Final = "keyfold dlq list CONNECTOR.json counts them by topic and class, if there is a dead letter topic."

_log: Final = structlog.get_logger()
_WARNINGS: Final = RareWarnings(SYSTEM_CLOCK)
"""The truncates that were warned of, by connector and topic; of this process."""


def warn_of_truncates(connector: str, ranges: Iterable[RangeRead], warnings: RareWarnings = _WARNINGS) -> None:
    """Warns of the truncates in what was read, by topic, if its time has come; with the offset of the newest one."""
    for read in ranges:
        if not read.truncates:
            continue
        records = warnings.due((connector, read.tp.topic), read.truncates)
        if records is not None:
            _log.warning(
                "a table was truncated, and its rows stay",
                connector=connector,
                topic=read.tp.topic,
                partition=read.tp.partition,
                offset=read.last_truncate,
                truncates=records,
                next=SWEEP,
            )


def lines(counters: Mapping[str, int]) -> Iterator[str]:
    """Yields a sentence for each kind of record that was left out since the connector started, with what helps."""
    if truncates := counters.get("truncates", 0):
        yield f"{_count(truncates, 'truncate')} dropped: {STILL_THERE} {SWEEP}"
    keyless = counters.get("records_without_key", 0)
    if keyless:
        yield f"{_count(keyless, 'record')} without a key, and in no table. {GIVE_IT_A_KEY}"
    if others := counters.get("records_rejected", 0) - keyless + counters.get("records_refused", 0):
        yield f"{_count(others, 'record')} let go as bad (errors.tolerance=all). {_LOOK}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what} was" if number == 1 else f"{number:,} {what}s were"
