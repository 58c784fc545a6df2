"""The checks of a fault case: the promises of docs/protocol.md, positions, the catalog's order, the snapshot.

They are pure functions: `observe.observe` reads the broker and the files, and tests/faults/test_checks.py shows that
each kind of violation is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from compactor.model.log import PartitionLog
from compactor.snapshot.manifest import Manifest
from tests.faults import topic_checks
from tests.faults.load import Sent
from tests.support.generations import broken_generations
from tests.support.kafka import Read
from tests.support.promises import PLAIN, Rules, broken_promises

At = tuple[int, bytes | None]
"""Partition and key."""
Table = Mapping[At, bytes]
"""The values of living keys."""


class Row(NamedTuple):
    """A record of a snapshot."""

    partition: int
    key: bytes | None
    offset: int
    value: bytes | None


class SnapshotFiles(NamedTuple):
    """The snapshot that LATEST names: its manifest, its files as they are, and what they hold."""

    manifest: Manifest
    files: Mapping[str, bytes]
    counts: Mapping[str, int]
    rows: tuple[Row, ...]


class Observation(NamedTuple):
    """What there is to see of one connector while its source rests.

    `positions`: the next source offset by partition, as the group holds it. `damaged`: files that the catalog names
    and that are not what it says of them. `skips`: records that change nothing are not sent. `is_of_topic`: a key has
    one winner over all partitions. `fills`: fields that are unavailable have values. `rules`: by what records compete.
    """

    acknowledged: Mapping[tuple[int, int], Sent]
    source: tuple[Read, ...]
    ends: Mapping[int, int]
    output: tuple[Read, ...]
    positions: Mapping[int, int]
    logs: tuple[PartitionLog, ...]
    snapshot: SnapshotFiles | None
    damaged: tuple[str, ...] = ()
    skips: bool = False
    is_of_topic: bool = False
    fills: bool = False
    rules: Rules = PLAIN


def violations(facts: Observation) -> list[str]:
    """Every breach, one line each; none where all promises hold and everything agrees."""
    published = {log.partition: log.published for log in facts.logs}
    lost = list(_lost_at_the_source(facts))
    facts = facts._replace(source=topic_checks.filled(facts.source)) if facts.fills else facts
    return [
        *lost,
        *_promises(facts, published),
        *_positions(facts, published),
        *(fault for log in facts.logs for fault in _out_of_order(log)),
        *(f"catalog: {what}" for what in facts.damaged),
        *_snapshot(facts),
    ]


def _promises(facts: Observation, published: Mapping[int, int]) -> list[str]:
    if facts.is_of_topic:
        return [*topic_checks.broken_promises(facts.source, facts.output)]
    starts = {log.partition: log.generation.start for log in facts.logs if log.generation}
    if not starts:
        return broken_promises(facts.source, facts.output, published, facts.rules, skips=facts.skips)
    return broken_generations(facts.source, facts.output, published, starts, facts.rules)


def _lost_at_the_source(facts: Observation) -> Iterator[str]:
    """The harness itself: what was acknowledged must be there, or nothing else is worth looking at."""
    there = {(one.partition, one.offset): one for one in facts.source}
    for at, sent in facts.acknowledged.items():
        one = there.get(at)
        if one is None:
            yield f"source: acknowledged record {at} is not there"
        elif (one.key, one.value) != (sent.key, sent.value):
            yield f"source: acknowledged record {at} is {one.key!r}, was sent as {sent.key!r}"


def _positions(facts: Observation, published: Mapping[int, int]) -> Iterator[str]:
    for partition, end in facts.ends.items():
        held = facts.positions.get(partition), published.get(partition)
        if held != (end, end):
            yield f"positions: partition {partition} ends at {end}, the group holds {held[0]}, the catalog {held[1]}"


def _out_of_order(log: PartitionLog) -> Iterator[str]:
    offsets = log.start, log.clean_end, log.published, log.folded_end, log.end
    if list(offsets) != sorted(offsets):
        yield f"log: {log.tp} has start, clean_end, published, folded_end, end = {offsets}"
    reached = log.base.end if log.base else log.clean_end
    for run in log.runs:
        if run.start < reached and run.end > run.start:
            yield f"log: {log.tp} has a run [{run.start}, {run.end}) that begins below {reached}"
        reached = run.end
    if log.quarantine:
        yield f"log: {log.tp} is set aside: {log.quarantine.error}"


def _snapshot(facts: Observation) -> Iterator[str]:
    if facts.snapshot is None:
        return
    yield from _files(facts.snapshot)
    if facts.is_of_topic:
        said, rows = facts.snapshot.manifest, ((row.key, row.value) for row in facts.snapshot.rows)
        offsets = said.source_offsets, said.output_offsets
        yield from topic_checks.snapshot_violations(facts.source, facts.output, rows, *offsets)
        return
    vector = {int(partition): offset for partition, offset in facts.snapshot.manifest.source_offsets.items()}
    found = {(row.partition, row.key): (row.offset, row.value) for row in facts.snapshot.rows}
    if len(found) != len(facts.snapshot.rows):
        yield f"snapshot: {len(facts.snapshot.rows)} rows have {len(found)} keys"
    expected = {
        (record.partition, record.key): (record.offset, record.value)
        for record in _last(facts, vector)
        if record.value is not None
    }
    yield from _differences("snapshot", found, expected)
    yield from _differences("snapshot and output", _resumed(facts, facts.snapshot), _living(facts))


def _files(taken: SnapshotFiles) -> Iterator[str]:
    for file in taken.manifest.files:
        data = taken.files.get(file.path)
        if data is None:
            yield f"snapshot: {file.path} is not there"
            continue
        said = (file.bytes, file.sha256, file.records)
        is_ = (len(data), hashlib.sha256(data).hexdigest(), taken.counts.get(file.path))
        if said != is_:
            yield f"snapshot: {file.path} is {is_}, the manifest says {said}"
    if taken.manifest.records != len(taken.rows):
        yield f"snapshot: {len(taken.rows)} rows, the manifest says {taken.manifest.records}"


def _resumed(facts: Observation, taken: SnapshotFiles) -> Table:
    """What a consumer knows that loads the snapshot and then reads the output from its offsets on."""
    table = {(row.partition, row.key): row.value or b"" for row in taken.rows}
    for record in facts.output:
        if record.offset < taken.manifest.output_offsets.get(str(record.partition), 0):
            continue
        if record.value is None:
            table.pop((record.partition, record.key), None)
        else:
            table[record.partition, record.key] = record.value
    return table


def _living(facts: Observation) -> Table:
    return {(record.partition, record.key): record.value for record in _last(facts, None) if record.value is not None}


def _last(facts: Observation, below: Mapping[int, int] | None) -> Iterable[Read]:
    """The record that wins of each key of each partition, of those below the offsets `below`."""
    taken = (one for one in facts.source if below is None or one.offset < below.get(one.partition, 0))
    ordered = sorted(taken, key=facts.rules.rank)
    return {(one.partition, facts.rules.same(one.key)): one for one in ordered if one.key is not None}.values()


def _differences(what: str, found: Mapping[At, object], expected: Mapping[At, object]) -> Iterator[str]:
    for at in sorted(found.keys() | expected.keys(), key=str):
        if found.get(at) != expected.get(at):
            yield f"{what}: {at} is {found.get(at)}, should be {expected.get(at)}"
