"""What a task of a micro-batch makes of portions whose chains are late: no other portion waits for them."""

from __future__ import annotations

import inspect
import secrets
import struct
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import httpx
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.errors import KeyfoldError
from compactor.ingest.appends import Batch
from compactor.ingest.ingest import portions
from compactor.storage.local import LocalStorage
from connectors.chain.spec import chain_spec
from connectors.chain_turns import DRIVERS
from connectors.errors import PortionLateError
from connectors.registry.schema_registry import SchemaRegistry
from connectors.source import read_task as module
from connectors.source.arrow_records import range_rows
from connectors.source.assignment import PortionSplit, ReadTask
from connectors.source.micro_batches import MicroBatches
from connectors.source.plan import SourceRange
from connectors.source.portion import Offer
from connectors.source.read_route import Route
from connectors.source.read_task import (
    IN_DRIVER,
    ApartParts,
    ChainLimits,
    read_apart,
    read_in_driver,
    read_task,
    write_transformed,
)
from tests.support.clocks import ManualClock
from tests.support.engine import intake
from tests.support.kafka import wait_until
from tests.support.memory.cluster import MemoryCluster
from tests.support.memory.schema_registry import MemoryRegistry
from tests.support.source_options import source_options
from tests.support.subscribed import Subscribed, batch_of
from tests.unit.connectors.chain.test_chain import batch
from tests.unit.connectors.chain.test_key_identity import V1, encoded

ANSWERS_S = 0.4
"""How long the slow registry takes for an answer: a portion has time for three. A question may take 5 s."""
IDS = 10
SETTINGS = {
    "compaction.key.identity": "avro",
    "key.converter": "keyfold.Avro",
}


class Slow(MemoryRegistry):
    """Answers after `answers_s`; `begun` has how many questions have come."""

    answers_s = ANSWERS_S
    begun = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Takes its time."""
        self.begun += 1
        time.sleep(self.answers_s)
        return super().handle_request(request)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Slow:
    """A slow registry that all converters ask."""
    found = Slow()
    for number in range(IDS):
        found.add({**V1, "doc": str(number)})
    monkeypatch.setattr("connectors.converters.registered.SchemaRegistry", partial(SchemaRegistry, transport=found))
    return found


class Portions:
    """Portions as they were read: of the connector `late` each record has a schema of its own, `plain` has no chain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder, self.storage = folder, LocalStorage(str(folder))
        url = f"http://{secrets.token_hex(4)}:1"  # of no other test, so that nothing of it is known
        self.late = self._portion(1, "late", chain=chain_spec({**SETTINGS, "key.converter.schema.registry.url": url}))
        self.plain = self._portion(2, "plain", chain=None)
        monkeypatch.setattr(module, "read_bounded", self._read)

    def tasks(self) -> list[ReadTask]:
        return [ReadTask((self.late, self.plain), bounded=True)]

    def _portion(self, number: int, connector: str, chain: Any) -> PortionSplit:
        options = source_options(topics=["t"], connector=connector, intake=intake(self.storage))
        split = (SourceRange("t", "id", 0, 0, IDS),)
        return PortionSplit(number, replace(options, chain=chain), split, options.clients)

    def _read(self, found: tuple[PortionSplit, ...]) -> Iterator[tuple[PortionSplit, list[pa.RecordBatch]]]:
        records = batch(*((encoded(V1, number + 1, {"id": number}), b"v") for number in range(IDS)))
        for portion in found:
            (own,) = portion.ranges
            yield portion, [records, range_rows([(own, own.lo, own.hi)])]


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, memory: Slow) -> Portions:  # it is asked
    return Portions(monkeypatch, tmp_path)


def rows_of(batches: Iterator[pa.RecordBatch]) -> dict[int, Batch | KeyfoldError]:
    return portions(row for one in batches for row in one.to_pylist())


def test_a_late_portion_of_a_spark_task_is_told_apart(found: Portions, memory: Slow) -> None:
    """Ten answers in time are late together; the other portion is written, and nothing waits for all of them."""
    answers = rows_of(read_task(found.tasks()[0]))
    assert 0 < memory.begun <= IDS // 2
    assert isinstance(answers[1], PortionLateError)
    assert isinstance(answers[2], Batch)


def test_the_portions_of_a_task_wait_no_longer_together(found: Portions, memory: Slow) -> None:
    """What one of them has waited for is taken from the others' time; those that come to ask none are not late."""
    limits = ChainLimits(portion_wait=ANSWERS_S / 2, task_wait=ANSWERS_S)
    every = tuple(replace(found.late, portion=number) for number in range(10, 20))
    answers = rows_of(read_task(ReadTask(every, bounded=True), limits))
    assert 0 < len(answers) <= 2
    assert 0 < memory.begun <= 2
    assert all(isinstance(answer, PortionLateError) for answer in answers.values())


