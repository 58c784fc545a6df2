"""What a reading task makes of ranges on the real broker, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compactor.model.record import RANGE, SOURCE, measure
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka import consumers
from connectors.source.assignment import EarlyEnd
from connectors.source.reader import read
from tests.support import broker_source
from tests.support.broker_source import BrokerSource, Row, numbered_records, offsets, range_reports, records
from tests.support.kafka import create_topic, end_offsets, open_transaction, produce, produce_transaction, wait_until
from tests.support.raw_producer import RawRecord, produce_bytes


@pytest.fixture(autouse=True, params=[broker_source.AT_ONCE, broker_source.ONE_BY_ONE], ids=["at-once", "one-by-one"])
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    broker_source.WAY.parts = request.param
    yield
    del broker_source.WAY.parts
    consumers.close_idle()


def test_a_record_is_as_kafka_has_it(broker: EmbeddedKafka, topic_name: str) -> None:
    """Null is not empty; headers keep order, duplicates and null values; timestamps are ms with Kafka's type id."""
    create_topic(broker.bootstrap, topic_name, message_timestamp_after_max_ms=2**63 - 1)
    sent = [
        (0, None, None, (), 1),
        (0, b"", b"", [], 2**62),
        (0, b"k\xff", b"v\x00", [("h", b"1"), ("g", None), ("h", b""), ("", b"\xff")], 1_700_000_000_000),
    ]
    produce(broker.bootstrap, topic_name, sent)
    source = BrokerSource(broker.bootstrap, topic_name)
    rows = source.read(source.range(topic_name, 0, 3))
    got = [
        (r["key"], r["value"], [(h["key"], h["value"]) for h in r["headers"]], r["timestamp"]) for r in records(rows)
    ]
    assert got == [(key, value, list(headers), stamp) for _, key, value, headers, stamp in sent]
    assert {r["timestamp_type"] for r in records(rows)} == {0}
    assert [r["topic"] for r in rows] == [topic_name] * 4
    assert rows[3] == {
        **dict.fromkeys(SOURCE.names),
        "topic": topic_name,
        "partition": 0,
        "offset": 0,
        "range": {
            **dict.fromkeys(RANGE.names),
            "topic_id": source.range(topic_name, 0, 1).topic_id,
            "lo": 0,
            "hi": 3,
            "start": 0,
            "records": 3,
            "filtered": 0,
        },
    }


def test_log_append_time_is_named(broker: EmbeddedKafka, topic_name: str) -> None:
    """A topic with LogAppendTime gives the type id 1 and the broker's time."""
    create_topic(broker.bootstrap, topic_name, message_timestamp_type="LogAppendTime")
    produce(broker.bootstrap, topic_name, [(0, b"k", b"v", (), 5)])
    source = BrokerSource(broker.bootstrap, topic_name)
    row = records(source.read(source.range(topic_name, 0, 1)))[0]
    assert row["timestamp_type"] == 1
    assert row["timestamp"] > 1_600_000_000_000


def test_the_schema_is_the_compactors(broker: EmbeddedKafka, topic_name: str) -> None:
    """Batches have the schema SOURCE, to the last nullability."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, [(0, b"k", b"v"), (0, b"k", b"v", [("h", b"x")])])
    source = BrokerSource(broker.bootstrap, topic_name)
    batches = source.batches(source.range(topic_name, 0, 2))
    assert all(batch.schema.equals(SOURCE) for batch in batches)
    assert sum(len(batch) for batch in batches) == 3


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(broker: EmbeddedKafka, topic_name: str, codec: str) -> None:
    """Records come out the same whatever codec their batches have."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(500), **{"compression.type": codec, "linger.ms": 50})
    source = BrokerSource(broker.bootstrap, topic_name)
    rows = source.read(source.range(topic_name, 0, 500))
    assert [row["value"] for row in records(rows)] == [value for _, _, value in numbered_records(500)]


def test_big_records_pass_and_batches_are_bounded(broker: EmbeddedKafka, topic_name: str) -> None:
    """Records of 1 MiB and more are read whole, alone in their batch where they are over batch.bytes."""
    create_topic(broker.bootstrap, topic_name, max_message_bytes=20_000_000)
    sizes = [100, 1 << 20, 3 << 20, 100, 100, 12 << 20, 100]
    big = [(0, b"k", bytes([number]) * size) for number, size in enumerate(sizes)]
    produce(broker.bootstrap, topic_name, big, **{"message.max.bytes": 20_000_000})
    source = BrokerSource(broker.bootstrap, topic_name, limits={"batch_bytes": 2_000_000})
    batches = source.batches(source.range(topic_name, 0, len(sizes)))
    assert [row["value"] for batch in batches for row in records(batch.to_pylist())] == [value for _, _, value in big]
    assert all(measure(batch) <= 2_000_000 or len(batch) == 1 for batch in batches)


# --- ranges


