"""Who may not publish, and what a publish that is cut off leaves behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from compactor import failpoints
from compactor.errors import (
    FencedError,
    KeyfoldError,
    OutcomeUnknownError,
    PositionMovedError,
    PublishInterruptedError,
)
from compactor.model.position import Position, encode
from compactor.model.publish_plan import PublishPlan
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.errors import BrokerRefusedError, OutputError, UnreachableError, is_outage
from connectors.kafka.client_settings import Setting
from connectors.kafka.producers import fence_all, initialised, transactional_id
from connectors.kafka.retry import Retry
from connectors.sinks.publisher import ChangelogPublisher
from connectors.sinks.settings import TransactionLimits
from connectors.sinks.transaction import Transaction
from tests.support.kafka import create_topic, delete_topic, open_transaction, wait_until
from tests.support.publishing import CATALOG_ID, ONE_RECORD_EACH, Changelog, RunRecord, batch, source_offsets


@pytest.fixture
def changelog(broker: EmbeddedKafka, tmp_path: Path, topic_name: str) -> Changelog:
    return Changelog(broker.bootstrap, tmp_path, topic_name)


def seen(changelog: Changelog) -> list[int]:
    return source_offsets(changelog.read())


def test_an_older_epoch_is_fenced(changelog: Changelog) -> None:
    """A plan of an epoch that is not the newest sends nothing."""
    plan = changelog.plan(changelog.target(0, 1))
    changelog.take_over()
    with pytest.raises(FencedError, match="epoch 2 owns the connector"):
        changelog.publisher().publish(plan, iter([batch(changelog.topic, [RunRecord(0)])]))
    assert seen(changelog) == []


def test_a_position_that_moved_ends_the_plan(changelog: Changelog) -> None:
    """A plan made before another publish is not sent again: overlap on re-planning is found by its start."""
    changelog.publish(changelog.target(0, 5), [RunRecord(4)])
    with pytest.raises(PositionMovedError, match="planned was None"):
        changelog.publish(changelog.target(0, 5), [RunRecord(4)])
    assert seen(changelog) == [4]


@pytest.mark.parametrize(
    ("offset", "metadata", "found", "moved"),
    [
        (5, None, 5, False),
        (5, encode(Position(offset=5, catalog_id=CATALOG_ID)), 5, False),
        (5, encode(Position(offset=5, catalog_id="another")), 5, True),
        (3, None, 5, True),
        (7, "by hand", 5, True),
        (5, None, None, True),
    ],
    ids=["overwritten with the same", "ours", "another catalog's", "set back", "set forward", "planned without one"],
)
def test_what_the_group_holds_must_be_what_was_planned_from(
    changelog: Changelog, offset: int, metadata: str | None, found: int | None, moved: bool
) -> None:
    """Offset and catalog id must be those that the driver found, whoever wrote the offset."""
    changelog.overwrite_position(offset, metadata)
    if moved:
        with pytest.raises(PositionMovedError):
            changelog.publish(changelog.target(5, 9, committed=found), [RunRecord(6)])
    else:
        changelog.publish(changelog.target(5, 9, committed=found), [RunRecord(6)])
    assert seen(changelog) == ([] if moved else [6])


def test_who_commits_to_our_group_is_named(changelog: Changelog) -> None:
    """A consumer or a Connect sink of the same name: its clients and what to do are in the error."""
    names = {"group.id": f"connect-{changelog.connector}", "client.id": "connector-consumer-sink-0"}
    sink = Consumer(
        {"bootstrap.servers": changelog.bootstrap, "log_level": 0, "auto.offset.reset": "earliest", **names}
    )
    sink.subscribe([changelog.topic])
    wait_until(lambda: sink.poll(0.1) is None and sink.assignment(), "the sink is in the group")
    try:
        sink.commit(offsets=[TopicPartition(changelog.topic, 0, 3)], asynchronous=False)
        with pytest.raises(PositionMovedError, match=r"holds 3 for .*, planned was 5") as raised:
            changelog.publish(changelog.target(5, 9), [RunRecord(6)])
    finally:
        sink.close()
    assert "members of the group are connector-consumer-sink-0 at 127.0.0.1" in raised.value.message
    assert "Kafka Connect sink of the same name" in raised.value.action


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("by hand", "somebody else committed it; the group has no members now"),
        (encode(Position(offset=3, catalog_id="another")), "catalog another wrote it: a connector of this name"),
        (encode(Position(offset=3, catalog_id=CATALOG_ID)), "another publish of this connector"),
        (encode(Position(offset=9, catalog_id=CATALOG_ID)), "somebody else committed it"),
    ],
    ids=["a tool", "another storage", "another task", "a tool that copied the metadata"],
)
def test_why_a_position_moved_is_said(changelog: Changelog, metadata: str, why: str) -> None:
    """What the group holds tells who committed it."""
    changelog.overwrite_position(3, metadata)
    with pytest.raises(PositionMovedError, match=why):
        changelog.publish(changelog.target(5, 9), [RunRecord(6)])


def test_a_position_that_is_gone_ends_the_plan(changelog: Changelog) -> None:
    """An expired position is never `first run`; a plan that the driver made knowing that it is gone may go on."""
    with pytest.raises(PositionMovedError, match="holds None"):
        changelog.publish(changelog.target(5, 9), [RunRecord(6)])
    changelog.publish(changelog.target(5, 9, committed=None), [RunRecord(6)])
    assert seen(changelog) == [6]


@pytest.mark.usefixtures("soon_gone")
def test_a_recreated_output_is_not_written_to(changelog: Changelog) -> None:
    """The output topic is known by its id: one of the same name is another topic; that it is gone, only T3 decides."""
    publisher = changelog.publisher()
    delete_topic(changelog.bootstrap, changelog.output)
    with pytest.raises(UnreachableError, match=f"no broker knows output topic {changelog.output}"):
        changelog.publish(changelog.target(0, 1), [RunRecord(0)], publisher)
    create_topic(changelog.bootstrap, changelog.output)
    with pytest.raises(OutputError, match="was recreated"):
        changelog.publish(changelog.target(0, 1), [RunRecord(0)], publisher)


@pytest.mark.parametrize("where", ["_flush", "_send_positions"])
def test_a_transaction_that_nobody_answered_is_sent_anew(
    changelog: Changelog, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """errors.retry.timeout: within the same plan, after the first was aborted; by default the plan ends."""
    step, silent = getattr(Transaction, where), [True]

    def once(self: Transaction, *given: Any) -> None:
        step(self, *given)
        if silent.pop() if silent else False:
            raise UnreachableError("nobody answered")

    monkeypatch.setattr(Transaction, where, once)
    with pytest.raises(UnreachableError):
        changelog.publish(changelog.target(0, 9), [RunRecord(0), RunRecord(5)])
    silent.append(True)
    again = changelog.publisher(limits=TransactionLimits(retry=Retry(30_000, 100)))
    (sent,) = changelog.publish(changelog.target(0, 9), [RunRecord(0), RunRecord(5)], again)
    assert seen(changelog) == [0, 5]
    assert (sent.end, sent.transactions) == (9, 1)


def test_an_unknown_outcome_is_never_sent_anew(changelog: Changelog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a commit took effect only the positions say, which the driver reads: no retry comes before that."""

    def lost(self: Transaction) -> None:
        self._session.producer.commit_transaction(30)
        raise OutcomeUnknownError("the answer was lost")

    monkeypatch.setattr(Transaction, "_commit", lost)
    with pytest.raises(OutcomeUnknownError):
        changelog.publish(
            changelog.target(0, 9), [RunRecord(5)], changelog.publisher(limits=TransactionLimits(retry=Retry(-1, 100)))
        )
    assert seen(changelog) == [5]