def test_a_task_begins_with_no_further_chain_after_its_time(found: Portions) -> None:
    """Each chain may take its time, many of them may not; what has none is written all the same."""
    assert set(rows_of(read_task(found.tasks()[0], ChainLimits(written=0.0)))) == {2}


def test_the_driver_asks_no_registry(found: Portions, memory: Slow) -> None:
    """A portion with a schema that is not known is missing, and the others are delivered at once."""
    delivered: dict[int, Any] = {}
    with ThreadPoolExecutor(1) as writers:
        read_in_driver(found.tasks(), writers, delivered.__setitem__)
    assert (set(delivered), memory.asked) == ({2}, [])


def test_what_its_connector_has_learned_the_driver_knows(found: Portions, memory: Slow) -> None:
    """The chain is kept between the two, so the next portion is one of the micro-batch again."""
    options, memory.answers_s = found.late.options, 0.0
    for _, batches in found._read((found.late,)):
        list(write_transformed(batches, options))
    asked = len(memory.asked)
    delivered: dict[int, Any] = {}
    with ThreadPoolExecutor(1) as writers:
        read_in_driver(found.tasks(), writers, delivered.__setitem__)
    assert {number: type(one) for number, one in delivered.items()} == {1: Batch, 2: Batch}
    assert len(memory.asked) == asked == IDS


def test_a_chain_that_takes_too_long_is_late(found: Portions) -> None:
    """Others wait for its work, also if it waits for nothing itself."""
    delivered: dict[int, Any] = {}
    with ThreadPoolExecutor(1) as writers:
        read_in_driver(found.tasks(), writers, delivered.__setitem__, ChainLimits(portion=-1.0))
    assert {number: type(one) for number, one in delivered.items()} == {1: PortionLateError, 2: Batch}


def test_a_writer_that_hangs_holds_up_no_micro_batch(found: Portions) -> None:
    """Its portion is late, so that the next ones keep away from the writers; what it writes later is in no commit."""
    goes_on = threading.Event()
    options = replace(found.late.options, intake=intake(Hanging(str(found.folder), goes_on)), chain=None)
    found.late = replace(found.late, options=options)
    delivered: dict[int, Any] = {}
    began = time.monotonic()
    with ThreadPoolExecutor(2) as writers:
        read_in_driver(found.tasks(), writers, delivered.__setitem__, ChainLimits(written=0.1))
        assert time.monotonic() - began < 5
        assert [type(delivered[1]), type(delivered[2])] == [PortionLateError, Batch]
        goes_on.set()


class AskedClock(ManualClock):
    """Counts how often the thread asks for a duration that has made it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self._maker = threading.get_ident()

    def monotonic_ms(self) -> int:
        """Returns the time, for durations."""
        self.asked += threading.get_ident() == self._maker
        return super().monotonic_ms()

    def wait_for(self, asked: int) -> None:
        """Waits until it has been asked so often."""
        wait_until(lambda: self.asked >= asked, "the loop asks the clock")


class Stalling(LocalStorage):
    """A store in whose call the whole process stands still for 8 s, by `clock`."""

    def __init__(self, location: str, clock: AskedClock) -> None:
        super().__init__(location)
        self._clock = clock

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        """Advances the clock once the driver's loop waits, and writes once that loop has looked at the clock."""
        self._clock.wait_for(8)  # four as it begins, for two portions, then three in each turn
        self._clock.advance(8_000)
        self._clock.wait_for(self._clock.asked + 4)
        with super().open_output(path) as file:
            yield file


def test_a_worker_that_stood_still_finds_no_portion_late(found: Portions) -> None:
    """Nobody's portion is read apart, and no connector for a minute, for what others have done to the process."""
    clock, delivered = AskedClock(), dict[int, Any]()
    options = replace(found.late.options, intake=intake(Stalling(str(found.folder), clock)), chain=None)
    found.late = replace(found.late, options=options)
    with ThreadPoolExecutor(2) as writers:
        read_in_driver(found.tasks(), writers, delivered.setdefault, clock=clock)
    assert {number: type(one) for number, one in delivered.items()} == {1: Batch, 2: Batch}


def test_the_driver_waits_for_no_chain_for_two_seconds() -> None:
    """All connectors of the worker publish nothing meanwhile."""
    assert max(IN_DRIVER.portion, IN_DRIVER.written) < 2
    assert inspect.signature(read_in_driver).parameters["limits"].default is IN_DRIVER


