"""Publishing from the worker's own process, which keeps its producers: a new one takes longer than a transaction.

Here there is one producer of a bucket at most, so none that is kept can shut out another. Spark's publish tasks shut
these out: they are given up before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from compactor.model.publish_plan import PublishPlan, PublishResult
from connectors.sinks.producer_session import ProducerSession, QueryClients
from connectors.sinks.publisher import ChangelogPublisher

KEPT_S: Final = 60.0
"""What nobody has published with for so long is not kept: the brokers may have moved since."""


class Sessions:
    """The open session of each bucket, and the clients that all share, from one publish to the next.

    A publish begins and ends in the engine's turn; only taking and putting happens in the threads of its buckets.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asking: QueryClients | None = None
        self._open: dict[int, ProducerSession] = {}
        self._used = clock()

    def begin(self, publisher: ChangelogPublisher) -> QueryClients:
        """The clients to ask with; before the first of a publish's buckets begins."""
        if self._clock() - self._used > KEPT_S:
            self.close()
        self._used = self._clock()
        self._asking = self._asking or QueryClients(publisher.connector, publisher.clients)
        return self._asking

    def take(self, bucket: int) -> ProducerSession | None:
        """That of `bucket`, which belongs to the caller now."""
        return self._open.pop(bucket, None)

    def put(self, bucket: int, session: ProducerSession) -> None:
        """Keeps a session whose last transaction was committed."""
        self._open[bucket] = session
        self._used = self._clock()

    def close(self) -> None:
        """Gives everything up; nobody publishes meanwhile."""
        while self._open:
            self._open.popitem()[1].give_up()
        if self._asking is not None:
            self._asking.close()
        self._asking = None


class LocalPublisher:
    """Publishes as `publisher` does, with what is kept in `sessions`."""

    def __init__(self, publisher: ChangelogPublisher, sessions: Sessions, broken_off: Callable[[], bool]) -> None:
        self._publisher = publisher
        self._sessions = sessions
        self._asking = sessions.begin(publisher)
        self._broken_off = broken_off

    def publish(self, plan: PublishPlan, records: Iterator[pa.RecordBatch]) -> Sequence[PublishResult]:
        """See ChangelogPublisher. A session that anything went wrong with is not kept."""
        if not plan.targets:
            return ()
        session = self._sessions.take(plan.bucket) or self._publisher.session(plan, self._asking, self._broken_off)
        try:
            sent = self._publisher.send(session, plan, records)
        except BaseException:
            session.give_up()
            raise
        self._sessions.put(plan.bucket, session)
        return sent
