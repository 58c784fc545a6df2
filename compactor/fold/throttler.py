"""Holds folds to `fold.io.max.bytes.per.second` (Kafka's `log.cleaner.io.max.bytes.per.second`, by connector).

Every task of a fold gets the same share of the limit and waits for what it has read or written. How long reading
and writing took by themselves is not taken off, so the limit is a bound from above.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from compactor.model import record
from compactor.runs.scan import SCAN
from compactor.spark.errors import KEY, tagging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Throttler(Struct, frozen=True):
    """What one task may read or write, in bytes per second; None: as fast as it can."""

    bytes_per_second: float | None = None

    @classmethod
    def shared(cls, limit: int | None, tasks: int) -> Throttler:
        """Returns the share of `limit`, in bytes per second, of each of `tasks` that run at once."""
        return cls() if limit is None else cls(limit / max(1, tasks))

    def wait(self, size: int) -> None:
        """Waits for as long as `size` bytes take at this rate."""
        if self.bytes_per_second is not None:
            time.sleep(size / self.bytes_per_second)

    def throttled(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields `batches`, each after the time that its records' bytes (`record.measure`) take at this rate."""
        for batch in batches:
            if self.bytes_per_second is not None:
                self.wait(record.measure(batch))
            yield batch

    def on_spark(self, frame: DataFrame) -> DataFrame:
        """Returns `frame` (SCAN columns), read at this rate; `frame` itself if there is no limit."""
        if self.bytes_per_second is None:
            return frame

        key = KEY

        def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            with tagging(key):
                yield from self.throttled(batches)

        return frame.mapInArrow(task, record.ddl(SCAN))