def test_a_newer_producer_of_the_same_owner_interrupts(changelog: Changelog) -> None:
    """A zombie task of our own epoch is stopped and may be planned again; nothing of it is seen."""
    target = changelog.target(0, 9)

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch(changelog.topic, [RunRecord(0)])
        fence_all({"bootstrap.servers": changelog.bootstrap}, [transactional_id(changelog.connector, 0)])
        yield batch(changelog.topic, [RunRecord(1)])

    with pytest.raises(PublishInterruptedError) as raised:
        changelog.publisher(limits=ONE_RECORD_EACH).publish(changelog.plan(target), overtaken())
    assert raised.value.retriable
    assert seen(changelog) in ([], [0])
    held = changelog.position()
    assert (held.offset if held else None) in (None, 1)


def test_a_newer_owner_fences(changelog: Changelog) -> None:
    """A worker that slept through a take-over is told so by its first transaction, and sends nothing more."""

    def overtaken() -> Iterator[pa.RecordBatch]:
        yield batch(changelog.topic, [RunRecord(0)])
        changelog.take_over()
        fence_all({"bootstrap.servers": changelog.bootstrap}, [transactional_id(changelog.connector, 0)])
        yield batch(changelog.topic, [RunRecord(1)])
        yield batch(changelog.topic, [RunRecord(2)])

    plan = changelog.plan(changelog.target(0, 9))
    with pytest.raises(FencedError):
        changelog.publisher(limits=ONE_RECORD_EACH).publish(plan, overtaken())
    assert 1 not in seen(changelog)


