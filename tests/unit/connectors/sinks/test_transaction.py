"""A commit whose answer is lost, played with a producer that answers as it is told."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import FencedError, KeyfoldError, OutcomeUnknownError, PublishInterruptedError
from compactor.model import record
from compactor.model.position import Position
from compactor.model.publish_plan import PublishPlan, PublishTarget
from compactor.model.record import TopicPartition
from compactor.publish.retired import RETIRED
from connectors.errors import BrokerRefusedError, NotAllowedError, UnreachableError, is_outage
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.errors import UNFIT, typed
from connectors.sinks.batching import partition_batches
from connectors.sinks.producer_session import Bucket, ProducerSession
from connectors.sinks.publish_progress import PublishProgress
from connectors.sinks.settings import TransactionLimits, WriteRules
from connectors.sinks.transaction import Transaction
from tests.support.memory.storage import MemoryStorage

PLAN = PublishPlan(
    bucket=0,
    epoch=1,
    catalog_id="x",
    targets=(PublishTarget(topic="t", partition=0, bucket=0, output=None, start=0, end=5),),
)
TIMED_OUT = KafkaError._TIMED_OUT


class Producer:
    """Answers commits with the given errors, then with success."""

    def __init__(self, *errors: KafkaError) -> None:
        self.errors = list(errors)
        self.calls: list[str] = []

    def commit_transaction(self, _timeout: float) -> None:
        self.calls.append("commit")
        if self.errors:
            raise KafkaException(self.errors.pop(0))

    def abort_transaction(self, _timeout: float) -> None:
        self.calls.append("abort")

    def begin_transaction(self) -> None: ...
    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        return 0


class Recorder(Producer):
    """Also takes records: `sent` are their topics, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, bytes | None, bytes | None]] = []

    def produce(self, topic: str, value: bytes | None, key: bytes | None, *_: object) -> None:
        self.sent.append((topic, key, value))


class Placed(Producer):
    """Also takes records: `placed` are their topics, partitions, and the texts of their headers."""

    def __init__(self) -> None:
        super().__init__()
        self.placed: list[tuple[str, int, tuple[str, ...]]] = []

    def produce(self, topic: str, _value: bytes, _key: bytes, partition: int, *others: Any) -> None:
        self.placed.append((topic, partition, tuple(value.decode() for _, value in others[-1])))


class FakeSession(ProducerSession):
    def __init__(self, producer: Producer, deadline_s: float) -> None:
        self.bucket = Bucket(connector="c", plan=PLAN, storage=MemoryStorage(), output_ids={})
        self.limits = TransactionLimits(deadline_s=deadline_s)
        self.stopped = lambda: False
        self.failures = []
        self.high_watermarks: Any = lambda _places: {}
        self._clients = ClientSettings({})
        self._producer: Any = producer
        self.failed: Any = None

    def send_offsets(self, positions: Any) -> None: ...


def send(producer: Producer, deadline_s: float = 5.0, progress: PublishProgress | None = None) -> PublishProgress:
    progress = progress or PublishProgress(PLAN, {})
    found = list(partition_batches(iter(()), [TopicPartition("t", 0)], TransactionLimits()))
    Transaction(FakeSession(producer, deadline_s), progress, WriteRules()).send(found)
    return progress


def error(code: int, **named: bool) -> KafkaError:
    return KafkaError(code, "told so", **named)


def test_a_commit_is_asked_again_while_that_helps() -> None:
    """A retriable answer is no outcome."""
    producer = Producer(error(TIMED_OUT, retriable=True), error(TIMED_OUT, retriable=True))
    assert send(producer).expected == {TopicPartition("t", 0): 5}
    assert producer.calls == ["commit"] * 3


@pytest.mark.parametrize("named", [{"retriable": True}, {}], ids=["retriable for too long", "not retriable"])
def test_a_commit_without_an_answer_is_not_guessed(named: dict[str, bool]) -> None:
    """The outcome is unknown: neither committed nor aborted as far as we know, to be read back."""
    producer = Producer(*[error(TIMED_OUT, **named)] * 1000)
    with pytest.raises(OutcomeUnknownError) as raised:
        send(producer, deadline_s=0.0)
    assert raised.value.retriable
    assert "abort" not in producer.calls


