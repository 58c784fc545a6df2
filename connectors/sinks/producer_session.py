"""Opens the one producer of a bucket and proves that it may send: steps 6 and 7 of docs/protocol.md."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from msgspec import Struct
from msgspec.structs import replace

from compactor.catalog.history import newest_epoch
from compactor.errors import (
    FencedError,
    KeyfoldError,
    PositionError,
    PositionMovedError,
    PublishInterruptedError,
    StorageError,
)
from compactor.failpoints import hit
from compactor.model.position import Position, decode
from compactor.model.publish_plan import PublishPlan
from compactor.model.record import TopicPartition
from compactor.storage.base import Storage
from connectors.errors import PUBLISH_ANEW, OutputError, UnreachableError
from connectors.kafka import groups
from connectors.kafka.admin import Admin, TopicInfo, chunks, described, group_id
from connectors.kafka.broker_text import broker_text
from connectors.kafka.client_settings import ClientSettings, Setting
from connectors.kafka.consumers import every_latest_offset
from connectors.kafka.errors import FENCED, NOT_ALLOWED, UNFIT, cause, not_allowed, typed
from connectors.kafka.groups import CommittedOffset
from connectors.kafka.producers import (
    LARGEST_BATCH,
    call_until_answered,
    initialised,
    note_failure,
    settings,
    takes,
    transactional_id,
)
from connectors.sinks.output_reader import check_writers
from connectors.sinks.settings import TransactionLimits

AGAIN: Final = "It is tried again from the positions that the group holds."
# How long (s) an abort, or the question why a transaction can only be aborted, is waited for. librdkafka may never
# answer, and the next producer with the id aborts the transaction anyway: a longer wait only delays the next try.
_ABORT_S: Final = 2.0
# How long (s) the consumer is waited for before the admin client asks.
_ENDS_S: Final = 2.0
_MANY: Final = 500
"""Of so many partitions the ends are asked with a client of their own: an admin client makes a future for each."""


class Bucket(Struct, frozen=True, kw_only=True):
    """A bucket of a connector: the plan to publish in it, and the storage that holds the newest epoch."""

    connector: str
    plan: PublishPlan
    storage: Storage
    output_ids: Mapping[str, str]

    def __str__(self) -> str:
        return f"Connector {self.connector}, bucket {self.plan.bucket}"


class QueryClients:
    """Clients that only query; all buckets of one process share them: an admin client, and a `groups.member`."""

    def __init__(self, connector: str, clients: ClientSettings) -> None:
        self.admin = Admin(clients.admin())
        self.member = groups.member(clients.admin(), group_id(connector))
        self._make_reader = partial(groups.member, clients.admin(), group_id(connector), "read_uncommitted")
        # Made under `_lock` when many partitions are asked about for the first time; None before.
        self._reader: Consumer | None = None
        self._lock = threading.Lock()

    def high_watermarks(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Returns the offset after the last replicated record of each partition, open transactions included.

        Of many a read_uncommitted consumer is asked, which is made then. Raises as `Admin.high_watermarks`.
        """
        if len(partitions) < _MANY:
            return self.admin.high_watermarks(partitions)
        with self._lock:  # buckets ask from threads of their own
            self._reader = self._reader or self._make_reader()
        return every_latest_offset(self._reader, partitions, _ENDS_S, self.admin.high_watermarks)

    def close(self) -> None:
        """Closes their connections."""
        self.member.close()
        if self._reader is not None:
            self._reader.close()


