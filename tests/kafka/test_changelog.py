"""What a read_committed reader of the output sees of a publish, and what the group holds afterwards."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from compactor.model.record import TopicPartition
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka import admin
from connectors.sinks import producer_session
from connectors.sinks.producer_session import QueryClients
from connectors.sinks.settings import TransactionLimits, WriteRules
from tests.support.clients import client_settings
from tests.support.kafka import open_transaction, wait_until
from tests.support.publishing import CATALOG_ID, NOW_MS, ONE_RECORD_EACH, Changelog, RunRecord, source_offsets


@pytest.fixture
def changelog(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Changelog:
    return Changelog(broker.bootstrap, tmp_path, topic_name)


def test_a_record_arrives_byte_for_byte(changelog: Changelog) -> None:
    """Key, value, timestamp of either type and headers (doubled, null, empty too) are the source's, ours follow."""
    odd = (("a", b"1"), ("a", b"2"), ("", b""), ("ä", None))
    changelog.publish(
        changelog.target(0, 9),
        [
            RunRecord(3, b"\x00k", b"\xffv", odd, 1),
            RunRecord(5, b"", b"", None, NOW_MS * 4),
            RunRecord(8, b"gone", None, timestamp_type=1),
        ],
    )
    seen = changelog.read()
    assert [(one.key, one.value, one.timestamp_ms) for one in seen] == [
        (b"\x00k", b"\xffv", 1),
        (b"", b"", NOW_MS * 4),
        (b"gone", None, NOW_MS),
    ]
    assert seen[0].headers[:4] == odd
    assert seen[0].headers[4:] == (
        ("keyfold.source.topic", changelog.topic.encode()),
        ("keyfold.source.partition", b"0"),
        ("keyfold.source.offset", b"3"),
    )
    assert [len(one.headers) for one in seen[1:]] == [3, 3]


def test_headers_of_an_upstream_keyfold_are_replaced(changelog: Changelog) -> None:
    """`keyfold.*` headers of the source go, whatever else there is stays in its order."""
    upstream = (("a", b"1"), ("keyfold.source.offset", b"99"), ("keyfold.source.timestamp", b"0"), ("b", b"2"))
    changelog.publish(changelog.target(0, 1), [RunRecord(0, headers=upstream)])
    (seen,) = changelog.read()
    assert [name for name, _ in seen.headers] == [
        "a",
        "b",
        "keyfold.source.topic",
        "keyfold.source.partition",
        "keyfold.source.offset",
    ]
    assert source_offsets([seen]) == [0]


def test_source_headers_can_be_switched_off(changelog: Changelog) -> None:
    """With output.source.headers.enable=false a record has the headers of the source and no other."""
    quiet = changelog.publisher(WriteRules(source_headers=False))
    changelog.publish(changelog.target(0, 2), [RunRecord(0, headers=(("a", b"1"),)), RunRecord(1)], quiet)
    assert [one.headers for one in changelog.read()] == [(("a", b"1"),), ()]


def test_time_zero_goes_as_one_and_says_so(changelog: Changelog) -> None:
    """CreateTime 0 is `now` to librdkafka: it goes as 1 with a header; times below 0 go as they are."""
    changelog.publish(
        changelog.target(0, 3), [RunRecord(0, timestamp=0), RunRecord(1, timestamp=-1), RunRecord(2, timestamp=1)]
    )
    seen = changelog.read()
    assert [one.timestamp_ms for one in seen] == [1, -1, 1]
    assert [dict(one.headers).get("keyfold.source.timestamp") for one in seen] == [b"0", None, None]


