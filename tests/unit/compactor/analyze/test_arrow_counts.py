from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.analyze import analyze
from compactor.analyze.arrow_counts import ArrowCounts
from compactor.analyze.effect import Amount, Example, SplitKeys, Survivors
from compactor.analyze.preview import Count
from compactor.fold.memory_budget import MemoryBudget
from compactor.model.log import PartitionLog, empty
from compactor.model.log_transitions import append
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.base import Storage
from tests.support.dict_model import DictModel
from tests.support.logs import base, log, run
from tests.support.memory.storage import MemoryStorage
from tests.support.run_files import Row, run_rows, write_run

NOW = 50


def _versioned(number: int) -> list[Row]:
    return [{"key": "v", "value": number.to_bytes(8, "big", signed=True)}]


rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, b"", b"a", b"\xff"]),
            "value": st.sampled_from([None, b"", b"12"]),
            "headers": st.sampled_from(
                [[], [{"key": "ü", "value": None}, {"key": "h", "value": b"xy"}], *map(_versioned, (-1, 0, 1 << 62))]
            ),
            "order_value": st.sampled_from([None, b"", b"n1", b"t"]),
            "timestamp": st.sampled_from([-1, 0, 5, 9]),
            "rejected": st.sampled_from([None, None, "too large"]),
            "delete_horizon": st.sampled_from([None, NOW - 1, NOW, NOW + 1, NOW + 9]),
        }
    ),
    max_size=12,
)


def log_of(storage: Storage, partition: int, records: list[Row], topic: str = "t") -> PartitionLog:
    """A log of one run with these records at offsets 0, 1, …, or one that has none of its five."""
    made = empty(TopicPartition(topic, partition), 0, 0, None)
    if not records:
        return append(made, 0, 5, None, None)
    return append(made, 0, len(records), write_run(storage, run_rows(topic, partition, 0, records)), None)


def size_of(one: Row) -> int:
    parts = [one["key"], one["value"], *(part for header in one["headers"] for part in header.values())]
    return sum(len(part.encode() if isinstance(part, str) else part) for part in parts if part is not None)


def amount(found: list[Row]) -> Amount:
    return Amount(len(found), sum(map(size_of, found)))


@given(records=rows, start=st.integers(0, 5), width=st.integers(0, 12))
def test_last_records_are_those_of_a_dict(records: list[Row], start: int, width: int) -> None:
    """Of any range, by what a full fold makes of each: what lives, gets a horizon, waits for it, has passed it."""
    storage = MemoryStorage()
    one = log_of(storage, 0, records)
    end = min(start + width, one.end)
    fold = ((start, max(start, end)),)
    (found,) = ArrowCounts(storage, [one]).survivors([fold], NOW)[fold]
    placed = [{"partition": 0, "offset": at, **each} for at, each in enumerate(records)]
    last = DictModel(placed).survivors(start, end)
    dead = [each for each in last if each["value"] is None]
    keep = [each for each in dead if each["delete_horizon"] is not None and each["delete_horizon"] > NOW]
    assert found == Survivors(
        live=amount([each for each in last if each["value"] is not None]),
        stamp=amount([each for each in dead if each["delete_horizon"] is None]),
        keep=amount(keep),
        drop=amount([each for each in dead if each["delete_horizon"] is not None and each not in keep]),
        earliest_horizon_ms=min((each["delete_horizon"] for each in keep), default=None),
        latest_horizon_ms=max((each["delete_horizon"] for each in keep), default=None),
    )


def _rank(record: Row, order: str) -> tuple[object, ...]:
    """Returns by what an order compares a record; one without a value is below all."""
    if order == "timestamp":
        return (record["timestamp"],)
    if order == "header:v":
        return tuple(
            int.from_bytes(header["value"], "big", signed=True)
            for header in record["headers"]
            if header["key"] == "v" and header["value"]
        )
    return (record["order_value"],) if record["order_value"] else ()


@given(
    first=rows,
    second=rows,
    width=st.integers(0, 12),
    order=st.sampled_from(["timestamp", "header:v", "field:source.lsn"]),
)
def test_winners_over_a_topic_are_those_of_a_dict(first: list[Row], second: list[Row], width: int, order: str) -> None:
    """By order, then by partition and offset; each counts for the log that has it, and no topic for another."""
    storage = MemoryStorage()
    logs = [log_of(storage, 0, first), log_of(storage, 1, second), log_of(storage, 0, first, topic="u")]
    fold = tuple((0, min(width, each.end)) for each in logs)
    ends = [end for _, end in fold]
    best: dict[bytes, tuple[tuple[tuple[object, ...], int, int], Row]] = {}
    for partition, records in enumerate((first, second)):
        for offset, each in enumerate(records[: ends[partition]]):
            place = (_rank(each, order), partition, offset)
            is_foldable = each["key"] is not None and each["rejected"] is None
            if is_foldable and (each["key"] not in best or place > best[each["key"]][0]):
                best[each["key"]] = place, each
    told = ArrowCounts(storage, logs).winners([fold], NOW, order)[fold]
    for partition in (0, 1):
        own = [each for place, each in best.values() if place[1] == partition]
        assert told[partition].all == amount(own)
        assert told[partition].live == amount([each for each in own if each["value"] is not None])
    alone = {each["key"] for each in first[: ends[2]] if each["rejected"] is None} - {None}
    assert told[2].all.records == len(alone)


