"""A bad record sets its topic aside, and the others go on (errors.scope=topic): schedules on the engine in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor import failpoints
from compactor.catalog.catalog import Catalog
from compactor.engine import Engine
from compactor.errors import FailpointError, KeyfoldError, RejectedRecordError, TruncatedError
from compactor.ingest.appends import Batch
from compactor.model.actions import BeginGeneration, CloseTopic, ReopenTopic, SetBuckets
from compactor.model.log import Gap, Generation
from compactor.model.record import TopicPartition
from compactor.model.state import REJECTED, rejection_of
from compactor.publish.changelog import Changelog
from compactor.publish.executors import PublishExecutor
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.local import LocalStorage
from connectors.runtime.offset_change import after_truncates
from connectors.runtime.takeover import reopened
from tests.support.engine import Row, gathered, intake, row, with_range_reports
from tests.support.local_spark import LocalFrame
from tests.support.memory.broker import MemoryBroker

SCOPED: Final = EngineSettings(
    connector="c", policy=CompactionPolicy(), sets_topics_aside=True, publish_local_max_records=1_000
)
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
B1 = TopicPartition("b", 1)


class Life:
    """A connector of the topics a and b; `start` begins its next run, with the state that the earlier ones left."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(str(folder / "connector"))
        self.broker = MemoryBroker(LocalStorage(str(folder / "broker")))
        for topic in "ab":
            self.broker.add_topic(topic, 1)
        self.files = 0

    def start(self, settings: EngineSettings = SCOPED) -> None:
        self.catalog = Catalog.open(self.storage, "c")
        self.catalog.require("offset", "key", "partition")
        self.catalog.take_over("o", 0)
        if not self.catalog.state.buckets:
            self.catalog.commit(lambda _: [SetBuckets(count=1)], 0)
        self.catalog.commit(reopened, 0)
        stopped = Mock(is_set=Mock(return_value=False))
        sending = PublishExecutor(cast("Any", None), self.storage, self.broker, lambda: False)
        self.changelog = Changelog(self.catalog, self.broker, sending, QuarantineManager(self.catalog, stopped))
        self.engine = Engine(self.catalog, self.broker, settings, self.changelog)
        self.engine.resolve_positions(0)

    def read(self, topic: str, first: int, *keys: bytes | None) -> Batch:
        """Returns the portion of records of `topic` from the offset `first` on, each with one of `keys`."""
        rows = [row(0, first + at, key, b"v%d" % (first + at), topic=topic) for at, key in enumerate(keys)]
        reported = with_range_reports(rows, {0: (first, first + len(keys))}, topic=topic)
        self.files += 1
        own = intake(self.storage)
        into = replace(own, target=replace(own.target, prefix=f"1-{self.files}"))
        return gathered(cast("Any", LocalFrame([cast("Sequence[Row]", reported)], into)))

    def take(self, *portions: Batch, now_ms: int = 1) -> None:
        """Takes all of them as one batch."""
        ranges = tuple(read for portion in portions for read in portion.ranges)
        parts = tuple(part for portion in portions for part in portion.parts)
        self.engine.take(Batch(ranges=ranges, parts=parts), now_ms)

    def sent(self, tp: TopicPartition) -> list[int | None]:
        """Returns the source offsets that a reader of the output sees."""
        return [each.source_offset for each in self.broker.output.records.get(tp, ())]

    def closed(self) -> dict[str, str | None]:
        return {name: topic.closed for name, topic in self.catalog.state.topics.items()}

    def ends(self) -> tuple[int, int]:
        return self.catalog.state.log(A).end, self.catalog.state.log(B).end


@pytest.fixture
def life(tmp_path: Path) -> Life:
    """A connector that has taken and published one record of each of its topics."""
    life = Life(tmp_path)
    life.start()
    life.take(life.read("a", 0, b"k"), life.read("b", 0, b"k"))
    return life


def test_a_batch_and_the_ends_of_its_folds_are_one_commit(life: Life) -> None:
    """A commit takes longer than most that a small batch needs; the second one says what was published."""
    before = life.catalog.commits
    life.take(life.read("a", 1, b"x"))
    assert (life.catalog.commits - before, life.sent(A)) == (2, [0, 1])


def test_the_topic_of_a_bad_record_is_set_aside_and_the_others_go_on(life: Life) -> None:
    """Nothing of the batch is taken of it; the catalog says which record it was, and the log what to do."""
    with capture_logs() as logs:
        life.take(life.read("a", 1, b"x"), life.read("b", 1, b"x", None))
    assert (life.ends(), life.sent(A), life.sent(B)) == ((2, 1), [0, 1], [0])
    said = "the record at topic b, partition 0, offset 2 cannot be folded: null key."
    assert life.closed() == {"a": None, "b": f"{REJECTED}: {said}"}
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert (line["topic"], "keyfold restart" in line["next"], "message.key.columns" in line["error"]) == (
        "b",
        True,
        True,
    )


