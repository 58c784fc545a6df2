"""Republishes folded records: the publisher of publish tasks, and of the driver (steps 6 to 11 of docs/protocol.md).

 6  fence      a new producer shuts out every older one of its bucket, unless one is kept (sinks/local.py); the plan's
               epoch is still the newest
 7  positions  the group holds exactly what was planned from
 8  begin      a transaction
 9  send       survivors to the same partition of the output, dead letters to their topic, by offset; flush
10  positions  into the transaction, with what it takes to go on from them
11  commit
8 to 11 again while there is more: a transaction holds so many bytes and lasts so long at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa
from msgspec import Struct

from compactor.errors import PublishInterruptedError
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.storage.base import Storage
from connectors.errors import UnreachableError
from connectors.kafka import producers
from connectors.kafka.producers import QUEUE_BYTES
from connectors.kafka.retry import Retry
from connectors.sinks.batching import Piece, loads, pieces
from connectors.sinks.producer_session import Bucket, ProducerSession, QueryClients
from connectors.sinks.publish_progress import PublishProgress
from connectors.sinks.refused_records import Verdicts, explained, send_all
from connectors.sinks.settings import SinkClients, TransactionLimits, WriteRules
from connectors.sinks.transaction import Refused, Transaction

if TYPE_CHECKING:
    from compactor.model.state import State
    from connectors.config.connector import ConnectorConfig
    from connectors.kafka.client_settings import ClientSettings


T = TypeVar("T")


class ChangelogPublisher(Struct, frozen=True, kw_only=True):
    """Publishes the plans of one connector, each in its bucket's own transactions; pickled into every task.

    `storage` is the connector's folder, asked for the newest epoch. `output_ids`: the
    topic id of every output topic by its name.
    """

    connector: str
    clients: SinkClients
    storage: Storage
    output_ids: Mapping[str, str]
    rules: WriteRules = WriteRules()
    limits: TransactionLimits = TransactionLimits()

    @classmethod
    def of(
        cls, connector: ConnectorConfig, clients: ClientSettings, storage: Storage, state: State
    ) -> ChangelogPublisher:
        """The publisher of `connector`, to the output topics that the catalog knows."""
        return cls(
            connector=connector.name,
            clients=SinkClients(producer=clients.producer(), admin=clients.admin()),
            storage=storage,
            output_ids=_output_ids(state),
            rules=WriteRules(
                source_headers=connector.output_source_headers_enable,
                tolerate=connector.errors_tolerance == "all",
                dead_letters=connector.dead_letter_topic,
                context_headers=connector.dead_letter_context_headers,
            ),
            limits=TransactionLimits(
                retry=Retry(connector.errors_retry_timeout_ms, connector.errors_retry_delay_max_ms)
            ),
        )

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """Sends `records`, the survivors and rejected records of the plan's ranges by (topic, partition, offset).

        Afterwards the group's position of every target is its end. Raises FencedError, PositionMovedError,
        PublishInterruptedError, OutcomeUnknownError, OutputError, NotAllowedError, RecordRefusedError,
        RejectedRecordError, UnreachableError; what was committed before that stays committed, the rest has no effect.
        """
        if not plan.targets:
            return ()
        with closing(QueryClients(self.connector, self.clients)) as asking:
            return self.send(self.session(plan, asking), plan, records)

    def session(
        self, plan: PublishPlan, asking: QueryClients, broken_off: Callable[[], bool] = lambda: False
    ) -> ProducerSession:
        """A session for a plan, not open yet."""
        return ProducerSession(self._bucket(plan), self.clients, self.limits, asking, broken_off)

    def send(
        self, session: ProducerSession, plan: PublishPlan, records: Iterator[pa.RecordBatch]
    ) -> Sequence[PublishResult]:
        """As `publish`, with a session of the plan's bucket that may have been open before."""
        ledger = PublishProgress(plan, self.output_ids)
        transactions = _Transactions(self, session, ledger)
        transactions.begin(self._bucket(plan))
        for load in loads(pieces(records, ledger.partitions, self.limits), self.limits.transaction_bytes):
            send_all(load, transactions.send, transactions.single, transactions.reopen)
        return ledger.sent()

    def _bucket(self, plan: PublishPlan) -> Bucket:
        return Bucket(connector=self.connector, plan=plan, storage=self.storage, output_ids=self.output_ids)


class _Transactions:
    """The transactions of one plan, in one session."""

    def __init__(self, publisher: ChangelogPublisher, session: ProducerSession, ledger: PublishProgress) -> None:
        self._session = session
        self._ledger = ledger
        self._transaction = Transaction(session, ledger, publisher.rules)
        self._verdicts = Verdicts(publisher.connector, publisher.rules, self._transaction.refused)
        self._retry = publisher.limits.retry

    def begin(self, bucket: Bucket) -> None:
        """Steps 6 and 7 of the plan of `bucket`."""
        self._again(lambda: self._session.go_on(bucket, self._ledger.expected), "steps 6 and 7")

    def reopen(self) -> None:
        """Steps 6 and 7 again, with a new producer."""
        self._again(lambda: self._session.open(self._ledger.expected), "steps 6 and 7")

    def single(self, piece: Piece, refusal: Refused) -> None:
        """See `send_all`."""
        self._verdicts.take(piece, refusal, self._ledger.output(piece.tp))

    def send(self, group: Sequence[Piece]) -> int:
        """One transaction, with a producer whose queue has room for the largest record of `group`."""
        if not self._session.has_room(max(piece.largest(QUEUE_BYTES) for piece in group)):
            self.reopen()
        try:
            return self._sent(group)
        except UnreachableError as error:
            raise explained(error, group) from error

    def _sent(self, group: Sequence[Piece]) -> int:
        """Sends `group` in one transaction; in another one where no broker answered before its commit (errors.retry.*).

        Steps 6 and 7 come first: they abort what is left of it, and prove that nothing of it took effect. So they
        do where a kept producer turns out to be shut out, or forgotten by the brokers.
        """
        session, broken = self._session, False

        def once() -> int:
            nonlocal broken
            if broken:
                session.open(self._ledger.expected)
            broken = True
            return self._transaction.send(group)

        try:
            return self._again(once, "a transaction")
        except (PublishInterruptedError, UnreachableError):  # neither comes once a commit may have taken effect
            if not session.kept or session.broken_off():
                raise
            return self._again(once, "a transaction")

    def _again(self, steps: Callable[[], T], what: str) -> T:
        return self._retry.run(steps, f"{self._session.bucket}: {what}", stopped=self._session.broken_off)


def _output_ids(state: State) -> dict[str, str]:
    return {topic.output: topic.output_id for topic in state.topics.values() if topic.output and topic.output_id}


def fence_all(clients: ClientSettings, ids: Iterable[str]) -> None:
    """Step T2 of a take-over: shuts out every producer with one of the transactional `ids`."""
    producers.fence_all(clients.producer(), ids)
