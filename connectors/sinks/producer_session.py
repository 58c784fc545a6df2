"""A producer that is the only one of its bucket, and the proof that it may send: steps 6 and 7 of docs/protocol.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog.catalog import newest_epoch
from compactor.errors import FencedError, KeyfoldError, PositionMovedError, PublishInterruptedError, StorageError
from compactor.failpoints import hit
from compactor.model.publish_plan import PublishPlan
from compactor.model.record import TopicPartition
from compactor.storage.base import Storage
from connectors.errors import PUBLISH_ANEW, OutputError, UnreachableError
from connectors.kafka import gone, groups
from connectors.kafka.admin import Admin, TopicInfo, chunks, group_id
from connectors.kafka.consumers import Setting
from connectors.kafka.errors import FENCED, NOT_ALLOWED, cause, not_allowed, typed
from connectors.kafka.producers import (
    DEFAULTS,
    LARGEST_BATCH,
    initialised,
    patiently,
    settings,
    takes,
    transactional_id,
)
from connectors.sinks import others
from connectors.sinks.positions import AGAIN, moved, moved_by, read_positions
from connectors.sinks.settings import SinkClients, TransactionLimits

_ABORT_S: Final = 2.0


class Bucket(Struct, frozen=True, kw_only=True):
    """What one plan is for: a connector's bucket, the plan it was given, and where the truth is."""

    connector: str
    plan: PublishPlan
    storage: Storage
    output_ids: Mapping[str, str]

    def __str__(self) -> str:
        return f"Connector {self.connector}, bucket {self.plan.bucket}"


class QueryClients:
    """The clients that only ask: one of each will do for any number of buckets of one process."""

    def __init__(self, connector: str, clients: SinkClients) -> None:
        self.admin = Admin(clients.admin)
        self.member = groups.member(clients.admin, group_id(connector))

    def close(self) -> None:
        """Gives their connections up."""
        self.member.close()


