"""Portions of several connectors read by one task, for a bounded time, on the real broker; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from msgspec.structs import replace

from compactor.ingest.appends import Batch, appends
from compactor.ingest.ingest import portions, write_level0
from compactor.model.actions import AddPartition, AddTopic
from compactor.model.state import CatalogState, apply
from compactor.storage.local import LocalStorage
from connectors.dev.embedded_kafka import EmbeddedKafka
from connectors.kafka import consumers
from connectors.source.assignment import PortionSplit
from connectors.source.bounded_reader import ReadBudget, read_bounded
from connectors.source.options import Timeouts
from connectors.source.plan import SourceRange
from tests.support.broker_source import BrokerSource, numbered_records, offsets, range_reports, records
from tests.support.clients import client_settings
from tests.support.engine import intake, new_state
from tests.support.kafka import create_topic, delete_records, open_transaction, produce, produce_transaction

PATIENT = ReadBudget(idle_s=10.0, seconds=20.0)
SHORT = ReadBudget(idle_s=3.0, seconds=20.0)
Read = dict[str, list[pa.RecordBatch]]


@pytest.fixture(autouse=True)
def _no_idle_consumers() -> Iterator[None]:
    yield
    consumers.close_idle()


class Task:
    """What one task reads: portions of connectors that share a consumer, each named by its connector."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.source = BrokerSource(bootstrap)
        self.folder = folder
        self.portions: list[PortionSplit] = []

    def add(self, connector: str, *ranges: SourceRange) -> None:
        target = intake(LocalStorage(str(self.folder / connector)))
        options = replace(self.source.options, connector=connector, intake=target)
        self.portions.append(PortionSplit(len(self.portions) + 1, options, ranges, options.clients))

    def whole(self, topic: str, hi: int, partition: int = 0) -> SourceRange:
        return self.source.range(topic, 0, hi, partition)

    def read(self, budget: ReadBudget = PATIENT) -> Read:
        return {portion.options.connector: found for portion, found in read_bounded(self.portions, budget)}


