"""Publishes folded records, from publish tasks and from the driver: steps 6 to 11 of docs/protocol.md.

 6  fence      a new producer fences every older one of its bucket, unless one is kept (LocalPublisher); the plan's
               epoch is still the newest
 7  positions  the group holds exactly what was planned from
 8  begin      a transaction
 9  send       survivors to the same partition of the output, dead letters to their topic, by offset; flush
10  positions  into the transaction, with what it takes to go on from them
11  commit
8 to 11 again while there is more: a transaction holds so many bytes and lasts so long at most.

In the worker's own process there is one producer of a bucket at most, so none that is kept can fence another; a new one
takes longer than a transaction. Spark's publish tasks fence the kept ones, which are dropped before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa
from msgspec import Struct
from structlog.contextvars import bound_contextvars

from compactor.errors import KeyfoldError, PublishInterruptedError
from compactor.model.publish_plan import PublishPlan, PublishResult
from compactor.storage.base import Storage
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import UnreachableError
from connectors.kafka.client_settings import ClientSettings
from connectors.kafka.producers import QUEUE_BYTES
from connectors.kafka.retry import Retry
from connectors.sinks.batching import PartitionBatch, partition_batches, transactions
from connectors.sinks.producer_session import Bucket, ProducerSession, QueryClients
from connectors.sinks.publish_progress import PublishProgress
from connectors.sinks.refused_records import ErrorTolerance, explained, send_all
from connectors.sinks.settings import TransactionLimits, WriteRules
from connectors.sinks.transaction import Refused, Transaction

if TYPE_CHECKING:
    from compactor.model.state import CatalogState
    from connectors.config.connector import ConnectorConfig

KEPT_MS: Final = 60_000
"""A producer that was not used for so long is not kept: the brokers may have moved since, and its threads cost."""

T = TypeVar("T")


class ChangelogPublisher(Struct, frozen=True, kw_only=True):
    """Publishes the plans of one connector, each in its bucket's own transactions; pickled into every task.

    `storage` is the connector's folder, asked for the newest epoch. `output_ids`: the
    topic id of every output topic by its name.
    """

    connector: str
    clients: ClientSettings
    storage: Storage
    output_ids: Mapping[str, str]
    rules: WriteRules = WriteRules()
    limits: TransactionLimits = TransactionLimits()

    @classmethod
    def of(
        cls, connector: ConnectorConfig, clients: ClientSettings, storage: Storage, state: CatalogState
    ) -> ChangelogPublisher:
        """Makes the publisher of `connector`, to the output topics that the catalog knows."""
        return cls(
            connector=connector.name,
            clients=clients,
            storage=storage,
            output_ids={
                topic.output: topic.output_id for topic in state.topics.values() if topic.output and topic.output_id
            },
            rules=WriteRules(
                source_headers=connector.output_source_headers_enable,
                tolerate=connector.errors_tolerance == "all",
                dead_letters=connector.dead_letter_topic,
                context_headers=connector.dead_letter_context_headers,
                log_errors=connector.errors_log_enable,
                log_messages=connector.errors_log_include_messages,
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
        with closing(QueryClients(self.connector, self.clients)) as queries:
            return self.send(self.session(plan, queries), plan, records)

    def session(
        self, plan: PublishPlan, queries: QueryClients, stopped: Callable[[], bool] = lambda: False
    ) -> ProducerSession:
        """Makes a session for a plan, not open yet."""
        return ProducerSession(self._bucket(plan), self.clients, self.limits, queries, stopped)

    def send(
        self, session: ProducerSession, plan: PublishPlan, records: Iterator[pa.RecordBatch]
    ) -> Sequence[PublishResult]:
        """Publishes as `publish` does, with a session of the plan's bucket that may have been open before."""
        progress = PublishProgress(plan, self.output_ids)
        steps = _PlanTransactions(self, session, progress)
        where = bound_contextvars(connector=self.connector, task=plan.bucket)  # as operators of Kafka Connect grep for
        with where, _counting_aborted(progress):
            steps.begin(self._bucket(plan))
            batches = partition_batches(records, progress.partitions, self.limits)
            for group in transactions(batches, self.limits.transaction_bytes):
                send_all(group, steps.send, steps.single, steps.reopen)
        return progress.sent()

    def _bucket(self, plan: PublishPlan) -> Bucket:
        return Bucket(connector=self.connector, plan=plan, storage=self.storage, output_ids=self.output_ids)


@contextmanager
def _counting_aborted(progress: PublishProgress) -> Iterator[None]:
    """Notes on an error of the block how many transactions it leaves aborted: nothing else tells the driver."""
    try:
        yield
    except KeyfoldError as error:
        error.aborted = progress.aborted
        raise


