"""Checks the promises of docs/protocol.md on what a read_committed reader of the output saw."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tests.support.kafka import Read

OWN = "keyfold."


class Rules(NamedTuple):
    """By what records compete: keys of which `same` says the same are one, and of theirs the highest `rank` wins."""

    same: Callable[[bytes | None], bytes | None]
    rank: Callable[[Read], tuple[int, ...]]


def by_bytes(key: bytes | None) -> bytes | None:
    """Compares keys by what they are."""
    return key


def by_offset(record: Read) -> tuple[int, ...]:
    """Orders records of a partition as they came."""
    return (record.offset,)


def by_time(record: Read) -> tuple[int, ...]:
    """Orders records by their time, and those of one time as they came."""
    return record.timestamp_ms, record.offset


PLAIN = Rules(by_bytes, by_offset)


class Published(NamedTuple):
    """An output record with the source position in its headers."""

    record: Read
    source_topic: str
    source_partition: int
    source_offset: int


def with_sources(output: Iterable[Read]) -> list[Published]:
    """Returns output records with their source position; raises KeyError if one of keyfold's headers is missing."""
    return [_published(record) for record in output]


def _published(record: Read) -> Published:
    own = {name: (value or b"").decode() for name, value in record.headers if name.startswith(OWN)}
    return Published(
        record,
        own["keyfold.source.topic"],
        int(own["keyfold.source.partition"]),
        int(own["keyfold.source.offset"]),
    )


def broken_promises(
    source: Iterable[Read],
    output: Iterable[Read],
    ends: Mapping[int, int],
    rules: Rules = PLAIN,
    *,
    skips: bool = False,
) -> list[str]:
    """Returns every violation of promises 1 to 4, one line each; `ends` is partition → published offset.

    `skips`: the last record of a key may be missing if the one before it in the output says the same.
    """
    truth = {(record.partition, record.offset): record for record in source}
    found = with_sources(output)
    return [*_twice(found), *_falling(found), *_changed(truth, found), *_wrong_last(truth, found, ends, rules, skips)]


def _twice(found: list[Published]) -> list[str]:
    seen: set[tuple[int, int]] = set()
    faults = []
    for one in found:
        at = (one.source_partition, one.source_offset)
        if at in seen:
            faults.append(f"(1) source {at} is in the output twice")
        seen.add(at)
    return faults


def _falling(found: list[Published]) -> list[str]:
    last: dict[int, int] = {}
    faults = []
    for one in found:
        if one.record.partition != one.source_partition:
            faults.append(f"(2) source partition {one.source_partition} went to {one.record.partition}")
        if one.source_offset <= last.get(one.source_partition, -1):
            faults.append(
                f"(2) partition {one.source_partition}: {one.source_offset} after {last[one.source_partition]}"
            )
        last[one.source_partition] = one.source_offset
    return faults


def _changed(truth: Mapping[tuple[int, int], Read], found: list[Published]) -> list[str]:
    return [
        f"(4) source {(one.source_partition, one.source_offset)}: {_bare(one.record)} is not {expected}"
        for one in found
        if _bare(one.record) != (expected := _original(truth, one))
    ]


def _original(truth: Mapping[tuple[int, int], Read], one: Published) -> object:
    record = truth.get((one.source_partition, one.source_offset))
    return None if record is None else _bare(record)


def _bare(record: Read) -> object:
    headers = tuple(header for header in record.headers if not header[0].startswith(OWN))
    return record.key, record.value, headers, record.timestamp_ms


def _wrong_last(
    truth: Mapping[tuple[int, int], Read], found: list[Published], ends: Mapping[int, int], rules: Rules, skips: bool
) -> list[str]:
    sent = [truth[at] for one in found if (at := (one.source_partition, one.source_offset)) in truth]
    expected = _last_per_key(truth.values(), ends, rules)
    seen = _last_per_key(sent, ends, rules._replace(rank=by_offset))
    return [
        f"(3) partition {partition}, key {key!r}: last is {seen.get((partition, key))}, should be {offset}"
        for (partition, key), offset in expected.items()
        if (last := seen.get((partition, key))) != offset
        and not (skips and last is not None and _says(truth.get((partition, last))) == _says(truth[partition, offset]))
    ]


def _says(record: Read | None) -> object:
    """Returns what of a record a reader acts on: all but its time."""
    return None if record is None else (record.value, record.headers)


def _last_per_key(
    records: Iterable[Read], ends: Mapping[int, int], rules: Rules
) -> dict[tuple[int, bytes | None], int]:
    return {
        (record.partition, rules.same(record.key)): record.offset
        for record in sorted(records, key=rules.rank)
        if record.key is not None and record.offset < ends.get(record.partition, 0)
    }
