"""What commands ask of a live worker is carried out once, and every asker gets an answer."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from compactor.catalog import requests
from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import CleanedLog
from compactor.errors import (
    FoldError,
    KeyfoldError,
    NotVisibleError,
    PublishInterruptedError,
    QuarantinedError,
    SnapshotError,
    StorageError,
)
from compactor.maintenance import Erased, Maintenance
from compactor.model.actions import AddPartition, AddTopic
from compactor.model.record import TopicPartition
from compactor.storage.base import Storage
from connectors.errors import UnreachableError
from connectors.known_values import remember
from connectors.runtime.request_handler import CLEAN, ERASE, RELEASE, RESTART, SNAPSHOT, RequestHandler
from tests.support.clocks import ManualClock
from tests.support.java_errors import job_cancelled
from tests.support.memory.storage import FailingStorage, MemoryStorage
from tests.support.requests import leave

DONE = CleanedLog(topic="t", partition=1, end=9, records_before=5, records=2, bytes_before=50, bytes=20, tombstones=1)


class Kept:
    """Upkeep that notes what it is asked, and fails as it is told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Collection[TopicPartition] | None]] = []
        self.fails: Exception | None = None
        self.aside = False
        self.hidden = False
        self.cleaner = self

    def check_visible(self, _: object) -> None:
        if self.hidden:
            raise NotVisibleError("Readers do not see it.", "Wait.")

    def _note(self, what: str, wanted: Collection[TopicPartition] | None = None) -> None:
        self.asked.append((what, wanted))
        if self.fails:
            raise self.fails

    def clean(self, now_ms: int, wanted: Collection[TopicPartition] | None) -> tuple[CleanedLog, ...]:
        self._note("clean", wanted)
        return (DONE,)

    def release(self, now_ms: int, wanted: Collection[TopicPartition] | None) -> int:
        self._note("release", wanted)
        return 1

    def check_complete(self, wanted: Collection[TopicPartition] | None = None) -> None:
        if self.aside:
            raise QuarantinedError("One is set aside.", "See describe.")

    def erase(self, now_ms: int, topics: Any, snapshots: Any, files: Any, running: Any) -> Erased:
        self.asked.append((f"erase {topics} {snapshots} {files} {running()}", None))
        return Erased(logs=(DONE,), snapshots=tuple(snapshots), run_files=3, held={})

    def snapshot(self, now_ms: int) -> tuple[object, ...]:
        self._note("snapshot")
        return ()


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def kept() -> Kept:
    return Kept()


@pytest.fixture
def handler(storage: MemoryStorage, kept: Kept) -> RequestHandler:
    return _over(storage, kept)


def _over(storage: Storage, kept: Kept) -> RequestHandler:
    catalog = Catalog.open(storage, "c")
    catalog.take_over("test", 0)
    adds = [AddTopic(topic="t", topic_id="T", output=None, output_id=None)]
    adds_partitions = [AddPartition(topic="t", partition=one, bucket=0, start=0) for one in (0, 1)]
    catalog.commit(lambda _: [*adds, *adds_partitions], 0)
    return RequestHandler(storage, catalog, cast("Maintenance", kept), ManualClock(), kept.check_visible)


def _asked(storage: MemoryStorage, handler: RequestHandler, kind: str, **where: Any) -> requests.Answer:
    request = leave(storage, kind, 1, **where)
    handler.answer_all()
    found = requests.answered(storage, request.id)
    assert found is not None
    return found


