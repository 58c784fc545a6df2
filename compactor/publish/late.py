"""Leaves out survivors that lose to a record of their key in another log of their topic (compaction.scope=topic).

A record counts if it lies below the end that the plan gives its log: what lies above, no reader has yet. So of a key,
a plan sends one record at most, and none if the winner was sent before. Positions move past what is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
from msgspec import Struct

from compactor.failpoints import hit
from compactor.fold.memory_budget import TOGETHER, MemoryBudget, gathered
from compactor.lookup.topic_logs import TopicLogs
from compactor.model.log import below
from compactor.model.publish_plan import PublishTarget
from compactor.model.record import TopicPartition, partition_spans
from compactor.model.state import CatalogState
from compactor.storage.base import Storage


def logs_at_ends(storage: Storage, state: CatalogState, targets: Iterable[PublishTarget]) -> TopicLogs:
    """Returns the logs of each topic that `targets` send something of, up to the ends that these give them.

    A log without a target counts up to `folded_end`, as what was planned of it before may be sent.
    """
    ends = {target.tp: target.end for target in targets}
    due = {target.topic for target in targets if target.start < target.end and target.output is not None}
    logs = {
        topic: tuple(below(log, ends.get(log.tp, log.folded_end)) for log in state.logs_of(topic))
        for topic in (sorted(due) if state.is_of_topics else ())
    }
    return TopicLogs(storage=storage, order=state.record_order, logs=logs)


class LateRecords(Struct, frozen=True):
    """Finds late records by `logs`; as many records as fit `together`, in Arrow bytes, are looked up at once."""

    logs: TopicLogs
    together: MemoryBudget = TOGETHER

    def without(self, records: Iterator[pa.RecordBatch], late: Counter[TopicPartition]) -> Iterator[pa.RecordBatch]:
        """Yields `records` (record.RUN, by partition and offset) without those that are late; adds them to `late`.

        Raises StorageError, DamagedFileError.
        """
        if not self.logs.logs:
            yield from records
            return
        for batches in gathered(records, self.together):
            rows = pa.concat_batches(batches)
            stays = np.ones(rows.num_rows, np.bool_)
            for tp, start, end in partition_spans(rows):
                of_span = self.logs.are_late(tp, rows.slice(start, end - start))
                stays[start:end] = ~of_span
                late[tp] += int(of_span.sum())
            hit("publish.late")
            kept = rows if stays.all() else rows.filter(pa.array(stays))
            if kept.num_rows:
                yield kept