@pytest.mark.parametrize(("order", "left"), [("offset", [0, 1]), ("timestamp", [0, 1]), ("header:v", [1, 0])])
def test_the_connectors_order_says_which_record_of_a_topic_wins(order: str, left: list[int]) -> None:
    """Without another one that is the time. Partition 0 has the higher version, partition 1 the later time."""
    storage = MemoryStorage()
    plain = {"key": b"a", "value": b"1", "rejected": None, "delete_horizon": None, "order_value": None}
    records = [{**plain, "headers": _versioned(2 - number), "timestamp": 5 + number} for number in (0, 1)]
    logs = tuple(log_of(storage, number, [record]) for number, record in enumerate(records))
    state = CatalogState(
        order=order, topics={"t": Topic(topic="t", topic_id="i", output=None, output_id=None)}, logs=logs
    )
    settings = EngineSettings(connector="c", policy=CompactionPolicy(), scope="topic")
    found = analyze.analyze(storage, state, [settings], NOW, partial(ArrowCounts, storage))
    assert [each.outcomes[0].effect.live.records for each in found.partitions] == left


@given(records=rows, cut=st.integers(1, 11))
def test_a_census_counts_each_part(records: list[Row], cut: int) -> None:
    """Records, bytes and rejected records between bounds; timestamps that say nothing are not the oldest."""
    storage = MemoryStorage()
    one = log_of(storage, 0, records)
    bounds = tuple(sorted({0, min(cut, one.end), one.end}))
    (counts,) = ArrowCounts(storage, [one]).range_counts([bounds])
    for start, end in pairwise(bounds):
        inside = records[start:end]
        refused = amount([each for each in inside if each["key"] is None or each["rejected"]])
        assert counts.between(start, end) == Count(
            records=len(inside),
            bytes=amount(inside).bytes,
            rejected=refused.records,
            rejected_bytes=refused.bytes,
            oldest_ms=min((each["timestamp"] for each in inside if each["timestamp"] > 0), default=None),
        )


def _row(key: bytes, value: bytes | None = b"v", timestamp: int = 0) -> Row:
    return {"key": key, "value": value, "headers": [], "timestamp": timestamp}


def test_split_keys_are_those_that_live_in_several_partitions() -> None:
    """By topic; a key that is deleted in one partition lives in one; the smallest five are named with their places.

    Of equal times the higher partition has the later record.
    """
    storage = MemoryStorage()
    many = [_row(b"%d" % number) for number in range(7)]
    logs = [
        log_of(storage, 0, [*many, _row(b"gone"), _row(b"gone", None), _row(b"own")]),
        log_of(storage, 1, [*many, _row(b"gone")]),
        log_of(storage, 3, [_row(b"0")]),
        log_of(storage, 0, [_row(b"own")], topic="u"),
        log_of(storage, 1, [_row(b"other")], topic="u"),
    ]
    found = ArrowCounts(storage, logs).split_keys(tuple((0, one.end) for one in logs))
    named = (Example(b"0", (0, 1, 3)), *(Example(b"%d" % number, (0, 1)) for number in range(1, 5)))
    assert found == {"t": SplitKeys(keys=7, examples=named, outdated=Amount(8, 16))}


@pytest.mark.parametrize(
    ("times", "values", "expected"),
    [
        ((1, 2, 3), (b"v", b"vv", b"vvv"), SplitKeys(keys=1, outdated=Amount(2, 2 + 3))),
        ((3, 2, 1), (b"v", b"vv", b"vvv"), SplitKeys(keys=1, outdated=Amount(2, 3 + 4))),
        ((2, 2, 1), (b"v", b"vv", None), SplitKeys(keys=1, outdated=Amount(1, 2))),
        ((1, 2, 3), (b"v", b"vv", None), SplitKeys(keys=1, outdated=Amount(2, 2 + 3), deleted=1)),
        ((1, 2, 3), (b"v", None, None), SplitKeys(outdated=Amount(1, 2), deleted=1)),
        ((3, 2, 1), (b"v", None, None), None),
        ((1, 2, 3), (None, None, b"v"), None),
        ((1, 2, 3), (None, None, None), None),
    ],
)
def test_the_latest_record_of_a_key_makes_others_outdated(
    times: tuple[int, ...], values: tuple[bytes | None, ...], expected: SplitKeys | None
) -> None:
    """Over all partitions, by time; a tombstone may be it. Keys of one partition alone have nothing outdated."""
    storage = MemoryStorage()
    alone = _row(b"alone", b"long value", timestamp=9)
    logs = [
        log_of(storage, at, [_row(b"k", value, timestamp), *([alone] if at == 1 else [])])
        for at, (timestamp, value) in enumerate(zip(times, values, strict=True))
    ]
    split = ArrowCounts(storage, logs).split_keys(tuple((0, log.end) for log in logs))
    assert {topic: replace(own, examples=()) for topic, own in split.items()} == ({"t": expected} if expected else {})


@pytest.mark.parametrize(("records", "bytes_", "little"), [(11, 1_000, True), (10, 1_000, False), (11, 50, False)])
def test_little_is_bounded_by_bytes_and_by_records(records: int, bytes_: int, little: bool) -> None:
    """Base runs and runs of all logs together: all of it is in memory at once."""
    logs = [log(run(5, 15, 9), clean=base(1, 1)), log()]
    assert analyze.is_little(logs, MemoryBudget(records, bytes_)) is little