def test_each_kind_is_carried_out_once(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """A fold of all, a fold of one topic, a release of one partition, a snapshot; nothing is done twice."""
    folded = _asked(storage, handler, CLEAN)
    assert folded.result["logs"][0]["records"] == 2
    _asked(storage, handler, CLEAN, topic="t")
    assert _asked(storage, handler, RELEASE, topic="t", partition=1).result == {"released": 1}
    assert _asked(storage, handler, SNAPSHOT).result == {"snapshots": []}
    handler.answer_all()
    both, one = (TopicPartition("t", 0), TopicPartition("t", 1)), (TopicPartition("t", 1),)
    assert kept.asked == [("clean", None), ("clean", both), ("release", one), ("snapshot", None)]


def test_an_erasure_is_told_what_it_is_about(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """Topics, snapshots and files, and which jobs still write; the answer says what was done."""
    asked = _asked(storage, handler, ERASE, topics=("t",), snapshots=("s",), files=("runs/f",))
    assert kept.asked == [("erase ('t',) ('s',) ('runs/f',) ()", None)]
    assert (asked.result["erased"]["run_files"], asked.result["erased"]["snapshots"]) == (3, ["s"])


@pytest.mark.parametrize(
    ("kind", "where", "said"),
    [
        (CLEAN, {"topic": "x"}, "has no topic x"),
        (CLEAN, {"topic": "t", "partition": 7}, "has no topic t, partition 7"),
        ("dance", {}, "does not know 'dance'"),
    ],
)
def test_who_asks_for_what_is_not_there_is_told(
    storage: MemoryStorage, kept: Kept, handler: RequestHandler, kind: str, where: dict[str, Any], said: str
) -> None:
    """The asker reads what there is instead; the connector goes on."""
    answer = _asked(storage, handler, kind, **where)
    assert (answer.ok, said in answer.message, kept.asked) == (False, True, [])


def test_what_was_taken_back_is_not_carried_out(storage: MemoryStorage, kept: Kept) -> None:
    """Also where its asker was first by a moment, after the worker had seen it."""
    slow: Any = FailingStorage(storage)
    handler = _over(slow, kept)
    request = leave(storage, CLEAN, 1)
    slow.after("read", lambda: requests.withdraw(storage, request.id), request.id)
    handler.answer_all()
    assert kept.asked == []


def test_what_is_carried_out_cannot_be_taken_back(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """Its asker is told that it goes on."""
    back: list[bool] = []
    request = leave(storage, CLEAN, 1)

    def clean(*_: object) -> tuple[CleanedLog, ...]:
        back.append(requests.withdraw(storage, request.id))
        return (DONE,)

    kept.clean = clean  # type: ignore[method-assign, assignment]
    handler.answer_all()
    answer = requests.answered(storage, request.id)
    assert answer is not None
    assert (back, answer.ok) == ([False], True)


def test_a_restart_is_left_to_the_supervisor(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """This run cannot answer for the next."""
    request = leave(storage, RESTART, 1)
    handler.answer_all()
    assert requests.pending(storage, 1) == (request,)


@pytest.mark.parametrize("kind", [CLEAN, SNAPSHOT])
def test_what_was_not_done_because_of_a_quarantine_is_told(
    storage: MemoryStorage, kept: Kept, handler: RequestHandler, kind: str
) -> None:
    """The others are done; the asker hears that something was left out, and the connector goes on."""
    kept.aside = True
    answer = _asked(storage, handler, kind)
    assert (answer.ok, answer.message, len(kept.asked)) == (False, "One is set aside.", 1)


@pytest.mark.parametrize("kind", [CLEAN, SNAPSHOT])
def test_what_readers_do_not_see_yet_is_told(
    storage: MemoryStorage, kept: Kept, handler: RequestHandler, kind: str
) -> None:
    """A fold and a snapshot are answered as done only once readers see what was published; the connector goes on."""
    kept.hidden = True
    answer = _asked(storage, handler, kind)
    assert (answer.ok, answer.message, answer.unreachable) == (False, "Readers do not see it.", True)


def test_an_answer_shows_no_value_of_a_placeholder(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """What the asker hears of a failure has the placeholder in place of what it stands for."""
    remember("${env:REQUEST_SECRET}", "s3cr3t-of-a-request")
    kept.fails = StorageError("The store does not take s3cr3t-of-a-request.", "Wait.")
    assert _asked(storage, handler, CLEAN).message == "The store does not take ${env:REQUEST_SECRET}."


@pytest.mark.parametrize(
    ("kind", "unreachable"),
    [(StorageError, True), (UnreachableError, True), (PublishInterruptedError, True), (SnapshotError, False)],
)
def test_a_failure_that_may_pass_is_the_askers(
    storage: MemoryStorage, kept: Kept, handler: RequestHandler, kind: type[KeyfoldError], *, unreachable: bool
) -> None:
    """A store or brokers that do not answer now, a snapshot that cannot be taken: the asker is told which, and why."""
    kept.fails = kind("No room.", "Make some.")
    answer = _asked(storage, handler, SNAPSHOT)
    assert (answer.ok, answer.message, answer.action) == (False, "No room.", "Make some.")
    assert answer.unreachable is unreachable


def test_a_failure_that_ends_the_connector_is_answered_first(
    storage: MemoryStorage, kept: Kept, handler: RequestHandler
) -> None:
    """The next run must not meet the same request again."""
    kept.fails = FoldError("Records are missing: sasl.password=geheim.", "Look.")
    request = leave(storage, SNAPSHOT, 1)
    with pytest.raises(FoldError):
        handler.answer_all()
    found = requests.answered(storage, request.id)
    assert found is not None
    assert "Records are missing: sasl.password=[hidden]" in found.message
    assert requests.pending(storage, 1) == ()


def test_a_request_that_a_stop_has_cut_off_says_so(storage: MemoryStorage, kept: Kept, handler: RequestHandler) -> None:
    """The asker gets no trace of Spark's: nothing is wrong but that somebody has stopped or restarted the connector."""
    kept.fails = job_cancelled()
    request = leave(storage, SNAPSHOT, 1)
    with pytest.raises(type(kept.fails)):
        handler.answer_all()
    answer = requests.answered(storage, request.id)
    assert answer is not None
    assert answer.message == "Connector c was stopped, or started again, before its snapshot was done."
    assert answer.action == "Run the command again once the connector runs; what was done of it counts."