def test_a_commit_that_must_be_aborted_is() -> None:
    """The transaction has no effect; the driver plans again."""
    producer = Producer(error(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True))
    with pytest.raises(PublishInterruptedError):
        send(producer)
    assert producer.calls[-1] == "abort"


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            NotAllowedError,
            "Write and Describe on the transactional ids",
        ),
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            NotAllowedError,
            "and Write, Read, Describe and DescribeConfigs on the",
        ),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAllowedError, "Grant Read and Describe on the group"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, NotAllowedError, "Grant IdempotentWrite on the cluster"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnreachableError, "the next start of the connector says so"),
        (KafkaError._TRANSPORT, UnreachableError, "localhost:1 did not answer"),
        (KafkaError._NOENT, UnreachableError, "localhost:1 did not answer"),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, PublishInterruptedError, "tried again"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, BrokerRefusedError, "transaction.max.timeout.ms"),
        (KafkaError.UNSUPPORTED_VERSION, BrokerRefusedError, "Use newer brokers"),
    ],
)
def test_errors_say_who_has_to_act(code: int, kind: type[KeyfoldError], text: str) -> None:
    """Missing rights name what to grant, silence names the brokers, the rest is tried again."""
    found = typed(error(code), "Connector c, bucket 0", "localhost:1")
    assert isinstance(found, kind)
    assert "Connector c, bucket 0" in str(found)
    assert text in str(found)


@pytest.mark.parametrize("code", sorted(UNFIT))
def test_what_no_wait_mends_is_no_outage(code: int) -> None:
    """A connector whose brokers refuse what it is set to is FAILED: RESTARTING would say that it heals by itself."""
    for fatal in (False, True):
        with pytest.raises(BrokerRefusedError) as caught:
            send(Producer(error(code, fatal=fatal, txn_requires_abort=True)))
        assert (is_outage(caught.value), caught.value.retriable) == (False, True)


