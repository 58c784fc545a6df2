"""A producer that is the only one of its bucket, and the proof that it may send: steps 6 and 7 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct

from compactor.catalog import newest_epoch
from compactor.errors import FencedError, KeyfoldError, PositionMovedError, PublishInterruptedError, StorageError
from compactor.failpoints import hit
from compactor.publish import BucketPlan
from compactor.record import TopicPartition
from compactor.storage import Storage
from connectors.errors import OutputError
from connectors.kafka.admin import Admin, chunks, group_id
from connectors.kafka.failures import FENCED, typed
from connectors.kafka.producers import LARGEST_BATCH, initialised, settings, transactional_id
from connectors.sinks.positions import moved, read_positions
from connectors.sinks.settings import Clients, Limits

_AGAIN: Final = "It is tried again from the positions that the group holds."


_ABORT_S: Final = 2.0


class Bucket(Struct, frozen=True, kw_only=True):
    """What one publish task is for: a connector's bucket, the plan it was given, and where the truth is."""

    connector: str
    plan: BucketPlan
    storage: Storage
    output_ids: Mapping[str, str]

    def __str__(self) -> str:
        return f"Connector {self.connector}, bucket {self.plan.bucket}"


class Session:
    """The clients of one publish task.

    It is opened again after a refused batch: librdkafka's sequence numbers go on behind it, and the broker
    would take nothing more of that producer.
    """

    def __init__(self, bucket: Bucket, clients: Clients, limits: Limits) -> None:
        self.bucket = bucket
        self.limits = limits
        self.failures: list[KafkaError] = []
        self.admin = Admin(clients.admin)
        self._clients = clients
        self._consumer = Consumer(
            {"group.id": group_id(bucket.connector), "enable.auto.commit": False, "log_level": 2, **clients.admin}
        )
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The open producer."""
        assert self._producer is not None
        return self._producer

    def open(self, expected: Mapping[TopicPartition, int | None]) -> None:
        """Steps 6 and 7: shuts out every other producer of the bucket, then proves that it may go on.

        `expected` is the committed offset of each partition, None where there is none. Raises FencedError
        (a newer owner), PositionMovedError, OutputError, UnreachableError.
        """
        self._producer = None
        self._check_outputs()
        name = transactional_id(self.bucket.connector, self.bucket.plan.bucket)
        config = settings(self._clients.producer, name, self._largest_message)
        self._producer = initialised(config, self.limits.deadline_s)
        hit("publish.fence")
        self.check_epoch()
        self._check_positions(expected)
        hit("publish.position")

    def check_epoch(self) -> None:
        """Raises FencedError where the catalog has a newer owner than the plan's."""
        newest = newest_epoch(self.bucket.storage)
        if newest < self.bucket.plan.epoch:
            raise StorageError(
                f"{self.bucket}: the catalog at {self.bucket.storage.location} shows epoch {newest}, the plan is of "
                f"{self.bucket.plan.epoch}: is it still mounted?",
                "See whether storage.location shows the same files to the worker and to Spark's executors.",
            )
        if newest > self.bucket.plan.epoch:
            raise FencedError(
                f"{self.bucket}: epoch {newest} owns the connector now, this worker has {self.bucket.plan.epoch}.",
                "Another worker took the connector over; leave it to that one.",
            )

    def offsets(self, positions: Sequence[Partition]) -> None:
        """Step 10: puts `positions` into the open transaction."""
        metadata = self._consumer.consumer_group_metadata()
        for part in chunks(positions):
            self.producer.send_offsets_to_transaction(list(part), metadata, self.limits.deadline_s)

    def verdict(self, error: KafkaError, doing: str) -> KeyfoldError:
        """What `error` of the producer means; raises FencedError where a newer owner caused it."""
        if error.code() in FENCED or error.fatal():
            self.check_epoch()
            return PublishInterruptedError(
                f"{self.bucket}: {doing}: its producer was shut out, by a later publish task of this worker or by "
                f"transaction.timeout.ms: {error.str()}.",
                _AGAIN,
            )
        return typed(error, f"{self.bucket}: {doing}", str(self._clients.producer.get("bootstrap.servers")))

    def abort(self) -> None:
        """Ends the open transaction without effect, if that is quickly done.

        librdkafka may wait here for requests that it will never send; the next producer with the same id, or
        the coordinator after transaction.timeout.ms, ends the transaction all the same.
        """
        try:
            self.producer.abort_transaction(_ABORT_S)
        except KafkaException:
            return  # the next producer with the same id aborts it

    def failed(self, error: KafkaError | None, _message: object) -> None:
        """The delivery report of a record: only failures come here."""
        if error is not None:
            self.failures.append(error)

    def close(self) -> None:
        """Gives all connections up."""
        self._producer = None
        self._consumer.close()

    @cached_property
    def _outputs(self) -> list[str]:
        return sorted({target.output for target in self.bucket.plan.targets if target.output is not None})

    @cached_property
    def _largest_message(self) -> int:
        """The smallest max.message.bytes of the output topics, in bytes."""
        configs = (self.admin.topic_config(name) for name in self._outputs)
        return min((int(config["max.message.bytes"]) for config in configs), default=LARGEST_BATCH)

    def _check_outputs(self) -> None:
        """The output topics must be the ones that the plan was made for."""
        found = self.admin.describe(self._outputs)
        for name in self._outputs:
            ours = self.bucket.output_ids[name]
            theirs = found[name].id if name in found else None
            if theirs != ours:
                what = "does not exist any more" if theirs is None else f"was recreated: its id was {ours}, is {theirs}"
                raise OutputError(
                    f"{self.bucket}: output topic {name} {what}.",
                    "What was published is gone: go on under a new connector name.",
                )

    def _check_positions(self, expected: Mapping[TopicPartition, int | None]) -> None:
        group = group_id(self.bucket.connector)
        held = read_positions(self.admin, group, list(expected))
        wrong = moved(held, expected, self.bucket.plan.catalog_id)
        if wrong:
            tp = wrong[0]
            raise PositionMovedError(
                f"{self.bucket}: group {group} holds {held[tp]} for {tp}, planned was {expected[tp]} "
                f"({len(wrong)} of {len(expected)} positions have moved).",
                _AGAIN,
            )