class _PlanTransactions:
    """Sends the transactions of one plan, in one session."""

    def __init__(self, publisher: ChangelogPublisher, session: ProducerSession, progress: PublishProgress) -> None:
        self._session = session
        self._progress = progress
        self._transaction = Transaction(session, progress, publisher.rules)
        self._tolerance = ErrorTolerance(publisher.connector, publisher.rules, self._transaction.refused)
        self._retry = publisher.limits.retry

    def begin(self, bucket: Bucket) -> None:
        """Takes steps 6 and 7 for the plan of `bucket`."""
        self._again(lambda: self._session.go_on(bucket, self._progress.expected), "steps 6 and 7")

    def reopen(self) -> None:
        """Takes steps 6 and 7 again, with a new producer."""
        self._again(lambda: self._session.open(self._progress.expected), "steps 6 and 7")

    def single(self, batch: PartitionBatch, refusal: Refused) -> None:
        """See `send_all`."""
        self._tolerance.let_go(batch, refusal, self._progress.output(batch.tp))

    def send(self, group: Sequence[PartitionBatch]) -> int:
        """Sends one transaction with a producer that has room in its queue for the largest record; see `send_all`."""
        if not self._session.has_room(max(batch.largest(QUEUE_BYTES) for batch in group)):
            self.reopen()
        try:
            return self._sent(group)
        except UnreachableError as error:
            raise explained(error, group) from error

    def _sent(self, group: Sequence[PartitionBatch]) -> int:
        """Sends `group` in one transaction; in another one if no broker answered before its commit (errors.retry.*).

        Before another try steps 6 and 7 abort the failed transaction and prove that nothing of it took effect. The same
        follows if a kept producer turns out to be fenced, or forgotten by the brokers.
        """
        session, tried = self._session, False

        def once() -> int:
            nonlocal tried
            if tried:
                session.open(self._progress.expected)
            tried = True
            return self._transaction.send(group)

        try:
            return self._again(once, "a transaction")
        except (PublishInterruptedError, UnreachableError):  # neither comes once a commit may have taken effect
            if not session.kept or session.stopped():
                raise
            return self._again(once, "a transaction")

    def _again(self, steps: Callable[[], T], what: str) -> T:
        return self._retry.run(steps, f"{self._session.bucket}: {what}", stopped=self._session.stopped)


class KeptSessions:
    """Keeps the open session of each bucket, and the clients that all share, from one publish to the next.

    A publish begins and ends in the engine's turn; only `take` and `put` are called by the threads of its buckets.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        # None until the first publish, and after `close`.
        self._queries: QueryClients | None = None
        # The idle sessions by bucket: `take` removes one and `put` brings it back.
        self._open: dict[int, ProducerSession] = {}
        # When (monotonic ms) a publish last began, or a session was last put back.
        self._used_ms = self._clock.monotonic_ms()

    def begin(self, publisher: ChangelogPublisher) -> QueryClients:
        """Returns the query clients; to be called before the first bucket of a publish begins."""
        self.drop_unused()
        self._used_ms = self._clock.monotonic_ms()
        self._queries = self._queries or QueryClients(publisher.connector, publisher.clients)
        return self._queries

    def take(self, bucket: int) -> ProducerSession | None:
        """Returns the session of `bucket`, which the caller owns from now on; None if none is kept."""
        return self._open.pop(bucket, None)

    def put(self, bucket: int, session: ProducerSession) -> None:
        """Keeps a session after its last transaction was committed."""
        self._open[bucket] = session
        self._used_ms = self._clock.monotonic_ms()

    def drop_unused(self) -> None:
        """Drops all sessions if none was used for KEPT_MS, and closes the clients; no publish may be under way."""
        if self._clock.monotonic_ms() - self._used_ms > KEPT_MS:
            self.close()

    def close(self) -> None:
        """Drops all sessions and closes the clients; no publish may be under way."""
        while self._open:
            self._open.popitem()[1].drop_producer()
        if self._queries is not None:
            self._queries.close()
        self._queries = None


class LocalPublisher:
    """Publishes as `publisher` does, in the worker's own process, with the sessions that `sessions` keeps."""

    def __init__(self, publisher: ChangelogPublisher, sessions: KeptSessions, stopped: Callable[[], bool]) -> None:
        self._publisher = publisher
        self._sessions = sessions
        self._queries = sessions.begin(publisher)
        self._stopped = stopped

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """See ChangelogPublisher. A session is kept only if this raises nothing."""
        if not plan.targets:
            return ()
        session = self._sessions.take(plan.bucket) or self._publisher.session(plan, self._queries, self._stopped)
        try:
            sent = self._publisher.send(session, plan, records)
        except BaseException:
            session.drop_producer()
            raise
        self._sessions.put(plan.bucket, session)
        return sent
