"""Compares the records of one partition on several sides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.support.kafka import Read


class Record(NamedTuple):
    """The parts of a record that compaction must not change."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def of_topic(records: Iterable[Read], end: int) -> list[Record]:
    """Returns the records below offset `end` that a consumer has read."""
    return [
        Record(one.offset, one.key, one.value, one.headers, one.timestamp_ms) for one in records if one.offset < end
    ]


def of_log(rows: Iterable[dict[str, Any]]) -> list[Record]:
    """Returns rows of keyfold's log (columns of record.RUN) as records."""
    return [Record(row["offset"], row["key"], row["value"], _headers(row), row["timestamp"]) for row in rows]


def _headers(row: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in row["headers"] or ())


def differences(sides: Mapping[str, Sequence[Record]]) -> list[str]:
    """Returns a line for each offset at which the sides differ, and for each side that is out of order."""
    found = {name: {one.offset: one for one in records} for name, records in sides.items()}
    wrong = []
    for offset in sorted(set().union(*found.values())):
        at = {name: records.get(offset) for name, records in found.items()}
        if len(set(at.values())) > 1:
            wrong.append(f"offset {offset}: " + "; ".join(f"{name} has {one}" for name, one in at.items()))
    return [*wrong, *(f"{name} is not in the order of offsets" for name, each in sides.items() if not _ordered(each))]


def _ordered(records: Sequence[Record]) -> bool:
    return all(one.offset < other.offset for one, other in pairwise(records))