def test_what_is_read_of_it_later_in_the_run_is_left_out(life: Life) -> None:
    """Though it is sound: the record before it is missing. The log of it stays at its end."""
    life.take(life.read("a", 1, b"x"), life.read("b", 1, None))
    life.take(life.read("b", 2, b"y"))
    with capture_logs() as logs:
        life.take(life.read("b", 3, None), life.read("a", 2, b"z"))
    assert logs == []
    assert (life.ends(), life.sent(A), life.engine.topics_aside) == ((3, 1), [0, 1, 2], frozenset({"b"}))


@pytest.mark.parametrize("tolerates", [True, False])
def test_the_next_start_reads_it_on_and_no_record_twice(life: Life, *, tolerates: bool) -> None:
    """Once bad records are let go it catches up; else it is set aside again, and the others are not concerned."""
    bad = (1, b"x", None, b"y")
    life.take(life.read("a", 1, b"x"), life.read("b", *bad))
    life.start(replace(SCOPED, tolerate_rejected=tolerates, sets_topics_aside=not tolerates))
    assert life.closed() == {"a": None, "b": None}
    life.take(life.read("b", *bad), life.read("a", 2, b"y"))
    assert life.sent(A) == [0, 1, 2]
    assert life.sent(B) == ([0, 1, 3] if tolerates else [0])
    assert (life.closed()["b"] is None) is tolerates


