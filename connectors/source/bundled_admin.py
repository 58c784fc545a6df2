"""Asks the brokers once for what several connectors with equal client settings want to know.

Each connector's planner still asks its own questions (`Planner`, `AdminTopics`); what was asked for all of them before
is answered from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from compactor.model.record import TopicPartition
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import latest_offsets
from connectors.kafka.errors import UNANSWERED, cause

TOPICS_AGE_S: Final = 2.5
"""How old (s) an answer about topics may be: half the time after which a planner asks again."""
REQUEST_S: Final = 5.0
"""How long (s) one request may take."""


def bundled_admin(clients: ClientSettings, clock: Callable[[], float]) -> BundledAdmin:
    """Makes one with clients of its own."""
    return BundledAdmin(Admin(clients.admin(), REQUEST_S), Consumer(clients.consumer()), clock)


class _Answers(threading.local):
    """What a thread has asked for: the ends, and at `topics_at` the topics `asked`."""

    ends: Mapping[TopicPartition, int | KafkaError] = {}  # replaced, never changed
    topics: Mapping[str, TopicInfo | KafkaError] = {}
    asked: frozenset[str] = frozenset()
    topics_at = float("-inf")


class BundledAdmin:
    """An `Admin` for planners that answers from what `refresh` has asked for all of them. `clock`: monotonic seconds.

    Only the thread that has refreshed is answered from there: another one may know of later offsets by now, and would
    take older ones for a log that was cut. Offsets are asked for by a read_committed consumer, which never reads.
    """

    def __init__(self, admin: Admin, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._admin = admin
        self._consumer = consumer
        self._clock = clock
        self._answers = _Answers()

    def refresh(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        """Asks for the last stable offset of each partition, and for the topics where the last answer is old.

        Returns the offsets, or errors; an offset is negative where the leader did not answer.
        """
        names, answers = frozenset(tp.topic for tp in partitions), self._answers
        if not self._is_fresh(names):
            answers.topics, answers.asked, answers.topics_at = self._described(names), names, self._clock()
        answers.ends = self._asked_ends(partitions)
        return answers.ends

    def forget_ends(self) -> None:
        """Forgets the offsets: a later question is for those of its own time."""
        self._answers.ends = {}

    def close(self) -> None:
        """Closes the clients' connections."""
        self._consumer.close()
        self._admin.close()

    def list_topics(self) -> Iterable[str]:
        """See `Admin.list_topics`."""
        return self._admin.list_topics()

    def describe_each(self, names: Iterable[str]) -> Mapping[str, TopicInfo | KafkaError]:
        """See `Admin.describe_each`; an answer may be TOPICS_AGE_S old."""
        wanted = frozenset(names)
        if not self._is_fresh(wanted):
            return self._admin.describe_each(wanted)
        return {name: found for name, found in self._answers.topics.items() if name in wanted}

    def offsets_each(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """See `Admin.offsets_each`; the latest are those of the last refresh."""
        wanted = list(partitions)
        known = self._answers.ends if spec is OffsetSpec.latest() else {}
        left = [tp for tp in wanted if tp not in known]
        found = {tp: known[tp] for tp in wanted if tp in known}
        return {**found, **self._admin.offsets_each(left, spec)} if left else found

    def _is_fresh(self, names: frozenset[str]) -> bool:
        answers = self._answers
        return names <= answers.asked and self._clock() - answers.topics_at < TOPICS_AGE_S

    def _described(self, names: Collection[str]) -> Mapping[str, TopicInfo | KafkaError]:
        try:
            return self._admin.describe_each(names)
        except KafkaException as error:
            return dict.fromkeys(names, cause(error))

    def _asked_ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        found = latest_offsets(self._consumer, partitions, REQUEST_S)
        failed = next((one for one in found.values() if isinstance(one, KafkaError)), None)
        if failed is None or failed.code() in UNANSWERED:
            return found
        return self._admin.offsets_each(partitions, OffsetSpec.latest())  # whose error it is, nothing else says
