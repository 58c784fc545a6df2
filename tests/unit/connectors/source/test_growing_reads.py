"""A read whose records grow too much ends where it stands: what is written counts, and the rest is read next."""

from __future__ import annotations

import secrets
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as Partition
from msgspec.structs import replace

from compactor.ingest.appends import Batch
from compactor.storage.local import LocalStorage
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_spec
from connectors.chain.task_growth import TaskGrowth
from connectors.placeholders import resolve
from connectors.source.assignment import EarlyEnd
from connectors.source.options import SourceOptions
from connectors.source.plan import SourceRange
from connectors.source.portion import Offer
from connectors.source.read_route import Route
from connectors.source.read_task import ApartParts, read_apart
from connectors.source.reader import read
from tests.support.clocks import ManualClock
from tests.support.engine import intake, row
from tests.support.local_spark import source_batch
from tests.support.source_options import source_options
from tests.unit.connectors.source.test_read_apart import SPARK, in_this_process
from tests.unit.connectors.source.test_reader import Sessions

END = 300
"""Of each of two partitions: one poll brings all of their records."""
ADDED = secrets.token_urlsafe(45_000)
"""What the chain adds to each record, of 60,000 characters: 280 of them are a piece of 16 MiB."""
SETTINGS = {
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "false",
    "transforms": "add",
    "transforms.add.type": "InsertField$Value",
    "transforms.add.static.field": "text",
    "transforms.add.static.value": ADDED,
}
CHAIN = chain_spec(SETTINGS)


class Alternating:
    """A session whose consumer brings a record of each assigned partition in turn."""

    admin = None

    def __init__(self) -> None:
        self.consumer = self
        self._at: dict[int, int] = {}

    def assign(self, partitions: list[Any], *, at_once: bool = False) -> None:
        self._at = {each.partition: each.offset for each in partitions}

    def pause(self, partitions: list[Any]) -> None: ...

    def consume(self, count: int, _timeout: float) -> list[Message]:
        messages: list[Message] = []
        while len(messages) < count and min(self._at.values()) < END:
            for number, offset in self._at.items():
                messages.append(
                    Message(topic="t", partition=number, offset=offset, key=b"k", value=b"{}", timestamp=(1, 1))
                )
                self._at[number] += 1
        return messages

    def position(self, partitions: list[Any]) -> list[Partition]:
        return [Partition(each.topic, each.partition, self._at[each.partition]) for each in partitions]


def options(folder: Path, growth_bytes: int) -> SourceOptions:
    """A connector whose records become long; its tasks hold a megabyte, so that files grow soon."""
    written = intake(LocalStorage(str(folder)))
    written = replace(written, target=replace(written.target, held_bytes=1 << 20))
    limits = {"tasks_max": 2, "growth_bytes": growth_bytes}
    return replace(source_options(topics=["t"], limits=limits, intake=written), chain=CHAIN)


def batches(options: SourceOptions, route: Route) -> list[Batch]:
    """What is read, one read after the other, until both partitions are at their ends."""
    parts = ApartParts(partial(read, parts=Sessions(Alternating, {"t": (END, END)}).parts), in_this_process)
    answers: list[Batch] = []
    ends = {0: 0, 1: 0}
    while min(ends.values()) < END:
        left = tuple(SourceRange("t", "id", number, at, END) for number, at in ends.items() if at < END)
        answers.append(read_apart(SPARK, Offer(options, left, {}, route), lambda: False, parts=parts))
        assert answers[-1].ranges, "nothing was read"
        ends |= {read.tp.partition: read.hi for read in answers[-1].ranges}
    return answers


@pytest.mark.parametrize("route", [Route.DRIVER, Route.JOB, Route.LARGE_JOB])
def test_a_read_ends_once_too_much_is_written(tmp_path: Path, route: Route) -> None:
    """In the midst of what a poll has brought, in the driver as in tasks; each record is in one file in the end."""
    answers = batches(options(tmp_path, growth_bytes=100_000), route)
    assert len(answers) > 1
    assert all(batch.is_full for batch in answers[:-1])
    written: list[tuple[int, int]] = []
    for batch in answers:
        assert sum(read.records for read in batch.ranges) == sum(read.hi - read.lo for read in batch.ranges)
        for path in {part.file.path for part in batch.parts}:
            rows = pq.read_table(tmp_path / path, columns=["partition", "offset"])
            written += zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    assert sorted(written) == [(number, at) for number in (0, 1) for at in range(END)]
    reads = sorted((read.tp.partition, read.lo, read.hi) for batch in answers for read in batch.ranges)
    assert all(a[2] == b[1] for a, b in pairwise(reads) if a[0] == b[0])


def test_records_that_grow_less_are_read_at_once(tmp_path: Path) -> None:
    """What they become, compressed, is a megabyte or two more than what they were."""
    (batch,) = batches(options(tmp_path, growth_bytes=1 << 30), Route.DRIVER)
    assert not batch.is_full
    assert sum(part.file.records for part in batch.parts) == 2 * END


def test_records_that_grow_and_are_compressed_well_end_a_read_too(tmp_path: Path) -> None:
    """To make them takes as long: a portion of 5,000,000 short records would take hours, and others wait their turn."""
    shared = chain_spec({**SETTINGS, "transforms.add.static.value": "a" * len(ADDED)})
    answers = batches(replace(options(tmp_path, growth_bytes=5_000_000), chain=shared), Route.DRIVER)
    assert sum(part.file.file_bytes for part in answers[0].parts) < 1_000_000
    assert [batch.is_full for batch in answers] == [True, False]


class Passing(ManualClock):
    """A clock on which a second passes with each look."""

    def monotonic_ms(self) -> int:
        self.advance(1_000)
        return super().monotonic_ms()


def test_a_slow_chain_ends_in_the_midst_of_a_batch() -> None:
    """Once its time is over; what it has not looked at is told, so that it is read again."""
    rows = [row(0, at, b"k", b"{}") for at in range(END)]
    limit = TaskGrowth(seconds=100.0, clock=Passing())
    made = list(Chain(CHAIN, resolve).through([source_batch(rows)], limit))
    assert 50 <= sum(len(batch) for batch in made) <= 100
    assert sum(len(batch) for batch in made) + limit.unused == END


@pytest.mark.parametrize("route", [Route.JOB, Route.LARGE_JOB])
def test_a_job_gives_its_turn_back_when_its_time_is_over(tmp_path: Path, route: Route) -> None:
    """Others wait for their turns, or for a free task of Spark's; how long it took decides what is read next."""
    parts = ApartParts(partial(read, parts=Sessions(Alternating, {"t": (END, END)}).parts), in_this_process)
    offer = Offer(options(tmp_path, 1 << 30), (SourceRange("t", "id", 0, 0, END),), {}, route)
    batch = read_apart(SPARK, offer, lambda: False, EarlyEnd(total_s=0.0), parts)
    assert (batch.ranges, batch.is_full) == ((), True)
    assert 0.0 < batch.read_s < 60.0
    whole = read_apart(SPARK, offer, lambda: False, parts=parts)
    assert (sum(read.records for read in whole.ranges), whole.is_full) == (END, False)