def test_a_range_ends_where_it_says(broker: EmbeddedKafka, topic_name: str) -> None:
    """Records behind the end are dropped, and the same consumer reads any other range right after."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(100))
    source = BrokerSource(broker.bootstrap, topic_name)
    for lo, hi in ((0, 10), (50, 51), (10, 50), (0, 100), (99, 100)):
        rows = source.read(source.range(topic_name, lo, hi))
        assert offsets(rows) == list(range(lo, hi))
        assert range_reports(rows) == [(lo, hi, lo, hi - lo)]


def test_a_split_reads_many_partitions_with_one_consumer(
    broker: EmbeddedKafka, new_topic_name: Callable[[str], str]
) -> None:
    """Ranges of several topics and partitions end each at its own offset, in order, and are stated once each."""
    first, second = (create_topic(broker.bootstrap, new_topic_name(stem), 3) for stem in "ab")
    for name in (first, second):
        produce(broker.bootstrap, name, [record for number in range(3) for record in numbered_records(2000, number)])
    source = BrokerSource(broker.bootstrap, first, second)
    ranges = [source.range(first, 0, 2000, 0), source.range(first, 5, 6, 1), source.range(second, 700, 1900, 2)]
    rows = source.read(*ranges)
    for each in ranges:
        mine = [r for r in records(rows) if (r["topic"], r["partition"]) == each.topic_partition]
        assert [r["offset"] for r in mine] == list(range(each.lo, each.hi))
    assert sorted(range_reports(rows)) == [(0, 2000, 0, 2000), (5, 6, 5, 1), (700, 1900, 700, 1200)]
    assert len(records(rows)) == 2000 + 1 + 1200


@pytest.mark.parametrize(
    ("lo", "hi", "expected"),
    [
        (0, 13, [*range(5), *range(6, 8)]),
        (0, 6, list(range(5))),
        (5, 6, []),
        (5, 7, [6]),
        (8, 9, []),
        (8, 13, []),
        (9, 11, []),
        (9, 13, []),
        (12, 13, []),
    ],
)
def test_ranges_end_in_markers_and_aborted_records(
    broker: EmbeddedKafka, transactional: str, lo: int, hi: int, expected: list[int]
) -> None:
    """A range whose tail, or the whole of it, is markers or aborted records is finished, and stated as it is."""
    source = BrokerSource(broker.bootstrap, transactional)
    rows = source.read(source.range(transactional, lo, hi))
    assert offsets(rows) == expected
    assert range_reports(rows) == [(lo, hi, lo, len(expected))]


@pytest.fixture(scope="module")
def transactional(broker: EmbeddedKafka) -> str:
    """0-4 committed, 5 marker, 6-7 committed, 8 marker, 9-11 aborted, 12 marker."""
    name = create_topic(broker.bootstrap, "source-transactional")
    produce_transaction(broker.bootstrap, name, numbered_records(5))
    produce_transaction(broker.bootstrap, name, numbered_records(2))
    produce_transaction(broker.bootstrap, name, numbered_records(3), commit=False)
    assert end_offsets(broker.bootstrap, name) == {0: 13}
    return name


def test_an_open_transaction_holds_the_end(broker: EmbeddedKafka, topic_name: str) -> None:
    """The plan ends at the last stable offset; once the transaction is committed its records follow."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(3))
    source = BrokerSource(broker.bootstrap, topic_name)
    with open_transaction(broker.bootstrap, topic_name, numbered_records(2)) as producer:
        produce(broker.bootstrap, topic_name, numbered_records(1))
        end = source.planner.latest(source.planner.initial(), None)
        assert end[topic_name].partitions == {0: 3}
        assert offsets(source.read(source.range(topic_name, 0, 3))) == [0, 1, 2]
        producer.commit_transaction()
    wait_until(lambda: source.planner.latest(end, None)[topic_name].partitions == {0: 7}, "the transaction is stable")
    assert offsets(source.read(source.range(topic_name, 3, 7))) == [3, 4, 5]