@pytest.mark.parametrize("newest", [1, 2])
def test_a_fenced_producer_of_the_newest_owner_is_no_newer_owner(newest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the catalog says who owns the connector: a later task of the same epoch is an interruption."""
    monkeypatch.setattr("connectors.sinks.producer_session.newest_epoch", lambda _storage, _catalog: newest)
    expected: type[KeyfoldError] = FencedError if newest > 1 else PublishInterruptedError
    with pytest.raises(expected):
        send(Producer(error(KafkaError._FENCED, fatal=True)))


ABORTS = error(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True)


@pytest.mark.parametrize(
    ("producer", "counts"),
    [
        (Producer(), (1, 0)),
        (Producer(ABORTS), (0, 1)),
        (Producer(*[error(TIMED_OUT)] * 9), (0, 0)),
    ],
    ids=["committed", "aborted", "unknown"],
)
def test_a_transaction_is_counted_by_its_outcome(producer: Producer, counts: tuple[int, int]) -> None:
    """Once, as committed or as aborted; one whose outcome is not known is read back, and counted as neither."""
    progress = PublishProgress(PLAN, {})
    with suppress(KeyfoldError):
        send(producer, 0.0, progress)
    (sent,) = progress.sent()
    assert (sent.transactions, sent.aborted) == counts


def test_what_never_began_is_not_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer that was fenced cannot begin: nothing of it is to be sent again."""

    def refuses(_: Producer) -> None:
        raise KafkaException(ABORTS)

    monkeypatch.setattr(Producer, "begin_transaction", refuses)
    progress = PublishProgress(PLAN, {})
    with pytest.raises(PublishInterruptedError):
        send(Producer(), 0.0, progress)
    assert progress.sent()[0].aborted == 0


def test_a_transaction_of_several_partitions_is_one() -> None:
    """The sum over partitions is the number of transactions."""
    targets = tuple(PublishTarget(topic="t", partition=one, bucket=0, output=None, start=0, end=5) for one in (0, 1))
    progress = PublishProgress(replace(PLAN, targets=targets), {})
    positions = {target.tp: Position(offset=5, catalog_id="x") for target in targets}
    progress.commit(positions, {})
    progress.aborted = 2
    assert [(one.transactions, one.aborted) for one in progress.sent()] == [(1, 2), (0, 0)]


def test_a_refused_record_retires_the_other_keys_of_its_identity() -> None:
    """Their tombstones are sent in its transaction, and the position of the output counts them."""
    target = replace(PLAN.targets[0], output="out")
    progress = PublishProgress(replace(PLAN, targets=(target,)), {"out": "id"})
    row = {"topic": "t", "partition": 0, "offset": 4, "timestamp": 7, "key": b"aa", "value": b"large"}
    rows = pa.RecordBatch.from_pylist([row], schema=record.RUN)
    rows = rows.append_column(RETIRED, pa.array([[b"AA"]], pa.list_(pa.binary())))
    producer = Recorder()
    session = FakeSession(producer, 5.0)
    session.high_watermarks = lambda places: dict.fromkeys(places, 9)
    transaction = Transaction(session, progress, WriteRules(tolerate=True, dead_letters="dead"))
    transaction.refused[TopicPartition("t", 0)] = {4: "too large"}
    transaction.send(list(partition_batches(iter([rows]), [TopicPartition("t", 0)], TransactionLimits())))
    assert producer.sent == [("out", b"AA", None), ("dead", b"aa", b"large")]
    assert progress.sent()[0].output_offset == 9


def test_a_generation_s_tombstone_goes_to_its_own_partition_and_others_by_their_keys() -> None:
    """If keys are spread over the output; before it the keys that it retires, each by its own."""
    targets = tuple(
        PublishTarget(topic="t", partition=number, bucket=0, output="out", start=-1, end=10, outputs=2)
        for number in range(2)
    )
    progress = PublishProgress(replace(PLAN, targets=targets), {"out": "x"})
    # By Kafka's default partitioner a and b go to 0 of two, k0 and k1 to 1.
    rows = pa.RecordBatch.from_pylist(
        [
            {"topic": "t", "partition": 1, "offset": offset, "timestamp": 7, "key": key}
            for offset, key in ((-2, b"a"), (-1, b"b"), (3, b"a"), (4, b"k0"))
        ],
        schema=record.RUN,
    )
    rows = rows.append_column(RETIRED, pa.array([None, [b"k1", b"a"], None, [b"b"]], pa.list_(pa.binary())))
    producer = Placed()
    places = [target.tp for target in targets]
    session = FakeSession(producer, 5.0)
    session.high_watermarks = lambda places: dict.fromkeys(places, 9)
    Transaction(session, progress, WriteRules()).send(
        list(partition_batches(iter([rows]), places, TransactionLimits()))
    )
    assert [partition for _, partition, _ in producer.placed] == [1, 1, 0, 1, 0, 0, 1]


def test_partitions_of_several_topics_are_encoded_together_each_with_its_own() -> None:
    """Each record goes to its own topic and partition, with its own source, by offset; dead letters between them."""
    records = [
        ("a", 0, 1, None),
        ("a", 1, 4, None),
        ("a", 1, 5, None),
        ("b", 0, 2, None),
        ("b", 0, 3, None),
        ("b", 1, 8, None),
        ("b", 1, 9, "no"),
        ("c", 0, 6, None),
    ]
    outputs = {"a": "out-a", "b": "out-b", "c": None}
    places = sorted({TopicPartition(topic, partition) for topic, partition, *_ in records})
    targets = tuple(
        PublishTarget(topic=one.topic, partition=one.partition, bucket=0, output=outputs[one.topic], start=0, end=10)
        for one in places
    )
    progress = PublishProgress(replace(PLAN, targets=targets), {"out-a": "x", "out-b": "y"})
    rows = pa.RecordBatch.from_pylist(
        [
            {"topic": topic, "partition": partition, "offset": offset, "timestamp": 7, "key": b"k", "rejected": why}
            for topic, partition, offset, why in records
        ],
        schema=record.RUN,
    )
    producer = Placed()
    rules = WriteRules(tolerate=True, source_headers=True)
    batches = list(partition_batches(iter([rows]), places, TransactionLimits()))
    session = FakeSession(producer, 5.0)
    session.high_watermarks = lambda places: dict.fromkeys(places, 9)
    Transaction(session, progress, rules).send(batches)
    sent = [(topic, number, *own) for topic, number, own in producer.placed]
    wanted = [one for one in records if one[0] != "c" and one[3] is None]
    assert sent == [(f"out-{topic}", at, topic, str(at), str(offset)) for topic, at, offset, _ in wanted]
    assert [one.rejected for one in progress.sent()] == [0, 0, 0, 1, 0]
    assert [one.records for one in progress.sent()] == [1, 2, 2, 1, 0]


@pytest.mark.parametrize(
    "rules",
    [
        {"dead_letters": "dead"},
        {},
        {"dead_letters": "dead", "log_errors": True},
    ],
)
def test_letters_are_warned_of_once_their_transaction_is_committed(rules: dict[str, Any]) -> None:
    """In any case: if errors.log.enable has each of them logged, that is the line. An aborted one lets nothing go."""
    topic = f"letters-{sorted(rules)}"
    target = replace(PLAN.targets[0], topic=topic)
    row = {"topic": topic, "partition": 0, "offset": 3, "timestamp": 7, "timestamp_type": 0, "key": b"k", "value": b"v"}
    rejected = {"rejected": "VALUE_CONVERTER keyfold.Json DataError: no"}
    rows = pa.RecordBatch.from_pylist([{**row, **rejected}], schema=record.RUN)

    def logged(*errors: KafkaError) -> list[Any]:
        producer = Recorder()
        producer.errors = list(errors)
        progress = PublishProgress(replace(PLAN, targets=(target,)), {})
        batches = list(partition_batches(iter([rows]), [target.tp], TransactionLimits()))
        with capture_logs() as lines, suppress(PublishInterruptedError):
            Transaction(FakeSession(producer, 5.0), progress, WriteRules(tolerate=True, **rules)).send(batches)
        return [line["log_level"] for line in lines]

    assert logged(KafkaError(KafkaError.INVALID_TXN_STATE, txn_requires_abort=True)) == []
    assert logged() == ["error" if "log_errors" in rules else "warning"]
