"""What a clean keeps of a topic with one winner a key over its partitions (compaction.scope=topic).

All its logs are cleaned in one commit, and only while no fold of the topic is sent in part. A record goes if it loses
to one of another log below `published`: of a tombstone that is dropped later, nothing in another log may be left that
it has beaten. For the same reason a tombstone stays while any log has a record of its key that waits to be published.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.lookup.topic_logs import NOWHERE, TopicLogs
from compactor.model.log import PartitionLog, below, upper
from compactor.model.record import as_compared, by_topic, partition_spans
from compactor.model.state import CatalogState
from compactor.storage.base import Storage


class Winners(Struct, frozen=True):
    """Tells records that lose, by the logs below `published`, and keys of which a record waits above."""

    published: TopicLogs
    waiting: TopicLogs

    @classmethod
    def of(cls, storage: Storage, order: str, logs: Iterable[PartitionLog]) -> Winners:
        """Returns those of `logs`, all logs of some topics, as they are now."""
        topics = by_topic(logs)
        published = {topic: tuple(below(log, log.published) for log in own) for topic, own in topics.items()}
        waiting = {topic: tuple(map(_waiting, own)) for topic, own in topics.items()}
        return cls(
            TopicLogs(storage=storage, order=order, logs=published),
            TopicLogs(storage=storage, order=order, logs=waiting),
        )

    def are_late(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Returns which of `rows`, survivors of their logs, lose to a record of another log."""
        late = np.zeros(rows.num_rows, np.bool_)
        for tp, start, end in partition_spans(rows):
            late[start:end] = self.published.are_late(tp, rows.slice(start, end - start))
        return late

    def are_awaited(self, rows: pa.RecordBatch) -> NDArray[np.bool_]:
        """Returns of which of `rows` any log of the topic has a record of the same key that is not published yet."""
        awaited = np.zeros(rows.num_rows, np.bool_)
        for tp, start, end in partition_spans(rows):
            keys = as_compared(rows.slice(start, end - start))["key"]
            awaited[start:end] = self.waiting.best(tp.topic, keys).log != NOWHERE
        return awaited


def _waiting(log: PartitionLog) -> PartitionLog:
    """Returns `log` with nothing but what it keeps of the offsets from `published` on."""
    runs = tuple(upper(run, log.published) for run in log.runs if run.end > log.published)
    return replace(log, base=None, runs=runs)


def is_settled(logs: Iterable[PartitionLog]) -> bool:
    """Returns whether no fold of `logs` is planned or sent in part: of each all that was begun is published."""
    return all(log.published == log.folded_end for log in logs)


def whole_topics(state: CatalogState, logs: Sequence[PartitionLog]) -> list[PartitionLog]:
    """Returns the logs of all topics of `logs`, which are to be cleaned as a whole, if a topic is settled."""
    named = dict.fromkeys(log.topic for log in logs)
    return [log for topic in named if is_settled(own := state.logs_of(topic)) for log in own]