class ProducerSession:
    """Holds the producer of one bucket, for one publish task or, in the driver, from one publish to the next.

    A refused batch needs a new producer (`open`): librdkafka's sequence numbers go on after that batch, and the broker
    would take nothing more of the old one.

    `kept`: the producer is of an earlier plan and has not committed anything of this one; only its next transaction
    shows whether another has fenced it since. Once `stopped` returns True, nothing is waited for any more. `failed`
    is given to librdkafka with every record, which keeps it for ever if a producer is dropped with records under
    way: it holds no client.
    """

    def __init__(
        self,
        bucket: Bucket,
        clients: ClientSettings,
        limits: TransactionLimits,
        queries: QueryClients,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bucket = bucket
        self.limits = limits
        self.stopped = stopped
        self.failures: list[KafkaError] = []
        self.failed = partial(note_failure, self.failures)
        self.admin = queries.admin
        self.high_watermarks = queries.high_watermarks
        self.kept = False
        self._clients = clients
        self._member = queries.member
        # None before `open`, and after it has failed or `drop_producer`.
        self._producer: Producer | None = None
        # The output topics as they were when the producer was made for them; one that differs needs a new producer.
        self._outputs: Mapping[str, TopicInfo] = {}
        # Whether other writers were looked for in the outputs of the present plan; once a plan is enough.
        self._looked = False
        # Bytes of the largest record that did not fit into the queue so far; the next producer has room for it.
        self._largest_record = 0

    @property
    def producer(self) -> Producer:
        """The open producer."""
        assert self._producer is not None
        return self._producer

    def open(self, expected: Mapping[TopicPartition, int | None]) -> None:
        """Takes steps 6 and 7: fences every other producer of the bucket, then proves that this one may send.

        `expected` is the committed offset of each partition, None if there is none. Raises FencedError
        (a newer owner), PositionMovedError, OutputError, UnreachableError.
        """
        self.drop_producer()
        self._outputs = {**self._outputs, **self._checked_outputs()}
        sizes = self._largest_message(), self._largest_record
        config = settings(self._clients.producer(), self._transactional_id, *sizes)
        self._producer = initialised(config, self.limits.deadline_s, self.stopped)
        try:
            self._prove(expected)
        except BaseException:
            self.drop_producer()  # steps 6 and 7 belong together: another try begins with both
            raise

    def go_on(self, bucket: Bucket, expected: Mapping[TopicPartition, int | None]) -> None:
        """Takes steps 6 and 7 for the next plan, with the present producer.

        If another has fenced it, its next transaction fails. Makes a new one if an output is not as the producer
        knows it: it has grown, or nothing was sent to it before.
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
            reader = {"group.id": group_id(self.bucket.connector), **self._clients.admin()}
            check_writers(str(self.bucket), self.admin, self._member, reader, self.bucket.plan.targets)
            self._looked = True
        hit("publish.position")

    def check_epoch(self) -> None:
        """Raises FencedError if the catalog has a newer owner than the plan's."""
        newest = newest_epoch(self.bucket.storage, self.bucket.plan.catalog_id)
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

    def send_offsets(self, positions: Sequence[Partition]) -> None:
        """Takes step 10: puts `positions` into the open transaction."""
        metadata = self._member.consumer_group_metadata()
        for part in chunks(positions):
            add = partial(self.producer.send_offsets_to_transaction, list(part), metadata)
            call_until_answered(add, self.limits.deadline_s, self.stopped)

    def typed(self, error: KafkaError, doing: str) -> KeyfoldError:
        """Returns the typed error for `error` of the producer; raises FencedError if a newer owner caused it."""
        if error.code() in NOT_ALLOWED:  # first, as a right on the transactional id that is gone is fatal to librdkafka
            return not_allowed(error, f"{self.bucket}: {doing}", self._right(error.code()))
        if error.code() in FENCED or (error.fatal() and error.code() not in UNFIT):
            self.check_epoch()
            return PublishInterruptedError(
                f"{self.bucket}: {doing}: its producer was shut out, by a later publish of this worker, by "
                f"transaction.timeout.ms, or by a worker of this connector name with another catalog: "
                f"{broker_text(error)}.",
                f"{AGAIN} If it goes on, look for a worker of the same connector name with another storage.location.",
            )
        return typed(error, f"{self.bucket}: {doing}", str(self._clients.producer().get("bootstrap.servers")))

    def _right(self, code: int) -> str | None:
        """Returns the right that a producer lacks if the brokers refuse with `code`, and on what."""
        outputs = ", ".join(sorted(self._outputs))
        names = {
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"transactional id {self._transactional_id}",
            KafkaError.GROUP_AUTHORIZATION_FAILED: f"group {group_id(self.bucket.connector)}",
            KafkaError.TOPIC_AUTHORIZATION_FAILED: f"output topic {outputs} and the dead letter topic",
        }
        rights = "Read and Describe" if code == KafkaError.GROUP_AUTHORIZATION_FAILED else "Write and Describe"
        return f"{rights} on {names[code]}" if code in names else None

    def abort_reason(self) -> KafkaError | None:
        """Returns why the open transaction can only be aborted; None if it need not be.

        librdkafka drops the records of such a transaction and gives the reason to the next call about it only. This
        one has no effect, as what it adds is aborted.
        """
        target = self.bucket.plan.targets[0]
        position = Partition(target.topic, target.partition, max(0, target.start))
        group = self._member.consumer_group_metadata()
        try:
            self.producer.send_offsets_to_transaction([position], group, _ABORT_S)
        except KafkaException as error:
            return cause(error)
        return None

    def abort(self) -> None:
        """Aborts the open transaction, if that takes at most _ABORT_S.

        librdkafka may wait here for requests that it will never send; the next producer with the same id, or
        the coordinator after transaction.timeout.ms, ends the transaction all the same.
        """
        try:
            self.producer.abort_transaction(_ABORT_S)
        except KafkaException:
            return  # the next producer with the same id aborts it

    def committed(self) -> None:
        """Notes that a transaction of this plan was committed: the producer had not been fenced."""
        self.kept = False

    def has_room(self, size: int) -> bool:
        """Returns whether the producer takes a record of `size` bytes; if not, the next `open` makes one that does."""
        if takes(self._clients.producer(), self._largest_record, size):
            return True
        self._largest_record = size
        return False

    def setting(self, name: str) -> Setting:
        """Returns a setting of the producer."""
        return self._clients.producer().get(name, "")

    def drop_producer(self) -> None:
        """Drops the producer: its close() would complain about a transaction that a newer one has ended."""
        self._producer, self.kept = None, False

    @property
    def _transactional_id(self) -> str:
        return transactional_id(self.bucket.connector, self.bucket.plan.bucket)

    def _largest_message(self) -> int:
        """Returns the smallest max.message.bytes of the output topics, in bytes."""
        configs = self.admin.topic_configs(self._outputs).values()
        return min((int(config["max.message.bytes"]) for config in configs), default=LARGEST_BATCH)

    def _checked_outputs(self) -> Mapping[str, TopicInfo]:
        """Returns the output topics, which must be those of the plan; only step T3 decides that one is gone."""
        names = sorted({target.output for target in self.bucket.plan.targets if target.output is not None})
        present = described(self.admin.describe, names, known=names)
        for name in names:
            ours = self.bucket.output_ids[name]
            if name not in present:
                raise UnreachableError(
                    f"{self.bucket}: no broker knows output topic {name}.",
                    "It is asked for again; if it was deleted, the next start of the connector says so.",
                )
            if present[name].id != ours:
                raise OutputError(
                    f"{self.bucket}: output topic {name} was recreated (its id was {ours}, now {present[name].id}); "
                    "what was published is gone.",
                    PUBLISH_ANEW,
                )
        return {name: replace(present[name], leaderless=0) for name in names}

    def _check_positions(self, expected: Mapping[TopicPartition, int | None]) -> None:
        group = group_id(self.bucket.connector)
        held = read_positions(self.admin, group, list(expected), self._member)
        wrong = moved(held, expected, self.bucket.plan.catalog_id)
        if wrong:
            tp = wrong[0]
            position = held[tp]
            offset = None if position is None else position.offset
            why, action = moved_by(position, self.bucket.plan.catalog_id, self.admin.members(group))
            raise PositionMovedError(
                f"{self.bucket}: group {group} holds {offset} for {tp}, planned was "
                f"{expected[tp]} ({len(wrong)} of {len(expected)} positions have moved): {why}.",
                action,
            )


def read_positions(
    admin: Admin, group: str, partitions: Sequence[TopicPartition], member: Consumer | None = None
) -> dict[TopicPartition, Position | None]:
    """Reads the position that `group` has committed for each of `partitions`, None if there is none.

    Pending transactions are waited for. `member`: a consumer of the group to ask with (`groups.member`). Raises
    UnreachableError, NotAllowedError, PositionError (metadata of a newer format).
    """
    return {tp: _position(group, tp, held) for tp, held in admin.committed(group, partitions, member=member).items()}


def moved(
    held: Mapping[TopicPartition, Position | None], expected: Mapping[TopicPartition, int | None], catalog_id: str
) -> list[TopicPartition]:
    """Returns the partitions with a position that is not the expected one: another offset, or of another catalog."""
    return [tp for tp, offset in expected.items() if not _same(held[tp], offset, catalog_id)]


def moved_by(position: Position | None, catalog_id: str, members: Sequence[str]) -> tuple[str, str]:
    """Returns why a position moved to `position`, as far as it shows, and what to do; `members` are the group's."""
    if position is None:
        return "it is gone: it expired, or somebody deleted it", AGAIN
    if position.catalog_id is None:
        named = f"; members of the group are {', '.join(members)}" if members else "; the group has no members now"
        return (
            f"somebody else committed it{named}",
            f"Stop the consumer or the Kafka Connect sink of the same name, or rename this connector. {AGAIN}",
        )
    if position.catalog_id != catalog_id:
        return (
            f"catalog {position.catalog_id} wrote it: a connector of this name with another storage.location",
            "Stop that one, or rename it.",
        )
    return "another publish of this connector committed it", AGAIN


def _same(position: Position | None, offset: int | None, catalog_id: str) -> bool:
    if position is None or offset is None:
        return position is None and offset is None
    return position.offset == offset and position.catalog_id in (None, catalog_id)


def _position(group: str, tp: TopicPartition, held: CommittedOffset | None) -> Position | None:
    if held is None:
        return None
    try:
        return decode(*held)
    except PositionError as error:
        raise PositionError(f"Group {group}, {tp}: {error.message}", error.action) from error