def rows(found: Sequence[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in found for row in batch.to_pylist()]


@pytest.fixture
def task(broker: EmbeddedKafka, tmp_path: Path) -> Task:
    return Task(broker.bootstrap, tmp_path)


@pytest.fixture
def filled(broker: EmbeddedKafka, new_topic_name: Callable[[str], str]) -> Callable[..., str]:
    """Makes a topic, each of whose partitions holds that many numbered records."""

    def make(*counts: int) -> str:
        topic = create_topic(broker.bootstrap, new_topic_name("bounded"), len(counts))
        for partition, count in enumerate(counts):
            produce(broker.bootstrap, topic, numbered_records(count, partition))
        return topic

    return make


def ingested(portion: PortionSplit, found: Sequence[pa.RecordBatch]) -> Batch:
    """What the files of a portion hold, as the driver is told."""
    written = write_level0(found, portion.options.intake, portion.portion)
    answers = portions(row for batch in written for row in batch.to_pylist())
    (batch,) = answers.values()
    assert isinstance(batch, Batch)
    return batch


def state_of(task: Task, topic: str, partitions: int) -> CatalogState:
    """A catalog that has the topic, from its first offset."""
    found = task.source.topics.named([topic])[topic].id
    added = AddTopic(topic=topic, topic_id=found, output=f"{topic}.compacted", output_id="out")
    logs = (AddPartition(topic=topic, partition=one, bucket=0, start=0) for one in range(partitions))
    return apply(new_state({}), [added, *logs])


def test_each_connector_gets_its_own_records(task: Task, filled: Callable[..., str]) -> None:
    """One consumer reads all of them; every portion has its records in order, and a row for each of its ranges."""
    wanted = {"one": filled(2_000, 300), "two": filled(700), "three": filled(1)}
    task.add("one", task.whole(wanted["one"], 2_000), task.whole(wanted["one"], 300, 1))
    task.add("two", task.source.range(wanted["two"], 100, 600))
    task.add("three", task.whole(wanted["three"], 1))
    read = {name: rows(found) for name, found in task.read().items()}
    assert read.keys() == wanted.keys()
    assert all({row["topic"] for row in read[name]} == {topic} for name, topic in wanted.items())
    assert (offsets(read["one"]), offsets(read["one"], 1)) == (list(range(2_000)), list(range(300)))
    assert offsets(read["two"]) == list(range(100, 600))
    assert range_reports(read["two"]) == [(100, 600, 100, 500)]
    assert [row["value"] for row in records(read["three"])] == [b"v0"]


@pytest.mark.parametrize("wrong", ["unknown", "lost", "recreated", "damaged"])
def test_what_is_wrong_with_one_holds_up_no_other(
    task: Task, filled: Callable[..., str], broker: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory, wrong: str
) -> None:
    """The sound connectors are read in that very batch; the other one is missing, and nothing of it is stated."""
    first, last, odd = filled(50), filled(60), filled(10)
    task.add("first", task.whole(first, 50))
    bad = task.whole(odd, 10)
    if wrong == "unknown":
        bad = replace(bad, topic=f"{odd}-not")
    elif wrong == "recreated":
        bad = replace(bad, topic_id="another")
    elif wrong == "lost":
        delete_records(broker.bootstrap, odd, 0, 5)
    else:
        damage(tmp_path_factory.getbasetemp(), odd)
        produce(broker.bootstrap, odd, numbered_records(10))  # where librdkafka goes on
        bad = replace(bad, hi=20)
    task.add("odd", bad)
    task.add("last", task.whole(last, 60))
    read = task.read(SHORT)
    assert read.keys() == {"first", "last"}
    assert (len(records(rows(read["first"]))), len(records(rows(read["last"])))) == (50, 60)


def damage(folder: Path, topic: str) -> None:
    """Changes the last byte of a topic's first log segment: a record's value, whose checksum no longer fits."""
    (segment,) = folder.rglob(f"{topic}-0/00000000000000000000.log")
    content = bytearray(segment.read_bytes().rstrip(b"\0"))
    content[-2] ^= 0xFF
    with segment.open("r+b") as file:
        file.write(content)


def test_the_same_topic_is_read_for_two_connectors(task: Task, filled: Callable[..., str]) -> None:
    """From different offsets: a consumer has one position in a partition, so each gets a turn of its own."""
    topic = filled(100)
    task.add("one", task.whole(topic, 100))
    task.add("two", task.source.range(topic, 40, 90))
    read = {name: rows(found) for name, found in task.read().items()}
    assert (offsets(read["one"]), offsets(read["two"])) == (list(range(100)), list(range(40, 90)))
    assert range_reports(read["two"]) == [(40, 90, 40, 50)]


def test_connectors_of_other_brokers_hold_up_nobody(task: Task, filled: Callable[..., str]) -> None:
    """Portions with other client settings have a consumer of their own; where nobody answers, those are missing."""
    topic, other = filled(20), filled(30)
    task.add("away", task.whole(other, 30))
    clients = client_settings({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    quick = replace(task.portions[0].options, timeouts=Timeouts(timeout=1.0))
    task.portions[0] = replace(task.portions[0], clients=clients, options=quick)
    task.add("here", task.whole(topic, 20))
    read = task.read(SHORT)
    assert read.keys() == {"here"}
    assert len(records(rows(read["here"]))) == 20


def test_aborted_and_open_transactions(task: Task, filled: Callable[..., str], broker: EmbeddedKafka) -> None:
    """Directly below an open transaction a position does not pass aborted records: the portion says how far it came."""
    topic, other = filled(5), filled(7)
    produce_transaction(broker.bootstrap, topic, numbered_records(3), commit=False)
    with open_transaction(broker.bootstrap, topic, numbered_records(2)) as producer:
        task.add("open", task.whole(topic, 9))
        task.add("other", task.whole(other, 7))
        read = {name: rows(found) for name, found in task.read(SHORT).items()}
        producer.abort_transaction(20.0)
    assert offsets(read["open"]) == list(range(5))
    ((lo, hi, start, count),) = range_reports(read["open"])
    assert (lo, start, count) == (0, 0, 5)
    assert 5 <= hi <= 9
    assert range_reports(read["other"]) == [(0, 7, 0, 7)]


def test_many_partitions_are_read_by_several_consumers_each_topic_by_one(
    task: Task, filled: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each portion has all of its records, whoever read them; one of which a topic is another one now is missing."""
    assigned: dict[consumers.AssignedConsumer, set[str]] = {}
    assign = consumers.AssignedConsumer.assign

    def noted(one: consumers.AssignedConsumer, parts: list[TopicPartition], **how: bool) -> None:
        assigned.setdefault(one, set()).update(part.topic for part in parts)
        assign(one, parts, **how)

    monkeypatch.setattr(consumers.AssignedConsumer, "assign", noted)
    topics = [filled(5 + number, 3) for number in range(4)]
    for _ in range(2):
        task.portions.clear()
        for name, mine in {"one": topics[:2], "odd": topics[2:3], "three": topics[3:]}.items():
            ranges = (task.whole(topic, 5 + topics.index(topic)) for topic in mine)
            task.add(name, *ranges, *(task.whole(topic, 3, 1) for topic in mine))
        wrong = tuple(replace(one, topic_id="another") for one in task.portions[1].ranges)
        task.portions[1] = replace(task.portions[1], ranges=wrong)
        read = {name: rows(found) for name, found in task.read(replace(PATIENT, a_consumer=1)).items()}
        assert {name: len(records(found)) for name, found in read.items()} == {"one": 5 + 6 + 3 + 3, "three": 8 + 3}
        assert sorted(range_reports(read["three"])) == [(0, 3, 0, 3), (0, 8, 0, 8)]
    assert len(assigned) > 1
    assert sorted(topic for mine in assigned.values() for topic in mine) == sorted(topics), "none is known to two"


def test_a_used_up_budget_leaves_what_other_consumers_would_have_read(task: Task, filled: Callable[..., str]) -> None:
    """Not all shares come to their turn; repeated, everything is read once."""
    left = {filled(4) for _ in range(6)}
    sizes = []
    while left:
        task.portions.clear()
        task.add("c", *(task.whole(topic, 4) for topic in sorted(left)))
        found = rows(task.read(replace(BUDGETS["bytes"], a_consumer=1)).get("c", ()))
        done = {row["topic"] for row in records(found)}
        assert done <= left
        assert len(records(found)) == 4 * len(done)
        sizes.append(len(done))
        left -= done
    assert len(sizes) > 1


BUDGETS = {"bytes": ReadBudget(idle_s=10.0, seconds=20.0, max_bytes=1), "time": ReadBudget(idle_s=10.0, seconds=0.0)}


@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
def test_a_used_up_budget_states_exactly_what_was_read(
    task: Task, filled: Callable[..., str], budget: ReadBudget
) -> None:
    """Records and range rows agree with each other and with the log; repeated to the end, nothing is lost or twice."""
    counts = (13_000, 9_000)
    topic = filled(*counts)
    state, at, batches, rounds = state_of(task, topic, 2), [0, 0], 0, 0
    every: dict[int, list[int]] = {0: [], 1: []}
    while at != list(counts):
        rounds += 1
        assert rounds < 200
        task.portions.clear()
        ranges = [task.source.range(topic, lo, hi, one) for one, (lo, hi) in enumerate(zip(at, counts, strict=True))]
        task.add("c", *(one for one in ranges if one.size))
        found = task.read(budget).get("c")
        if found is None:  # the first records had not come in time
            continue
        batches += 1
        batch = ingested(task.portions[0], found)
        for read in batch.ranges:
            assert (read.lo, read.records) == (at[read.tp.partition], read.hi - read.lo)
            at[read.tp.partition] = read.hi
        state = apply(state, appends(state, batch, 0))
        assert [log.end for log in state.logs] == at
        for partition in (0, 1):
            every[partition] += offsets(rows(found), partition)
    assert batches > 1
    assert every == {0: list(range(13_000)), 1: list(range(9_000))}
    assert sum(run.records for log in state.logs for run in log.runs) == sum(counts)


def test_only_markers_are_passed(task: Task, filled: Callable[..., str], broker: EmbeddedKafka) -> None:
    """A range that holds no record is stated with none, once a later record shows that it is over."""
    topic = filled(1)
    produce_transaction(broker.bootstrap, topic, numbered_records(3), commit=False)
    produce(broker.bootstrap, topic, numbered_records(1))
    task.add("c", task.source.range(topic, 1, 5))
    (found,) = task.read().values()
    assert (records(rows(found)), range_reports(rows(found))) == ([], [(1, 5, 1, 0)])