def test_connectors_that_hold_every_writer_hold_up_no_other_again(found: Portions) -> None:
    """They are late once, and no part of the next micro-batches; the other one has each of its portions at once."""
    goes_on, cluster = threading.Event(), MemoryCluster()
    batches = MicroBatches(2, shared=True, wait_s=0.0)
    stores = {"good": found.storage, **{f"held-{at}": Hanging(str(found.folder), goes_on) for at in range(4)}}
    connectors = {}
    for name, storage in reversed(stores.items()):
        cluster.put(name, (0, 1))
        connectors[name] = Subscribed(cluster, name, connector=name, intake=intake(storage))
        batches.add(connectors[name].subscription, connectors[name].options.clients)

    read, number = [], 0
    with ThreadPoolExecutor(5) as writers:
        for end in (2, 3, 4):
            for connector in connectors.values():
                connector.subscription.plan()
            before, number = number, batches.latest(number)
            tasks = batches.tasks(before, number)
            read.append({portion.options.connector for task in tasks for portion in task.portions})
            read_in_driver(tasks, writers, batches.deliver_portion, ChainLimits(written=0.5))
            batches.deliver({})
            for name, connector in connectors.items():
                answer = connector.subscription.next(0)
                assert isinstance(answer, Batch if name == "good" else Offer)
                connector.subscription.taken(answer if isinstance(answer, Batch) else batch_of(answer.ranges))
                cluster.put(name, (0, end))
        goes_on.set()
    assert read == [set(connectors), {"good"}, {"good"}]


class Hanging(LocalStorage):
    """A store that writes once it is let."""

    def __init__(self, location: str, goes_on: threading.Event) -> None:
        super().__init__(location)
        self._goes_on = goes_on

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        """Waits."""
        assert self._goes_on.wait(10)
        with super().open_output(path) as file:
            yield file


def test_an_unknown_schema_rejects_its_record_alone(found: Portions, memory: Slow) -> None:
    """That the registry does not have it is an answer, and no lateness."""
    memory.schemas.clear()
    records = batch((struct.pack(">bI", 0, 99) + b"\x0e", b"v"))
    rows = write_transformed([records, range_rows([(found.late.ranges[0], 0, 1)])], found.late.options)
    (written,) = rows_of(rows).values()
    assert isinstance(written, Batch)
    assert [part.rejected for part in written.parts] == [1]


def test_a_chain_of_a_micro_batch_waits_for_its_turn_no_longer_than_it_may_take(found: Portions) -> None:
    """It would hold one of the writers else, for as long as others compute."""
    delivered: dict[int, Any] = {}
    assert DRIVERS.take(lambda: False, urgent=False)
    with ThreadPoolExecutor(1) as writers:
        read_in_driver(found.tasks(), writers, delivered.__setitem__, ChainLimits(portion=0.1, written=30.0))
    DRIVERS.give()
    assert {number: type(one) for number, one in delivered.items()} == {1: PortionLateError, 2: Batch}
    assert "converters and transforms" in delivered[1].message


def test_what_has_no_chain_is_written_first(found: Portions) -> None:
    """The chains before it may take a second each, and there are four writers."""
    delivered: list[int] = []
    with ThreadPoolExecutor(1) as writers:
        read_in_driver(
            found.tasks(), writers, lambda number, _: delivered.append(number), ChainLimits(portion=-1.0, written=30.0)
        )
    assert delivered == [2, 1]


def test_what_has_no_chain_is_written_while_others_are_read(found: Portions) -> None:
    """Brokers of another connector may take seconds to answer."""
    is_there = threading.Event()

    def read() -> Iterator[ReadTask]:
        yield ReadTask((found.plain,), bounded=True)
        assert is_there.wait(30)

    with ThreadPoolExecutor(1) as writers:
        read_in_driver(read(), writers, lambda *_: is_there.set())


class NoThreads(Executor):
    """A pool that can start no thread."""

    def submit(self, *_: object, **__: object) -> Future[Any]:
        raise RuntimeError("can't start new thread")


def test_a_micro_batch_that_no_thread_writes_is_read_apart(found: Portions) -> None:
    """The query goes on: it would else be started again, and fail every connector with the second time."""
    delivered: list[object] = []
    read_in_driver(found.tasks(), NoThreads(), lambda *pair: delivered.append(pair))
    assert delivered == []


def test_chains_that_the_driver_runs_take_turns(found: Portions, memory: Slow) -> None:
    """Beside dozens of threads that compute, those that publish and those that answer requests would hardly go on."""
    memory.answers_s = 0.0
    offer = Offer(found.late.options, found.late.ranges, {}, Route.DRIVER)
    delivered: dict[int, Any] = {}

    def stored(*_: object) -> Generator[pa.RecordBatch, None, None]:
        for _portion, batches in found._read((found.late,)):
            yield from batches

    with ThreadPoolExecutor(1) as writers, ThreadPoolExecutor(2) as others:
        assert DRIVERS.take(lambda: False, urgent=True)
        apart = others.submit(read_apart, cast("Any", None), offer, lambda: False, parts=ApartParts(read=stored))
        wait_until(lambda: DRIVERS.waiting == 1, "what is read apart waits", 30)
        shared = others.submit(read_in_driver, found.tasks(), writers, delivered.__setitem__, ChainLimits(written=30.0))
        wait_until(lambda: DRIVERS.waiting == 2, "the micro-batch waits", 30)
        DRIVERS.give()
        assert isinstance(apart.result(30), Batch)
        shared.result(30)
    assert isinstance(delivered[2], Batch)