def test_records_stay_in_their_partition_and_order(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> None:
    """Each source partition goes to the output partition of the same number, by offset."""
    changelog = Changelog(broker.bootstrap, tmp_path, topic_name, partitions=3)
    records = [RunRecord(at, key=b"%d" % at, partition=number) for number in (0, 2) for at in range(0, 3000, 3)]
    sent = changelog.publish([changelog.target(0, 3000, number) for number in (0, 1, 2)], records)
    seen = changelog.read()
    for number in (0, 2):
        assert source_offsets(one for one in seen if one.partition == number) == list(range(0, 3000, 3))
    assert [(one.partition, one.records, one.end, one.output_offset) for one in sent] == [
        (0, 1000, 3000, 1000),
        (1, 0, 3000, None),
        (2, 1000, 3000, 1000),
    ]
    assert (sum(one.transactions for one in sent), sum(one.aborted for one in sent)) == (1, 0)


def test_the_position_says_how_to_go_on(changelog: Changelog) -> None:
    """The group holds the next source offset, whose it is, and the output offset that it reaches to."""
    changelog.publish(changelog.target(0, 10), [RunRecord(1), RunRecord(4)])
    held = changelog.position()
    assert held is not None
    assert (held.offset, held.catalog_id, held.output_id) == (10, CATALOG_ID, changelog.output_id)
    assert (held.output_offset, held.fold_end) == (2, None)


def test_a_range_without_survivors_carries_the_output_offset_on(changelog: Changelog) -> None:
    """A transaction without records for a partition keeps the output offset of the one before."""
    first = changelog.publish(changelog.target(0, 10), [RunRecord(1)])[0]
    changelog.publish(changelog.target(10, 20, output_offset=first.output_offset), [])
    held = changelog.position()
    assert held is not None
    assert (held.offset, held.output_offset) == (20, 1)


def test_a_quiet_position_is_committed_again(changelog: Changelog) -> None:
    """A target that starts where it ends refreshes its position in a transaction of its bucket."""
    changelog.publish(changelog.target(0, 10), [RunRecord(1)])
    (sent,) = changelog.publish(changelog.target(10, 10, output_offset=1), [])
    assert (sent.end, sent.output_offset, sent.records, sent.transactions) == (10, 1, 0, 1)
    held = changelog.position()
    assert held is not None
    assert (held.offset, held.output_offset) == (10, 1)


def test_many_positions_go_in_several_calls_of_one_transaction(
    broker: EmbeddedKafka, tmp_path: Path, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call takes a limited number of positions; the transaction takes all of them."""
    monkeypatch.setattr(admin.chunks, "__defaults__", (7,))
    changelog = Changelog(broker.bootstrap, tmp_path, topic_name, partitions=20)
    sent = changelog.publish([changelog.target(0, 5, number) for number in range(20)], [RunRecord(4)])
    assert sum(one.transactions for one in sent) == 1
    places = [TopicPartition(topic_name, number) for number in range(20)]
    held = changelog.admin.committed(admin.group_id(changelog.connector), places)
    assert [tp for tp, found in held.items() if found is None] == []


@pytest.mark.parametrize(
    ("limits", "transactions"),
    [
        (TransactionLimits(), 1),
        (TransactionLimits(transaction_bytes=4), 3),
        (ONE_RECORD_EACH, 6),
        (TransactionLimits(batch_records=1, transaction_s=0), 6),
    ],
    ids=["one", "by bytes", "a record each", "by time"],
)
def test_a_large_fold_goes_in_several_transactions(
    changelog: Changelog, limits: TransactionLimits, transactions: int
) -> None:
    """However it is cut, a reader sees every survivor once and in order, and the position ends at the fold's end."""
    (sent,) = changelog.publish(
        changelog.target(0, 20), [RunRecord(at) for at in range(0, 18, 3)], changelog.publisher(limits=limits)
    )
    assert source_offsets(changelog.read()) == list(range(0, 18, 3))
    assert (sent.transactions, sent.records, sent.bytes, sent.end) == (transactions, 6, 12, 20)
    held = changelog.position()
    assert held is not None
    assert (held.offset, held.fold_end, held.output_offset) == (20, None, sent.output_offset)
    place = changelog.place()
    assert changelog.admin.high_watermarks([place])[place] == (sent.output_offset or 0) + 1, "its marker follows"


def test_high_watermarks_of_many_partitions_are_asked_of_a_reader(
    changelog: Changelog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count what an open transaction wrote, as those of the admin client do; who answers not is asked there."""
    monkeypatch.setattr(producer_session, "_MANY", 1)
    monkeypatch.setattr(admin.Admin, "high_watermarks", lambda _admin, places: dict.fromkeys(places, -7))
    place, gone = changelog.place(), TopicPartition("gone", 0)
    clients = client_settings({"bootstrap.servers": changelog.bootstrap}, changelog.connector)
    with closing(QueryClients(changelog.connector, clients)) as queries:
        with open_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v"), (0, b"k", b"w")]):
            assert queries.high_watermarks([place]) == {place: 2}
        assert queries.high_watermarks([place, gone]) == {place: -7, gone: -7}


def test_a_plan_without_targets_does_nothing(changelog: Changelog) -> None:
    """No target, no transaction: not even a producer."""
    assert changelog.publisher().publish(changelog.plan(), iter([])) == ()


def test_without_an_output_only_positions_move(changelog: Changelog) -> None:
    """With output.topic=none survivors are not sent, and the group still shows the progress."""
    (sent,) = changelog.publish(changelog.target(0, 7, output=None), [RunRecord(3)])
    assert (sent.records, sent.output_offset) == (0, None)
    held = changelog.position()
    assert held is not None
    assert (held.offset, held.output_id, held.output_offset) == (7, None, None)
    assert changelog.read() == []


def test_a_publisher_survives_pickling(changelog: Changelog) -> None:
    """Spark ships the publisher to its tasks; secrets of its clients are not in its repr."""
    from pyspark import cloudpickle

    publisher = changelog.publisher(None, None, **{"sasl.password": "hush"})
    copy = cloudpickle.loads(cloudpickle.dumps(publisher))  # type: ignore[no-untyped-call]
    assert copy.clients.producer()["sasl.password"] == "hush"
    assert "hush" not in repr(publisher)
    changelog.publish(changelog.target(0, 1), [RunRecord(0)], copy)
    assert len(changelog.read()) == 1


def test_last_stable_offset_is_below_an_open_transaction(changelog: Changelog) -> None:
    """`ends` stops before a transaction that is not decided, `high_watermarks` counts it."""
    place = changelog.place()
    with open_transaction(changelog.bootstrap, changelog.output, [(0, b"k", b"v"), (0, b"k", b"w")]) as producer:
        assert changelog.admin.ends([place]) == {place: 0}
        assert changelog.admin.high_watermarks([place]) == {place: 2}
        producer.commit_transaction(10)
    wait_until(lambda: changelog.admin.ends([place]) == {place: 3}, "the marker is written")
