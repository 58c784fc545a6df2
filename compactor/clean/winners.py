"""What a clean keeps of a topic with one winner a key over its partitions (compaction.scope=topic).

All its logs are cleaned in one commit, and only while no fold of the topic is sent in part. A record goes if it loses
to one of another log below `published`: of a tombstone that is dropped later, nothing in another log may be left that
it has beaten. For the same reason a tombstone stays while any log has a record of its key that waits to be published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from compactor.clean import tombstones
from compactor.errors import LookUpError
from compactor.fold.latest_per_key import is_foldable
from compactor.lookup.latest import FOUND_BY, VERIFIED, LookUpRoom, latest_records
from compactor.lookup.topic_logs import HELD_BYTES, NOWHERE, TopicLogs
from compactor.model.log import PartitionLog, below, upper
from compactor.model.record import as_compared, by_topic, partition_spans
from compactor.model.state import CatalogState
from compactor.runs.reader import read
from compactor.runs.scan import between
from compactor.storage.base import Storage

_MANY: Final = 500_000
"""Keys that are looked up at a time; of usual keys some 20 MB."""


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


def revives(storage: Storage, planned: Sequence[PartitionLog], now: Iterable[PartitionLog], now_ms: int) -> bool:
    """Returns whether a clean of the logs `planned` would let a record win that has come since, as they are `now`.

    The clean drops tombstones that are past their horizon. A record that has come since may have lost to one, and was
    passed over: without it the record would be in snapshots, and in no output.
    """
    due = [log for log in planned if tombstones.passed(log.base, now_ms)]
    ends = {log.tp: log.end for log in planned}
    came = (between(log, ends.get(log.tp, log.start), log.end) for log in now if due)
    records = (rows for offsets in came for rows in read(storage, offsets, (*FOUND_BY, "rejected")))
    keys = (as_compared(rows.filter(is_foldable(rows)))["key"] for rows in records)
    return any(_has_due(storage, log, some, now_ms) for some in _together(keys) for log in due)


def _together(keys: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yields distinct keys, many at a time: without an index each look-up reads all keys of a log."""
    held: list[pa.Array] = []
    for some in keys:
        held.append(some)
        if sum(map(len, held)) >= _MANY:
            yield pc.unique(pa.concat_arrays(held))
            held.clear()
    if held:
        yield pc.unique(pa.concat_arrays(held))


def _has_due(storage: Storage, log: PartitionLog, keys: pa.Array, now_ms: int) -> bool:
    """Returns whether the last record of any of `keys` that is published is a tombstone past its horizon."""
    room = LookUpRoom(HELD_BYTES if len(keys) > 1 else None)
    try:
        kept = latest_records(storage, below(log, log.published), keys, VERIFIED, room, (*FOUND_BY, "delete_horizon"))
    except LookUpError:
        middle = len(keys) // 2
        return any(_has_due(storage, log, some, now_ms) for some in (keys[:middle], keys[middle:]))
    return bool(pc.any(pc.less_equal(kept["delete_horizon"], now_ms)).as_py())


def is_settled(logs: Iterable[PartitionLog]) -> bool:
    """Returns whether no fold of `logs` is planned or sent in part: of each all that was begun is published."""
    return all(log.published == log.folded_end for log in logs)


def whole_topics(state: CatalogState, logs: Sequence[PartitionLog]) -> list[PartitionLog]:
    """Returns the logs of all topics of `logs`, which are to be cleaned as a whole, if a topic is settled."""
    named = dict.fromkeys(log.topic for log in logs)
    return [log for topic in named if is_settled(own := state.logs_of(topic)) for log in own]
