"""One question to the brokers for what several connectors want to know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import OffsetSpec

from compactor.model.record import TopicPartition
from connectors.source.bundled_admin import TOPICS_AGE_S, BundledAdmin
from tests.support.clocks import SleepingClock
from tests.support.memory.admin import MemoryAdmin

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
LATEST, EARLIEST = OffsetSpec.latest(), OffsetSpec.earliest()


class Bundled:
    """A bundled admin over one in memory."""

    def __init__(self) -> None:
        self.brokers, self.clock = MemoryAdmin({A0: 5, A1: 6, B0: 7}), SleepingClock()
        self.admin = BundledAdmin(cast("Any", self.brokers), cast("Any", self.brokers), self.clock)


@pytest.fixture
def bundled() -> Bundled:
    return Bundled()


def test_one_question_answers_all(bundled: Bundled) -> None:
    """After a refresh, every planner has topics and ends without a request of its own."""
    bundled.admin.refresh(frozenset({A0, A1, B0}))
    assert bundled.admin.offsets_each([A0, A1], LATEST) == {A0: 5, A1: 6}
    assert bundled.admin.offsets_each([B0], OffsetSpec.latest()) == {B0: 7}
    assert {name: found.partitions for name, found in bundled.admin.describe_each(["a"]).items()} == {"a": 2}  # type: ignore[union-attr]
    assert set(bundled.admin.describe_each(["a", "b"])) == {"a", "b"}
    assert (bundled.brokers.described, bundled.brokers.asked) == ([{"a", "b"}], [{A0, A1, B0}])


def test_offsets_are_those_of_the_last_refresh(bundled: Bundled) -> None:
    """Never older ones: whoever asks after they were forgotten is answered by the brokers."""
    bundled.admin.refresh(frozenset({A0}))
    bundled.brokers.ends[A0] = 50
    assert bundled.admin.offsets_each([A0], LATEST) == {A0: 5}
    bundled.admin.refresh(frozenset({A0}))
    assert bundled.admin.offsets_each([A0], LATEST) == {A0: 50}
    bundled.brokers.ends[A0] = 60
    bundled.admin.forget_ends()
    assert bundled.admin.offsets_each([A0], LATEST) == {A0: 60}


def test_log_starts_are_never_those_of_a_refresh(bundled: Bundled) -> None:
    """It asks for ends; a start is another offset."""
    bundled.admin.refresh(frozenset({A0}))
    assert bundled.admin.offsets_each([A0], EARLIEST) == {A0: 0}
    assert bundled.brokers.asked[1:] == [{A0}]


def test_topics_are_asked_for_again_after_a_while(bundled: Bundled) -> None:
    """A recreated topic is seen within TOPICS_AGE_S, and within it the brokers are asked once."""
    for _ in range(3):
        bundled.admin.refresh(frozenset({A0, B0}))
        assert set(bundled.admin.describe_each(["a"])) == {"a"}
    assert len(bundled.brokers.described) == 1
    bundled.clock.sleep(TOPICS_AGE_S)
    bundled.admin.describe_each(["a"])  # what is old is asked for directly
    bundled.admin.refresh(frozenset({A0}))
    assert bundled.brokers.described[1:] == [{"a"}, {"a"}]


def test_what_was_not_asked_for_is_asked_directly(bundled: Bundled) -> None:
    """A connector that came after the refresh, a new partition, a topic that was just found."""
    bundled.admin.refresh(frozenset({A0}))
    assert set(bundled.admin.describe_each(["a", "b"])) == {"a", "b"}
    assert bundled.admin.offsets_each([A0, B0], LATEST) == {A0: 5, B0: 7}
    assert (bundled.brokers.described, bundled.brokers.asked) == ([{"a"}, {"a", "b"}], [{A0}, {B0}])
    bundled.admin.refresh(frozenset({A0, B0}))  # another set of topics is another question
    assert bundled.brokers.described[2:] == [{"a", "b"}]
    assert list(bundled.admin.list_topics()) == ["a", "b"]


def test_a_topic_that_is_not_there_is_no_topic(bundled: Bundled) -> None:
    """That no broker knows it is an answer too."""
    gone = TopicPartition("gone", 0)
    bundled.admin.refresh(frozenset({A0, gone}))
    assert set(bundled.admin.describe_each(["a", "gone"])) == {"a"}
    assert len(bundled.brokers.described) == 1


def test_an_error_is_that_of_its_topic(bundled: Bundled) -> None:
    """The connector of a refused topic is told so; the others have their ends."""
    bundled.brokers.refused.add("b")
    bundled.admin.refresh(frozenset({A0, B0}))
    ends = bundled.admin.offsets_each([A0, B0], LATEST)
    assert (ends[A0], isinstance(ends[B0], KafkaError)) == (5, True)
    assert isinstance(bundled.admin.describe_each(["b"])["b"], KafkaError)


def test_a_partition_that_is_gone_costs_no_other_its_end(bundled: Bundled) -> None:
    """A consumer answers for none of them then, so each is asked for by itself."""
    gone = TopicPartition("gone", 0)
    found = bundled.admin.refresh(frozenset({A0, gone}))
    assert (found[A0], cast("KafkaError", found[gone]).code()) == (5, KafkaError.UNKNOWN_TOPIC_OR_PART)
    assert bundled.brokers.asked == [{A0, gone}, {A0, gone}]


def test_another_thread_asks_the_brokers(bundled: Bundled) -> None:
    """It may know of later offsets than the last refresh has found, and then these look like a log that was cut."""
    bundled.admin.refresh(frozenset({A0}))
    bundled.brokers.ends[A0] = 50
    with ThreadPoolExecutor(1) as other:
        assert other.submit(bundled.admin.offsets_each, [A0], LATEST).result() == {A0: 50}
        assert set(other.submit(bundled.admin.describe_each, ["a"]).result()) == {"a"}
    assert bundled.brokers.described == [{"a"}, {"a"}]
    assert bundled.admin.offsets_each([A0], LATEST) == {A0: 5}


@pytest.mark.parametrize("how", ["away", "broken"])
def test_brokers_away_are_an_error_of_each(bundled: Bundled, how: str) -> None:
    """Each planner finds it out as if it had asked, and none asks once more."""
    setattr(bundled.brokers, how, True)
    bundled.admin.refresh(frozenset({A0, B0}))
    found = [*bundled.admin.describe_each(["a", "b"]).values(), *bundled.admin.offsets_each([A0, B0], LATEST).values()]
    assert [cast("KafkaError", one).code() for one in found] == [KafkaError._TRANSPORT] * 4
    assert (len(bundled.brokers.described), len(bundled.brokers.asked)) == (1, 1)
