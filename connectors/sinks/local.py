"""Publishing from the worker's own process, which keeps its producers: a new one takes longer than a transaction.

Here there is one producer of a bucket at most, so none that is kept can shut out another. Spark's publish tasks shut
these out: they are given up before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from compactor.publish import BucketPlan, Sent
from connectors.sinks.changelog import ChangelogPublisher
from connectors.sinks.session import Session


class Sessions:
    """The open session of each bucket, from one publish of this process to the next."""

    def __init__(self) -> None:
        self._open: dict[int, Session] = {}

    def take(self, bucket: int) -> Session | None:
        """That of `bucket`, which belongs to the caller now."""
        return self._open.pop(bucket, None)

    def put(self, bucket: int, session: Session) -> None:
        """Keeps a session whose last transaction was committed."""
        self._open[bucket] = session

    def close(self) -> None:
        """Gives all of them up."""
        while self._open:
            self._open.popitem()[1].close()


class LocalPublisher:
    """Publishes as `publisher` does, with the sessions that are kept in `sessions`."""

    def __init__(self, publisher: ChangelogPublisher, sessions: Sessions, broken_off: Callable[[], bool]) -> None:
        self._publisher = publisher
        self._sessions = sessions
        self._broken_off = broken_off

    def publish(self, plan: BucketPlan, records: Iterator[pa.RecordBatch]) -> Sequence[Sent]:
        """See ChangelogPublisher. A session that anything went wrong with is not kept."""
        if not plan.targets:
            return ()
        session = self._sessions.take(plan.bucket) or self._publisher.session(plan, self._broken_off)
        try:
            sent = self._publisher.send(session, plan, records)
        except BaseException:
            session.close()
            raise
        self._sessions.put(plan.bucket, session)
        return sent
