"""Asks the brokers once for what several connectors with equal client settings want to know.

Each connector's planner still asks its own questions (`Planner`, `AdminTopics`); what was asked for all of them before
is answered from there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from compactor.model.record import TopicPartition
from connectors.kafka.admin import Admin, TopicInfo
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.consumers import last_stable_offsets
from connectors.kafka.errors import cause

TOPICS_AGE_S: Final = 2.5
"""How old (s) an answer about topics may be: half the time after which a planner asks again."""
REQUEST_S: Final = 5.0
"""How long (s) one request may take."""


def bundled_admin(clients: ClientSettings, clock: Callable[[], float]) -> BundledAdmin:
    """Makes one with clients of its own."""
    return BundledAdmin(Admin(clients.admin(), REQUEST_S), Consumer(clients.consumer()), clock)


class BundledAdmin:
    """An `Admin` for planners that answers from what `refresh` has asked for all of them. `clock`: monotonic seconds.

    Offsets are asked for by a read_committed consumer, which never reads. One thread refreshes; others may ask too.
    """

    def __init__(self, admin: Admin, consumer: Consumer, clock: Callable[[], float]) -> None:
        self._admin = admin
        self._consumer = consumer
        self._clock = clock
        self._ends: Mapping[TopicPartition, int | KafkaError] = {}
        self._topics: Mapping[str, TopicInfo | KafkaError] = {}
        self._asked: frozenset[str] = frozenset()
        self._topics_at = float("-inf")

    def refresh(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int | KafkaError]:
        """Asks for the last stable offset of each partition, and for the topics where the last answer is old.

        Returns the offsets, or errors; an offset is negative where the leader did not answer.
        """
        names = frozenset(tp.topic for tp in partitions)
        if not self._is_fresh(names):
            self._topics, self._asked, self._topics_at = self._described(names), names, self._clock()
        self._ends = last_stable_offsets(self._consumer, partitions, REQUEST_S)
        return self._ends

    def forget_ends(self) -> None:
        """Forgets the offsets: whoever asks again wants those of that time."""
        self._ends = {}

    def close(self) -> None:
        """Closes the consumer's connections."""
        self._consumer.close()

    def list_topics(self) -> Iterable[str]:
        """See `Admin.list_topics`."""
        return self._admin.list_topics()

    def describe_each(self, names: Iterable[str]) -> Mapping[str, TopicInfo | KafkaError]:
        """See `Admin.describe_each`; an answer may be TOPICS_AGE_S old."""
        wanted = frozenset(names)
        if not self._is_fresh(wanted):
            return self._admin.describe_each(wanted)
        return {name: found for name, found in self._topics.items() if name in wanted}

    def offsets_each(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """See `Admin.offsets_each`; the latest are those of the last refresh."""
        wanted = list(partitions)
        known = self._ends if spec is OffsetSpec.latest() else {}
        left = [tp for tp in wanted if tp not in known]
        found = {tp: known[tp] for tp in wanted if tp in known}
        return {**found, **self._admin.offsets_each(left, spec)} if left else found

    def _is_fresh(self, names: frozenset[str]) -> bool:
        return names <= self._asked and self._clock() - self._topics_at < TOPICS_AGE_S

    def _described(self, names: Collection[str]) -> Mapping[str, TopicInfo | KafkaError]:
        try:
            return self._admin.describe_each(names)
        except KafkaException as error:
            return dict.fromkeys(names, cause(error))