class ProducerSession:
    """The producer of one bucket, for one publish task or, in the driver, from one publish to the next.

    It is opened again after a refused batch: librdkafka's sequence numbers go on behind it, and the broker
    would take nothing more of that producer.

    `kept`: the producer is of an earlier plan and has not committed anything of this one; who has shut it out since is
    only known when it tries. Once `broken_off` says so, nothing is waited for any more. `failed` is given to librdkafka
    with every record, which keeps it for ever where a producer is let go with records under way: it holds no client.
    """

    def __init__(
        self,
        bucket: Bucket,
        clients: SinkClients,
        limits: TransactionLimits,
        asking: QueryClients,
        broken_off: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bucket = bucket
        self.limits = limits
        self.broken_off = broken_off
        self.failures: list[KafkaError] = []
        self.failed = partial(_note, self.failures)
        self.admin = asking.admin
        self.kept = False
        self._clients = clients
        self._member = asking.member
        self._producer: Producer | None = None
        self._outputs: Mapping[str, TopicInfo] = {}
        self._looked = False
        self._largest_record = 0

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
        self.give_up()
        self._outputs = {**self._outputs, **self._checked_outputs()}
        sizes = self._largest_message(), self._largest_record
        config = settings(self._clients.producer, self._transactional_id, *sizes)
        self._producer = initialised(config, self.limits.deadline_s, self.broken_off)
        try:
            self._prove(expected)
        except BaseException:
            self.give_up()  # steps 6 and 7 belong together: whoever tries again begins with both
            raise

    def go_on(self, bucket: Bucket, expected: Mapping[TopicPartition, int | None]) -> None:
        """Steps 6 and 7 for the next plan, with the producer that there is.

        Nobody has shut it out, or its next transaction fails. A new one where an output is not as the producer knows
        it: it has grown, or nothing was sent to it before.
        """
        self.bucket, self._looked = bucket, False
        if self._producer is None or self._checked_outputs().items() - self._outputs.items():
            return self.open(expected)
        self.kept = True
        return self._prove(expected)

    def _prove(self, expected: Mapping[TopicPartition, int | None]) -> None:
        hit("publish.fence")
        self.check_epoch()
        self._check_positions(expected)
        if not self._looked:  # what a refused batch interrupts was looked at when it began
            reader = {"group.id": group_id(self.bucket.connector), **self._clients.admin}
            others.check(str(self.bucket), self.admin, reader, self.bucket.plan.targets)
            self._looked = True
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
        metadata = self._member.consumer_group_metadata()
        for part in chunks(positions):
            add = partial(self.producer.send_offsets_to_transaction, list(part), metadata)
            patiently(add, self.limits.deadline_s, self.broken_off)

    def verdict(self, error: KafkaError, doing: str) -> KeyfoldError:
        """What `error` of the producer means; raises FencedError where a newer owner caused it."""
        if error.code() in NOT_ALLOWED:  # first, as a right on the transactional id that is gone is fatal to librdkafka
            return not_allowed(error, f"{self.bucket}: {doing}", self._right(error.code()))
        if error.code() in FENCED or error.fatal():
            self.check_epoch()
            return PublishInterruptedError(
                f"{self.bucket}: {doing}: its producer was shut out, by a later publish of this worker, by "
                f"transaction.timeout.ms, or by a worker of this connector name with another catalog: {error.str()}.",
                f"{AGAIN} If it goes on, look for a worker of the same connector name with another storage.location.",
            )
        return typed(error, f"{self.bucket}: {doing}", str(self._clients.producer.get("bootstrap.servers")))

    def _right(self, code: int) -> str | None:
        """The right that a producer lacks where the brokers refuse with `code`, and on what."""
        outputs = ", ".join(sorted(self._outputs))
        names = {
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"transactional id {self._transactional_id}",
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"group {group_id(self.bucket.connector)}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: f"output topic {outputs} and the dead letter topic",
        }
        rights = "Read and Describe" if code == KafkaError.GROUP_AUTHORIZATION_FAILED else "Write and Describe"
        return f"{rights} on {names[code]}" if code in names else None

    def trouble(self) -> KafkaError | None:
        """Why the open transaction can only be aborted; None where it need not be.

        Librdkafka drops the records of such a transaction and tells the reason to the next call about it only. This
        one has no effect, as what it adds is aborted.
        """
        one = self.bucket.plan.targets[0]
        position, group = Partition(one.topic, one.partition, one.start), self._member.consumer_group_metadata()
        try:
            self.producer.send_offsets_to_transaction([position], group, _ABORT_S)
        except KafkaException as error:
            return cause(error)
        return None

    def abort(self) -> None:
        """Ends the open transaction without effect, if that is quickly done.

        librdkafka may wait here for requests that it will never send; the next producer with the same id, or
        the coordinator after transaction.timeout.ms, ends the transaction all the same.
        """
        try:
            self.producer.abort_transaction(_ABORT_S)
        except KafkaException:
            return  # the next producer with the same id aborts it

    def committed(self) -> None:
        """A transaction of this plan has taken effect: nobody had shut the producer out."""
        self.kept = False

    def has_room(self, size: int) -> bool:
        """Whether the producer takes a record of `size` bytes; if not, the next `open` makes one that does."""
        if takes(self._clients.producer, self._largest_record, size):
            return True
        self._largest_record = size
        return False

    def setting(self, name: str) -> Setting:
        """A setting of the producer."""
        return self._clients.producer.get(name, DEFAULTS.get(name, ""))

    def give_up(self) -> None:
        """Lets the producer go."""
        self._producer, self.kept = None, False

    @property
    def _transactional_id(self) -> str:
        return transactional_id(self.bucket.connector, self.bucket.plan.bucket)

    def _largest_message(self) -> int:
        """The smallest max.message.bytes of the output topics, in bytes."""
        configs = self.admin.topic_configs(self._outputs).values()
        return min((int(config["max.message.bytes"]) for config in configs), default=LARGEST_BATCH)

    def _checked_outputs(self) -> Mapping[str, TopicInfo]:
        """The output topics, which must be the ones that the plan was made for; that one is gone, only step T3 says."""
        names = sorted({target.output for target in self.bucket.plan.targets if target.output is not None})
        found = gone.described(self.admin.describe, names, known=names)
        for name in names:
            ours = self.bucket.output_ids[name]
            if name not in found:
                raise UnreachableError(
                    f"{self.bucket}: no broker knows output topic {name}.",
                    "It is asked for again; if it was deleted, the next start of the connector says so.",
                )
            if found[name].id != ours:
                raise OutputError(
                    f"{self.bucket}: output topic {name} was recreated (its id was {ours}, now {found[name].id}); what "
                    "was published is gone.",
                    PUBLISH_ANEW,
                )
        return {name: replace(found[name], leaderless=0) for name in names}

    def _check_positions(self, expected: Mapping[TopicPartition, int | None]) -> None:
        group = group_id(self.bucket.connector)
        held = read_positions(self.admin, group, list(expected), self._member)
        wrong = moved(held, expected, self.bucket.plan.catalog_id)
        if wrong:
            tp = wrong[0]
            found = held[tp]
            why, action = moved_by(found, self.bucket.plan.catalog_id, self.admin.members(group))
            raise PositionMovedError(
                f"{self.bucket}: group {group} holds {None if found is None else found.offset} for {tp}, planned was "
                f"{expected[tp]} ({len(wrong)} of {len(expected)} positions have moved): {why}.",
                action,
            )


def _note(failures: list[KafkaError], error: KafkaError | None, _message: object) -> None:
    """The delivery report of a record: only failures come here."""
    if error is not None:
        failures.append(error)
