"""What a consumer that was just made tells of the rest of a range."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Message
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.errors import SourceChangedError, UnreachableError
from connectors.kafka.client_settings import ClientSettings
from connectors.source import reader
from connectors.source.assignment import EarlyEnd
from connectors.source.plan import SourceRange
from connectors.source.range_cursors import RangeCursor, nothing_left
from connectors.source.reader import ReadParts
from tests.support.clients import client_settings
from tests.support.memory.cluster import MemoryCluster
from tests.support.source_options import source_options

HI = 7


def message(partition: int, offset: int, error: int | None = None) -> Message:
    told = None if error is None else KafkaError(error)
    return Message(topic="t", partition=partition, offset=offset, error=told)


def end(partition: int, offset: int) -> Message:
    return message(partition, offset, KafkaError._PARTITION_EOF)


class Told:
    """A consumer that tells `what`, and then nothing more."""

    def __init__(self, what: list[Message], settings: dict[str, Any]) -> None:
        assert settings["isolation.level"] == "read_committed"
        assert settings["enable.partition.eof"] is True
        self._left = list(what)

    def assign(self, partitions: list[Any], *, at_once: bool = False) -> None:
        assert [(one.partition, one.offset) for one in partitions] == [(0, 5)]

    def consume(self, _count: int, _timeout: float) -> list[Message]:
        told, self._left = self._left[:1], self._left[1:]
        return told

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("what", "empty"),
    [
        ([], False),
        ([end(0, 7)], True),
        ([end(0, 6)], False),
        ([message(0, 6), end(0, 7)], False),
        ([message(0, 9)], True),
        ([Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN)), end(0, 7)], True),
        ([message(0, 7, KafkaError._BAD_MSG), end(0, 7)], False),
        ([end(1, 7)], False),
    ],
)
def test_only_the_first_thing_delivered_counts(what: list[Message], *, empty: bool) -> None:
    """The end, or a record behind it; not what comes after a record of the rest, or after one that cannot be read."""
    connect: Any = partial(Told, what)
    cursor = RangeCursor(SourceRange("t", "id", 0, 3, HI), 3, 5)
    found = nothing_left(client_settings({"bootstrap.servers": "127.0.0.1:1"}), [cursor], connect, within_s=0.05)
    assert found == (frozenset([TopicPartition("t", 0)]) if empty else frozenset())


def test_where_nobody_waits_no_consumer_is_made() -> None:
    """It would cost a connection."""
    connect = Mock()
    assert nothing_left(ClientSettings({}), [], connect) == frozenset()
    assert not connect.called


class Stuck:
    """A session whose consumer is given nothing, and whose position stays where it was."""

    admin = None

    def __init__(self) -> None:
        self.consumer = self

    def assign(self, partitions: list[Any], *, at_once: bool = False) -> None: ...

    def pause(self, partitions: list[Any]) -> None: ...

    def consume(self, _count: int, timeout: float) -> list[Message]:
        time.sleep(timeout / 10)
        return []

    def position(self, partitions: list[Any]) -> list[Any]:
        return partitions


class Sessions:
    """Brokers with `topics`, by name the end of each partition, of which a reader borrows a `session`."""

    def __init__(self, session: Callable[[], object], topics: Mapping[str, tuple[int, ...]]) -> None:
        self.cluster = MemoryCluster()
        for name, ends in topics.items():
            self.cluster.put(name, *((0, end) for end in ends), topic_id="id")
        self.empty: frozenset[TopicPartition] = frozenset()
        """The partitions of which the rest holds nothing."""
        self._session = session

    @property
    def parts(self) -> ReadParts:
        cluster: Any = self.cluster
        return ReadParts(self._borrowed, lambda *_: cluster, self._nothing_left)

    @contextmanager
    def _borrowed(self, *_: object) -> Iterator[Any]:
        yield self._session()

    def _nothing_left(self, _: object, cursors: Sequence[RangeCursor]) -> frozenset[TopicPartition]:
        return self.empty & {cursor.tp for cursor in cursors}


@pytest.fixture
def stuck() -> Sessions:
    """Brokers on which topic t ends at HI, and a reader that is stuck below it and looks often."""
    return Sessions(Stuck, {"t": (HI,)})


@pytest.mark.parametrize("empty", [True, False])
def test_a_range_whose_rest_holds_nothing_is_finished(stuck: Sessions, *, empty: bool) -> None:
    """It is stated to its end, with the records that it had; another one is waited for, and then an error."""
    stuck.empty = frozenset([TopicPartition("t", 0)]) if empty else frozenset()
    options = source_options(topics=["t"], timeout=0.2, look=0.001)
    read = reader.read((SourceRange("t", "id", 0, 5, HI),), options, parts=stuck.parts)
    if not empty:
        with pytest.raises(UnreachableError, match="no progress on t-0 at offset 5"):
            list(read)
        return
    (statement,) = [row["range"] for batch in read for row in batch.to_pylist()]
    counts = {
        "records": 0,
        "filtered": 0,
        **dict.fromkeys(("truncates", "last_truncate", "truncate_order", "truncate_at")),
    }
    assert statement == {"topic_id": "id", "lo": 5, "hi": HI, "start": 5, **counts}
    assert stuck.cluster.requests > 0


class Fed:
    """A session whose consumer brings the records of t-0 from offset 0 on, three at a time, up to `last`."""

    admin = queue = None

    def __init__(self, last: int) -> None:
        self.consumer = self
        self.at, self._last = 0, last

    def assign(self, partitions: list[Any], *, at_once: bool = False) -> None: ...

    def pause(self, partitions: list[Any]) -> None: ...

    def consume(self, _count: int, timeout: float) -> list[Message]:
        records = [
            Message(topic="t", partition=0, offset=offset, key=b"k", value=b"v", timestamp=(1, 1))
            for offset in range(self.at, min(self.at + 3, self._last))
        ]
        if not records:
            time.sleep(timeout / 10)
        self.at += len(records)
        return records

    def position(self, partitions: list[Any]) -> list[Partition]:
        return [Partition(one.topic, one.partition, self.at if one.partition == 0 else -1001) for one in partitions]


@pytest.fixture
def fed() -> Sessions:
    """Brokers on which topic t has two partitions, of which the second brings nothing."""
    return Sessions(partial(Fed, last=6), {"t": (90, 90)})


BOTH = (SourceRange("t", "id", 0, 0, 90), SourceRange("t", "id", 1, 0, 90))


def stated(batches: Iterable[pa.RecordBatch]) -> list[tuple[int, int, int, int]]:
    """Partition, lo, hi and records of every range that is stated."""
    rows = [row for batch in batches for row in batch.to_pylist() if row["range"] is not None]
    return [(row["partition"], row["range"]["lo"], row["range"]["hi"], row["range"]["records"]) for row in rows]


def test_a_read_ends_early_where_it_stands(fed: Sessions, tmp_path: Path) -> None:
    """A range is stated up to the position, with the records that were read; one of which nothing was read is not."""
    early_end = EarlyEnd(str(tmp_path / "end"))
    batches: list[pa.RecordBatch] = []
    for batch in reader.read(BOTH, source_options(topics=["t"]), early_end=early_end, parts=fed.parts):
        batches.append(batch)
        early_end.ask()
    assert sum(batch.num_rows for batch in batches if batch["range"].null_count) == 3
    assert stated(batches) == [(0, 0, 3, 3)]
    assert fed.cluster.requests == 1, "the topics were looked at"


def test_a_read_without_progress_ends_early(fed: Sessions) -> None:
    """What it has read counts. Brokers that do not answer at all by then are asked once, and waited for no more."""
    options = source_options(topics=["t"], look=60.0)
    read = partial(reader.read, BOTH, options, early_end=EarlyEnd(idle_s=0.0001), parts=fed.parts)
    assert stated(read()) == [(0, 0, 6, 6)]
    fed.cluster.away = True
    with pytest.raises(UnreachableError, match="no progress on t-0 at offset 6"):
        list(read())


def test_a_topic_that_was_recreated_ends_no_read_early(fed: Sessions, tmp_path: Path) -> None:
    """What was read may be the other topic's: it is an error, as at the end of all ranges."""
    early_end = EarlyEnd(str(tmp_path / "end"))
    read = reader.read(BOTH, source_options(topics=["t"]), early_end=early_end, parts=fed.parts)
    next(read)
    fed.cluster.put("t", (0, 90), (0, 90), topic_id="another")
    early_end.ask()
    with pytest.raises(SourceChangedError, match="recreated"):
        list(read)
    early_end.forget()
    assert not early_end.is_due(1e9)


def test_an_error_beside_the_last_records_needs_no_look(fed: Sessions) -> None:
    """Everything was read: there is no range that the brokers could be asked about."""

    class FedWithError(Fed):
        def consume(self, _count: int, timeout: float) -> list[Message]:
            unknown = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            return [*super().consume(_count, timeout), Message(topic="t", partition=0, offset=0, error=unknown)]

    consumer, stopped = FedWithError(last=6), lambda: False
    split = (SourceRange("t", "id", 0, 0, 3),)
    read = reader.StrictRead(split, source_options(topics=["t"]), cast("Any", consumer), stopped, EarlyEnd(), fed.parts)
    assert stated(read.batches()) == [(0, 0, 3, 3)]