def test_a_crash_after_it_was_set_aside_loses_nothing(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is in no commit: the next run reads it again, all of it."""
    batch = life.read("a", 1, b"x"), life.read("b", 1, None)
    monkeypatch.setenv(failpoints.VARIABLE, "ingest.before-commit=error")
    with pytest.raises(FailpointError):
        life.take(*batch)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert (life.ends(), life.closed()["b"] is None) == ((1, 1), False)
    life.start()
    life.take(life.read("a", 1, b"x"), life.read("b", 1, None))
    assert (life.ends(), life.sent(A), life.sent(B)) == ((2, 1), [0, 1], [0])


@pytest.mark.parametrize(
    "read",
    [
        lambda life: (life.read("a", 1, None), life.read("b", 1, None)),
        lambda life: (life.read("a", 1, None),),
    ],
    ids=["both are bad", "the other one is aside"],
)
def test_without_another_topic_the_connector_fails(life: Life, read: Callable[[Life], tuple[Batch, ...]]) -> None:
    """With the error of the record, as without the setting; a topic that is set aside is no other topic."""
    if len(read(life)) == 1:
        life.take(life.read("b", 1, None))
    with pytest.raises(RejectedRecordError, match="topic a, partition 0, offset 1"):
        life.take(*read(life))
    assert life.closed()["a"] is None


def test_by_default_a_bad_record_stops_the_connector(life: Life) -> None:
    """errors.scope=connector; nothing of the batch is taken."""
    life.start(replace(SCOPED, sets_topics_aside=False))
    with pytest.raises(RejectedRecordError):
        life.take(life.read("a", 1, b"x"), life.read("b", 1, None))
    assert (life.ends(), life.closed()) == ((1, 1), {"a": None, "b": None})


def test_a_batch_that_is_refused_as_a_whole_adds_no_topic(tmp_path: Path) -> None:
    """No output is made for it either."""
    life = Life(tmp_path)
    life.start(replace(SCOPED, sets_topics_aside=False))
    with pytest.raises(RejectedRecordError):
        life.take(life.read("a", 0, None))
    assert life.closed() == {}


def refused(topic: str | None) -> KeyfoldError:
    """Returns the error of a record that the brokers refuse."""
    error = RejectedRecordError("Connector c: the broker refuses record b-0 at offset 1.", "Raise it.")
    error.topic = topic
    return error


def test_a_record_that_brokers_refuse_sets_its_topic_aside_too(life: Life) -> None:
    """The publish is made again without it: what its transaction had of the others was aborted."""
    publish = life.changelog.publish
    cast("Any", life.changelog).publish = Mock(side_effect=[refused("b"), *[()] * 9])
    life.take(life.read("a", 1, b"x"), life.read("b", 1, b"x"))
    assert life.closed() == {"a": None, "b": f"{REJECTED}: the broker refuses record b-0 at offset 1."}
    cast("Any", life.changelog).publish = publish
    life.engine.tick(2)
    assert (life.sent(A), life.sent(B), life.ends()) == ([0, 1], [0], (2, 2))
    life.start()
    life.engine.tick(3)
    assert life.sent(B) == [0, 1]


def test_a_topic_that_was_unknown_for_a_while_stays_aside(life: Life) -> None:
    """It is back under its id, and a look would open it; others are opened."""
    life.take(life.read("a", 1, b"x"), life.read("b", 1, None))
    reason = life.closed()["b"]
    life.engine.commit(lambda _: [CloseTopic(topic=name, reason="deleted") for name in "ab"], 2)
    life.engine.commit(lambda _: [ReopenTopic(topic=name) for name in "ab"], 3)
    assert life.closed() == {"a": None, "b": reason}


def test_an_error_of_no_topic_is_nobody_s_to_set_aside(life: Life) -> None:
    """It ends the run, as any other error of a publish."""
    error = refused(None)
    cast("Any", life.changelog).publish = Mock(side_effect=error)
    with pytest.raises(KeyfoldError) as raised:
        life.take(life.read("a", 1, b"x"))
    assert raised.value is error
    assert life.closed() == {"a": None, "b": None}


def test_the_position_of_a_topic_that_is_set_aside_does_not_expire(life: Life) -> None:
    """It is committed again as it is, as those of all others: the next start goes on from it."""
    life.take(life.read("a", 1, b"x"), life.read("b", 1, None))
    before = len(life.broker.entries)
    life.engine.tick(SCOPED.position_refresh_ms + 10)
    renewed = {(each.topic, each.partition) for entry in life.broker.entries[before:] for each in entry.positions}
    assert renewed == {A, B}
    position = life.broker.output.positions[B]
    assert position is not None
    assert position.group_offset == 1


def truncated(batch: Batch, offset: int) -> Batch:
    """Returns `batch`, of which a truncate at `offset` was dropped."""
    (read,) = batch.ranges
    return replace(batch, ranges=(replace(read, truncates=1, last_truncate=offset),))


APPLYING: Final = replace(SCOPED, applies_truncates=True)


def test_a_truncate_is_not_passed_before_it_is_applied(life: Life) -> None:
    """Nothing of the batch is taken: killed now, the next run reads the truncate again."""
    life.start(APPLYING)
    with pytest.raises(TruncatedError) as raised:
        life.take(life.read("a", 1, b"x"), truncated(life.read("b", 1, b"x", b"y"), 2))
    assert (raised.value.offsets, life.ends()) == ({B: 2}, (1, 1))
    assert life.closed() == {"a": None, "b": None}


def test_after_the_log_has_begun_again_the_truncate_is_below_it(life: Life) -> None:
    """What is read from there on is taken, and the tombstones that lead it are sent."""
    life.start(APPLYING)
    change = after_truncates({B: 2})(life.catalog.state)
    assert (change.offsets, change.anew, change.accepts_loss) == ({B: 3}, True, True)
    generation = Generation(number=2, start=3, first_end=3)
    begin = BeginGeneration(topic="b", partition=0, generation=generation, gap=Gap(1, 3))
    life.catalog.commit(lambda _: [begin], 1)
    life.take(truncated(life.read("b", 2, b"x", b"y"), 2))
    assert life.catalog.state.log(B).end == 4


@pytest.mark.parametrize("tolerates", [True, False])
def test_a_truncate_of_a_topic_with_two_partitions_is_refused(life: Life, *, tolerates: bool) -> None:
    """As a bad record: its topic is set aside; or it is dropped, if bad records are let go."""
    life.broker.topics["b"].ends.append(0)
    second = life.read("b", 0, b"z")
    second = replace(second, ranges=tuple(replace(read, tp=B1) for read in second.ranges), parts=())
    second = replace(second, ranges=tuple(replace(read, records=0) for read in second.ranges))
    life.start()
    life.take(second)
    life.start(replace(APPLYING, tolerate_rejected=tolerates, sets_topics_aside=not tolerates))
    life.take(life.read("a", 1, b"x"), truncated(life.read("b", 1, b"x"), 1))
    assert life.ends() == (2, 2 if tolerates else 1)
    assert (life.closed()["b"] is None) is tolerates


def test_the_reason_is_a_line_of_bounded_length() -> None:
    """It may quote a record: describe and the log show it."""
    assert rejection_of("a\x1b[31m\nb\u202e") == f"{REJECTED}: a [31m b"
    assert len(rejection_of("x" * 10_000)) == 500
