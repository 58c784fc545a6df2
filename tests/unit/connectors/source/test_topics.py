"""One question to the brokers for what several connectors want to know."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from compactor.model.record import TopicPartition
from connectors.config.topics import TopicPattern
from connectors.errors import NotAllowedError
from connectors.source.topics import TOPICS_AGE_MS, NoAnswerError, SharedAnswers, SourceTopics
from tests.support.clocks import ManualClock
from tests.support.memory.admin import MemoryAdmin

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


class Sharing:
    """A connector that shares its questions with others, over an admin client in memory."""

    def __init__(self) -> None:
        self.brokers, self.clock = MemoryAdmin({A0: 5, A1: 6, B0: 7}), ManualClock()
        self.shared = SharedAnswers(cast("Any", self.brokers), cast("Any", self.brokers), self.clock)
        self.topics = SourceTopics("c", cast("Any", self.brokers), self.shared)

    def refresh(self, *partitions: TopicPartition) -> None:
        """What the poller asks for all connectors."""
        self.shared.refresh(frozenset(partitions))

    def ends(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """The last stable offsets that the connector is told."""
        return self.topics.log_ends(partitions).offsets

    def named(self, *names: str) -> dict[str, int]:
        """The topics that it is told, with their partitions."""
        return {name: topic.partitions for name, topic in self.topics.named(names).items()}


@pytest.fixture
def sharing() -> Sharing:
    return Sharing()


def test_one_question_answers_all(sharing: Sharing) -> None:
    """After a refresh, every planner has topics and ends without a request of its own."""
    sharing.refresh(A0, A1, B0)
    assert (sharing.ends(A0, A1), sharing.ends(B0)) == ({A0: 5, A1: 6}, {B0: 7})
    assert (sharing.named("a"), sharing.named("a", "b")) == ({"a": 2}, {"a": 2, "b": 1})
    assert (sharing.brokers.described, sharing.brokers.asked) == ([{"a", "b"}], [{A0, A1, B0}])


def test_offsets_are_those_of_the_last_refresh(sharing: Sharing) -> None:
    """Never older ones: once they are forgotten, the brokers answer."""
    sharing.refresh(A0)
    sharing.brokers.ends[A0] = 50
    assert sharing.ends(A0) == {A0: 5}
    sharing.refresh(A0)
    assert sharing.ends(A0) == {A0: 50}
    sharing.brokers.ends[A0] = 60
    sharing.shared.forget_ends()
    assert sharing.ends(A0) == {A0: 60}


def test_log_starts_are_never_those_of_a_refresh(sharing: Sharing) -> None:
    """It asks for ends; a start is another offset."""
    sharing.refresh(A0)
    assert sharing.topics.log_starts([A0]).offsets == {A0: 0}
    assert sharing.brokers.asked[1:] == [{A0}]


def test_topics_are_asked_for_again_after_a_while(sharing: Sharing) -> None:
    """A recreated topic is seen within TOPICS_AGE_MS, and within it the brokers are asked once."""
    for _ in range(3):
        sharing.refresh(A0, B0)
        assert sharing.named("a") == {"a": 2}
    assert len(sharing.brokers.described) == 1
    sharing.clock.advance(TOPICS_AGE_MS)
    sharing.named("a")  # what is old is asked for directly
    sharing.refresh(A0)
    assert sharing.brokers.described[1:] == [{"a"}, {"a"}]


def test_what_was_not_asked_for_is_asked_directly(sharing: Sharing) -> None:
    """A connector that came after the refresh, a new partition, a topic that was just found."""
    sharing.refresh(A0)
    assert set(sharing.named("a", "b")) == {"a", "b"}
    assert sharing.ends(A0, B0) == {A0: 5, B0: 7}
    assert (sharing.brokers.described, sharing.brokers.asked) == ([{"a"}, {"a", "b"}], [{A0}, {B0}])
    sharing.refresh(A0, B0)  # another set of topics is another question
    assert sharing.brokers.described[2:] == [{"a", "b"}]
    assert set(sharing.topics.matching(TopicPattern("[ab]"))) == {"a", "b"}


def test_a_topic_that_is_not_there_is_no_topic(sharing: Sharing) -> None:
    """That no broker knows it is an answer too."""
    sharing.refresh(A0, TopicPartition("gone", 0))
    assert sharing.named("a", "gone") == {"a": 2}
    assert len(sharing.brokers.described) == 1


def test_an_error_is_that_of_its_topic(sharing: Sharing) -> None:
    """The connector of a refused topic is told so; the others have their ends."""
    sharing.brokers.refused.add("b")
    sharing.refresh(A0, B0)
    assert (sharing.ends(A0), sharing.named("a")) == ({A0: 5}, {"a": 2})
    assert set(sharing.topics.log_ends([A0, B0]).failures) == {B0}
    with pytest.raises(NotAllowedError, match="may not ask where topic b ends"):
        sharing.named("a", "b")


def test_a_partition_that_is_gone_costs_no_other_its_end(sharing: Sharing) -> None:
    """A consumer answers for none of them then, so each is asked for by itself."""
    gone = TopicPartition("gone", 0)
    sharing.refresh(A0, gone)
    told = sharing.topics.log_ends([A0, gone])
    assert (told.offsets, set(told.failures)) == ({A0: 5}, {gone})
    assert sharing.brokers.asked == [{A0, gone}, {A0, gone}]


def test_another_thread_asks_the_brokers(sharing: Sharing) -> None:
    """It may know of later offsets than the last refresh has found, and then these look like a log that was cut."""
    sharing.refresh(A0)
    sharing.brokers.ends[A0] = 50
    with ThreadPoolExecutor(1) as other:
        assert other.submit(sharing.ends, A0).result() == {A0: 50}
        assert other.submit(sharing.named, "a").result() == {"a": 2}
    assert sharing.brokers.described == [{"a"}, {"a"}]
    assert sharing.ends(A0) == {A0: 5}


@pytest.mark.parametrize("how", ["away", "broken"])
def test_brokers_away_are_an_error_of_each(sharing: Sharing, how: str) -> None:
    """Each planner finds it out as if it had asked, and none asks once more."""
    setattr(sharing.brokers, how, True)
    sharing.refresh(A0, B0)
    with pytest.raises(NoAnswerError):
        sharing.named("a", "b")
    told = sharing.topics.log_ends([A0, B0])
    assert (told.offsets, set(told.failures)) == ({}, {A0, B0})
    assert (len(sharing.brokers.described), len(sharing.brokers.asked)) == (1, 1)


def test_alone_each_question_is_a_request(sharing: Sharing) -> None:
    """A reading task shares with nobody."""
    topics = SourceTopics("c", cast("Any", sharing.brokers))
    sharing.refresh(A0)
    assert (topics.log_ends([A0]).offsets, set(topics.named(["a"]))) == ({A0: 5}, {"a"})
    assert (len(sharing.brokers.described), len(sharing.brokers.asked)) == (2, 2)


def test_ends_that_have_not_moved_are_the_same_object(sharing: Sharing) -> None:
    """By that who asks knows it without a look at each partition; whatever is new is another one."""
    both = frozenset((A0, A1))
    first = sharing.shared.refresh(both)
    assert sharing.shared.refresh(both) is first
    sharing.brokers.ends[A0] = 50
    moved = sharing.shared.refresh(both)
    assert (first, moved) == ({A0: 5, A1: 6}, {A0: 50, A1: 6})
    assert sharing.shared.refresh(frozenset((A0,))) == {A0: 50}
    sharing.brokers.broken = True
    assert all(isinstance(answer, KafkaError) for answer in sharing.shared.refresh(both).values())
    sharing.brokers.broken = False
    assert sharing.shared.refresh(both) == moved