def test_fencing_aborts_what_is_open(changelog: Changelog) -> None:
    """The take-over's fence ends open transactions of every id that it is given, all at once."""
    ids = [transactional_id(changelog.connector, bucket) for bucket in range(5)]
    config = {"bootstrap.servers": changelog.bootstrap}
    zombie = initialised({**config, "transactional.id": ids[3], "log_level": 0})
    zombie.begin_transaction()
    zombie.produce(changelog.output, b"v", b"k", 0)
    assert zombie.flush(10) == 0
    assert changelog.admin.ends([changelog.place()]) == {changelog.place(): 0}
    fence_all(config, ids)
    assert changelog.read() == []
    with pytest.raises(KafkaException, match="fenced by a newer instance"):
        zombie.commit_transaction(10)


def test_a_setting_that_the_brokers_refuse_is_named(changelog: Changelog) -> None:
    """No wait mends it: the connector is FAILED, with the setting, and is not RESTARTING as in an outage."""
    config: dict[str, Setting] = {"bootstrap.servers": changelog.bootstrap, "transaction.timeout.ms": 2_000_000_000}
    with pytest.raises(BrokerRefusedError, match="to at most the brokers") as caught:
        fence_all({**config, "log_level": 0}, [transactional_id(changelog.connector, 0)])
    assert not is_outage(caught.value)


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Makes processes that die alone, from one that has imported already what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def publish_apart(
    publisher: ChangelogPublisher, failpoint: str, plan: PublishPlan, batches: list[pa.RecordBatch]
) -> None:
    os.environ[failpoints.VARIABLE] = failpoint
    publisher.publish(plan, iter(batches))


@pytest.mark.parametrize(
    ("point", "survived", "fold_end"),
    [
        ("publish.fence", [], None),
        ("publish.position", [], None),
        ("publish.begin", [], None),
        ("publish.sent", [], None),
        ("publish.offsets", [], None),
        ("publish.committed", [0, 3], 9),
        ("publish.sent@2", [0, 3], 9),
        ("publish.offsets@2", [0, 3], 9),
        ("publish.committed@2", [0, 3, 4, 6], None),
    ],
)
def test_a_killed_publish_is_continued_where_its_last_transaction_ended(
    processes: ForkServerContext, changelog: Changelog, point: str, survived: list[int], fold_end: int | None
) -> None:
    """Killed at any step: a reader sees whole transactions only, and position and fold's end say how to go on."""
    records = [RunRecord(0), RunRecord(3), RunRecord(4), RunRecord(6)]
    publisher, plan = (
        changelog.publisher(limits=TransactionLimits(transaction_bytes=4)),
        changelog.plan(changelog.target(0, 9)),
    )
    work = (publisher, f"{point}=kill", plan, [batch(changelog.topic, records)])
    apart = processes.Process(target=publish_apart, args=work)
    apart.start()
    apart.join(60)
    assert apart.exitcode == -signal.SIGKILL
    fence_all({"bootstrap.servers": changelog.bootstrap}, [transactional_id(changelog.connector, 0)])
    assert seen(changelog) == survived
    held = changelog.position()
    start = held.offset if held else 0
    assert start == {0: 0, 2: 4, 4: 9}[len(survived)]
    assert (held.fold_end if held else None) == fold_end
    if start < 9:
        rest = [record for record in records if record.offset >= start]
        changelog.publish(changelog.target(start, 9, output_offset=held.output_offset if held else None), rest)
    assert seen(changelog) == [0, 3, 4, 6]


def test_an_error_in_the_stream_aborts(changelog: Changelog) -> None:
    """Whatever ends a publish in the middle, its open transaction has no effect and does not linger."""

    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(changelog.topic, [RunRecord(0)])
        yield batch(changelog.topic, [RunRecord(1, rejected="null key")])

    with pytest.raises(KeyfoldError, match="offset 1 cannot be folded: null key"):
        changelog.publisher().publish(changelog.plan(changelog.target(0, 9)), broken())
    assert seen(changelog) == []
    assert changelog.position() is None


def test_a_position_held_by_an_open_transaction_is_waited_for(changelog: Changelog) -> None:
    """Positions are never read past a transaction that is not decided."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as Partition

    from compactor.model.record import TopicPartition
    from connectors.kafka.admin import group_id

    group = group_id(changelog.connector)
    consumer = Consumer({"bootstrap.servers": changelog.bootstrap, "group.id": group, "log_level": 0})
    tp = TopicPartition(changelog.topic, 0)
    with open_transaction(changelog.bootstrap, changelog.output, []) as producer:
        where = [Partition(changelog.topic, 0, 5)]
        producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), 10)
        with pytest.raises(UnreachableError, match="still open"):
            changelog.admin.committed(group, [tp], pending_s=0.5)
        producer.commit_transaction(10)
    assert changelog.admin.committed(group, [tp]) == {tp: (5, "")}
    consumer.close()


def test_an_unreachable_broker_is_named() -> None:
    """No answer within the deadline names the bootstrap servers and can be tried again."""
    from connectors.kafka.admin import Admin

    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 "):
        Admin({"bootstrap.servers": "127.0.0.1:1"}, deadline_s=0.5).describe(["t"])
