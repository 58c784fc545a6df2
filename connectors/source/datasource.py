"""Gives Spark the source as a Python Data Source, `keyfold`, for streams.

    spark.dataSource.register(KafkaSource)
    spark.readStream.format("keyfold").options(**{"consumer.config": …, "admin.config": …, "topics": …}).load()

Spark makes these objects anew in planner and worker processes, so they hold nothing but the options, and
everything that is not text is made when first used; only the planner, which lives as long as its query, counts its
micro-batches. Errors leave tagged for `errors.unwrap` of compactor/spark.

What plans and what reads is imported where it is first used: most of the processes that a worker's start waits for
do neither.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from compactor.failpoints import hit
from compactor.ingest.ingest import WRITTEN, Intake, write_level0
from compactor.model.record import SOURCE, ddl
from compactor.spark.errors import tagging
from connectors.clock import SystemClock
from connectors.source import plan
from connectors.source.offsets import decode, encode
from connectors.source.options import SourceOptions, parse
from connectors.source.plan import ReadSplit

if TYPE_CHECKING:
    from connectors.source.planner import Planner

NAME = "keyfold"


class SplitPartition(InputPartition):
    """One task's split of a micro-batch; `intake` says how its records are written, None yields them to Spark."""

    def __init__(self, split: ReadSplit, intake: Intake | None) -> None:
        super().__init__(split)
        self.split = split
        self.intake = intake


class KafkaSource(DataSource):
    """Kafka topics; the options are those of options.py."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with tagging():
            self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """Returns what `format(…)` is given."""
        return NAME

    def schema(self) -> str:
        """Returns `SOURCE` of compactor/model/record.py, with `intake` `WRITTEN` of compactor/ingest/ingest.py."""
        return ddl(SOURCE if self._parsed.intake is None else WRITTEN)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's
        """Returns the reader of micro-batches; it begins at the option `starts`, other topics at their log starts."""
        return StreamReader(self._parsed)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans and reads micro-batches of `max.offsets.per.trigger` offsets; offsets.py has the form of a position."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._batches = 0

    @cached_property
    def _planner(self) -> Planner:
        from connectors.kafka.admin import Admin
        from connectors.logging_setup import configure_as_parent
        from connectors.source.planner import Planner
        from connectors.source.source_topics import AdminTopics

        configure_as_parent()
        admin = Admin(self._options.clients.admin(), self._options.timeouts.request)
        return Planner(self._options, AdminTopics(self._options.connector, admin))

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns where a query without checkpoint begins."""
        with tagging():
            return encode(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Returns `max.offsets.per.trigger`, counted in offsets: records may be fewer."""
        limit = self._options.limits.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns where the next batch ends; `start` itself where there is nothing new."""
        with tagging():
            known = decode(start)
            end = self._planner.latest(known, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            if end is known:
                return start
            hit("source.plan")
            return encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """Returns the last known ends, whatever the limit; for the query's progress."""
        return None if self._planner.ends is None else encode(self._planner.ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Pins the stream's end to the present last stable offsets."""
        with tagging():
            self._planner.pin()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plans one micro-batch from its two positions alone."""
        with tagging():
            found = plan.ranges(self._options.connector, decode(start), decode(end))
            self._batches += 1
            intake = self._options.intake
            if intake is not None:
                intake = intake.of_batch(self._batches, SystemClock().now_ms())
            return [SplitPartition(split, intake) for split in plan.splits(found, self._options.limits.tasks_max)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one split; raises as reader.read does, with `intake` also StorageError."""
        from connectors.logging_setup import configure_as_parent
        from connectors.source.reader import read

        configure_as_parent()
        assert isinstance(partition, SplitPartition)
        with tagging():
            records = read(partition.split, self._options)
            yield from records if partition.intake is None else write_level0(records, partition.intake)