def test_aborted_records_right_below_an_open_transaction_are_passed(broker: EmbeddedKafka, topic_name: str) -> None:
    """Nothing that could be delivered, and no marker, shows there that the end is reached; it is all the same."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(3))
    source = BrokerSource(broker.bootstrap, topic_name, timeout=10.0)
    with (
        open_transaction(broker.bootstrap, topic_name, numbered_records(2)) as aborted,
        open_transaction(broker.bootstrap, topic_name, numbered_records(1)) as still_open,
    ):
        aborted.abort_transaction()
        wait_until(lambda: end_offsets(broker.bootstrap, topic_name) == {0: 5}, "the open transaction holds alone")
        for lo in (0, 4):
            rows = source.read(source.range(topic_name, lo, 5))
            assert offsets(rows) == list(range(lo, 3))
            assert range_reports(rows) == [(lo, 5, lo, max(0, 3 - lo))]
        still_open.commit_transaction()
    wait_until(lambda: end_offsets(broker.bootstrap, topic_name) == {0: 8}, "the transaction is stable")
    assert offsets(source.read(source.range(topic_name, 5, 8))) == [5]


def test_holes_are_passed(broker: EmbeddedKafka, topic_name: str) -> None:
    """In a compacted topic a range that begins, ends or lies wholly inside a hole is finished."""
    create_topic(
        broker.bootstrap,
        topic_name,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms=100,
        segment_bytes=1_048_576,
        segment_ms=100,
    )
    produce(broker.bootstrap, topic_name, [(0, b"same", b"x%d" % number) for number in range(50)])
    source = BrokerSource(broker.bootstrap, topic_name)

    def compacted() -> bool:
        produce(broker.bootstrap, topic_name, [(0, b"same", b"later")])
        return len(records(source.read(source.range(topic_name, 0, 50)))) == 0

    wait_until(compacted, "the cleaner has run", 60)
    for lo, hi in ((0, 10), (20, 30), (0, 50)):
        assert range_reports(source.read(source.range(topic_name, lo, hi))) == [(lo, hi, lo, 0)]


def test_empty_topics_have_no_range(broker: EmbeddedKafka, topic_name: str) -> None:
    """A topic without records begins and ends at 0, and a split without ranges yields nothing."""
    create_topic(broker.bootstrap, topic_name, 2)
    source = BrokerSource(broker.bootstrap, topic_name)
    start = source.planner.initial()
    assert start[topic_name].partitions == {0: 0, 1: 0}
    assert source.planner.latest(start, None) is start
    assert source.read() == []


ODD: list[RawRecord] = [
    (b"k0", b"v0", [(b"h", b"1")]),
    (b"k1", b"v1", [(b"h", b"1"), (b"a\xffb", b"2"), (b"z", b"3")]),
    (b"k2", b"v2", [("\u00e9".encode(), b"4")]),
    (b"k3", b"v3", [(b"\xed\xa0\x80", b"5")]),
    (b"k4", b"v4", [(b"cut\0off", b"6")]),
]


def test_a_header_name_that_is_not_utf8_rejects_its_record_alone(broker: EmbeddedKafka, topic_name: str) -> None:
    """The record keeps key, value and timestamp, has no headers, and says why; its neighbours are as they were."""
    create_topic(broker.bootstrap, topic_name)
    produce_bytes(broker.bootstrap, topic_name, ODD)
    source = BrokerSource(broker.bootstrap, topic_name)
    for _ in range(20):  # Python specialises code that has run often, and then sees less
        rows = records(source.read(source.range(topic_name, 0, 5)))
    assert [(row["key"], row["value"]) for row in rows] == [(b"k%d" % at, b"v%d" % at) for at in range(5)]
    assert [row["rejected"] for row in rows] == [
        None,
        r"a header name b'a\xffb' is not UTF-8",
        None,
        r"a header name b'\xed\xa0\x80' is not UTF-8",
        None,
    ]
    assert [[(one["key"], one["value"]) for one in row["headers"]] for row in rows] == [
        [("h", b"1")],
        [],
        [("\u00e9", b"4")],
        [],
        [("cut", b"6")],  # librdkafka hands names out as C strings, and nobody tells that one was cut: see formats.md
    ]


@pytest.mark.parametrize("after", [1, 2, 5])
def test_a_read_that_ends_early_is_gone_on_with_exactly(
    broker: EmbeddedKafka, topic_name: str, tmp_path: Path, after: int
) -> None:
    """What it states and what is left are all records once, wherever it ends; aborted ones are nowhere."""
    create_topic(broker.bootstrap, topic_name)
    produce(broker.bootstrap, topic_name, numbered_records(2_000))
    produce_transaction(broker.bootstrap, topic_name, [(0, b"gone", b"v")] * 1_500, commit=False)
    produce_transaction(broker.bootstrap, topic_name, numbered_records(3_000))
    end = end_offsets(broker.bootstrap, topic_name)[0]
    source = BrokerSource(broker.bootstrap, topic_name, limits={"batch_bytes": 20_000})
    early_end = EarlyEnd(str(tmp_path / "end"))
    rows: list[Row] = []
    with closing(
        read((source.range(topic_name, 0, end),), source.options, early_end=early_end, parts=broker_source.WAY.parts)
    ) as batches:
        for number, batch in enumerate(batches, 1):
            rows += batch.to_pylist()
            if number == after:
                early_end.ask()
    ((lo, hi, start, count),) = range_reports(rows)
    assert (lo, start, count) == (0, 0, len(records(rows)))
    assert 0 < hi < end
    assert max(offsets(rows)) < hi
    left = source.read(source.range(topic_name, hi, end))
    assert min(offsets(left)) >= hi
    expected = [row["value"] for row in records(source.read(source.range(topic_name, 0, end)))]
    assert [row["value"] for row in (*records(rows), *records(left))] == expected
    assert len(expected) == 5_000
