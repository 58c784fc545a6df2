"""What one connector's engine has done since it was started, for `describe` and the line a minute."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compactor.ingest.micro_batch import Batch
    from compactor.model.publish_plan import PublishResult


class Counters:
    """Counts that only grow; records and bytes, never times. Threads may share it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._counts: dict[str, int] = dict.fromkeys(
            (
                "batches",
                "offsets_read",
                "records_read",
                "bytes_read",
                "records_rejected",
                "future_timestamps",
                "clock_steps_back",
                "offsets_lost",
                "records_published",
                "bytes_published",
                "dead_letters",
                "records_refused",
                "transactions",
                "full_folds",
                "merges",
                "retentions",
                "snapshots",
            ),
            0,
        )

    def ingested(self, batch: Batch) -> None:
        """Counts a micro-batch that is in the catalog."""
        self.add("batches", 1)
        self.add("offsets_read", sum(read.hi - read.lo for read in batch.ranges))
        self.add("records_read", sum(read.records for read in batch.ranges))
        self.add("bytes_read", batch.bytes_read)
        self.add("records_rejected", sum(part.rejected for part in batch.parts))
        self.add("future_timestamps", sum(part.future for part in batch.parts))
        self.add("offsets_lost", sum(read.start - read.lo for read in batch.ranges))

    def published(self, sent: Iterable[PublishResult]) -> None:
        """Counts folds that are sent completely."""
        found = tuple(sent)
        self.add("records_published", sum(one.records for one in found))
        self.add("bytes_published", sum(one.bytes for one in found))
        self.add("dead_letters", sum(one.dead_letters for one in found))
        self.add("records_refused", sum(one.refused for one in found))
        self.add("transactions", sum(one.transactions for one in found))

    def add(self, name: str, by: int) -> None:
        """Counts `by` more of `name`."""
        with self._turn:
            self._counts[name] += by

    def values(self) -> Mapping[str, int]:
        """A copy of all counts."""
        return dict(self._counts)
