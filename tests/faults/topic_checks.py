"""The checks of a connector with one winner per key over all partitions of its topic (compaction.scope=topic)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.faults.load import GONE
from tests.support.kafka import Read

Table = dict[bytes | None, bytes]
"""The values of living keys."""


def broken_promises(source: Sequence[Read], output: Iterable[Read]) -> Iterator[str]:
    """Yields what a reader of `output` must not see, once all of `source` is published."""
    truth = {(record.partition, record.offset): record for record in source}
    newest: dict[tuple[int, int], tuple[int, int]] = {}
    seen: set[tuple[int, int, int]] = set()
    tables: dict[int, Table] = {}
    for record in output:
        _apply(tables.setdefault(record.partition, {}), record)
        headers = {name: value or b"" for name, value in record.headers if name.startswith("keyfold.")}
        if "keyfold.source.offset" not in headers:  # the tombstone of a generation
            continue
        at = int(headers["keyfold.source.partition"]), int(headers["keyfold.source.offset"])
        place = int(headers.get("keyfold.generation", b"1")), at[1]
        if (at[0], *place) in seen:
            yield f"(1) source {at} is in the output twice"
        seen.add((at[0], *place))
        if place <= newest.get((record.partition, at[0]), (0, -1)):
            yield f"(2) output {record.partition}: {place} of source partition {at[0]} comes late"
        newest[record.partition, at[0]] = place
        expected = truth.get(at)
        if expected is None or (record.key, record.value) != (expected.key, expected.value):
            yield f"(4) source {at}: {record} is not {expected}"
    living = [(key, value) for table in tables.values() for key, value in table.items()]
    if len(living) > len(dict(living)):
        yield f"(3) keys are live in several partitions: {tables}"
    yield from _differences("(3) output", dict(living), winners(source))


def filled(source: Iterable[Read]) -> tuple[Read, ...]:
    """Returns `source` with the fields that are unavailable taken from the record before of the key, by the order."""
    before: dict[bytes | None, bytes | None] = {}
    made: list[Read] = []
    for record in sorted(source, key=_place):
        earlier = before.get(record.key)
        value = record.value
        if value is not None and GONE in value and earlier is not None:
            value = value.replace(GONE, json.loads(earlier)["text"].encode())
        before[record.key] = value
        made.append(record._replace(value=value))
    return tuple(made)


def _place(record: Read) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset


def snapshot_violations(
    source: Sequence[Read],
    output: Iterable[Read],
    rows: Iterable[tuple[bytes | None, bytes | None]],
    source_offsets: Mapping[str, int],
    output_offsets: Mapping[str, int],
) -> Iterator[str]:
    """Yields what is wrong with the keys and values of a snapshot, and with what is read from its offsets on."""
    held = {key: value or b"" for key, value in rows}
    below = [record for record in source if record.offset < source_offsets.get(str(record.partition), 0)]
    yield from _differences("snapshot", held, winners(below))
    for record in output:
        if record.offset >= output_offsets.get(str(record.partition), 0):
            _apply(held, record)
    yield from _differences("snapshot and output", held, winners(source))


def winners(source: Iterable[Read]) -> Table:
    """Returns the value of each living key by its record of the highest time, then partition and offset."""
    last = {record.key: record.value for record in sorted(source, key=_place) if record.key is not None}
    return {key: value for key, value in last.items() if value is not None}


def _apply(table: Table, record: Read) -> None:
    if record.value is None:
        table.pop(record.key, None)
    else:
        table[record.key] = record.value


def _differences(what: str, found: Table, expected: Table) -> Iterator[str]:
    for key in sorted(found.keys() | expected.keys(), key=str):
        if found.get(key) != expected.get(key):
            yield f"{what}: {key!r} is {found.get(key)!r}, should be {expected.get(key)!r}"
