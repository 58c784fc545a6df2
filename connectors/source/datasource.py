"""The source as Spark sees it: the Python Data Source `keyfold`, for batches and for streams.

    spark.dataSource.register(KafkaSource)
    spark.readStream.format("keyfold").options(**{"consumer.config": …, "topics": …}).load()

Spark makes these objects anew in planner and worker processes, so they hold nothing but the options, and
everything that is not text is made when first used; only how many micro-batches were planned is counted, by the one
planner that lives as long as its query. Errors leave tagged for `faults.unwrap`.

What plans and what reads is imported where it is first used: most of the processes that a worker's start waits for
do neither.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from compactor.failpoints import hit
from compactor.ingest.ingest import WRITTEN, Intake, write_level0
from compactor.model.record import RECORDS, SOURCE, ddl
from compactor.spark.errors import tagging
from connectors.clock import SystemClock
from connectors.source import plan
from connectors.source.offsets import decode, encode
from connectors.source.options import SourceOptions, parse
from connectors.source.plan import Bundle

if TYPE_CHECKING:
    from connectors.source.planner import Planner

NAME = "keyfold"


class BundlePartition(InputPartition):
    """One task's share of a batch, and how it is taken in; None: its records are yielded."""

    def __init__(self, bundle: Bundle, intake: Intake | None) -> None:
        super().__init__(bundle)
        self.bundle = bundle
        self.intake = intake


class KafkaSource(DataSource):
    """Kafka topics; the options are those of options.py."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with tagging():
            self._parsed = parse(options)

    @classmethod
    def name(cls) -> str:
        """What `format(…)` is given."""
        return NAME

    def schema(self) -> str:
        """`RECORDS` of compactor/model/record.py, with `ranges` its `SOURCE`; with `intake` `WRITTEN` of ingest.py."""
        reading = self._parsed.reading
        if reading.intake is not None:
            return ddl(WRITTEN)
        return ddl(SOURCE if reading.ranges else RECORDS)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's signature
        """Everything from the starts, or the log starts, to the last stable offsets at planning."""
        return BatchReader(self._parsed)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's
        """Micro-batches from the starts, or the log starts, on."""
        return StreamReader(self._parsed)


class _Reading:
    """What both readers do alike."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._batches = 0

    def planner(self) -> Planner:
        from confluent_kafka.admin import AdminClient

        from connectors.logging_setup import configure_as_parent
        from connectors.source.cluster import KafkaCluster
        from connectors.source.planner import Planner

        configure_as_parent()
        admin = AdminClient(self.options.clients.admin_settings())
        return Planner(self.options, KafkaCluster(self.options.connector, admin, self.options.patience.timeout))

    def bundles(self, found: list[plan.Range]) -> list[BundlePartition]:
        self._batches += 1
        intake = self.options.reading.intake
        if intake is not None:
            intake = intake.of_batch(self._batches, SystemClock().now_ms())
        return [BundlePartition(bundle, intake) for bundle in plan.bundles(found, self.options.limits.tasks_max)]

    def batches(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from connectors.logging_setup import configure_as_parent
        from connectors.source.reader import read

        configure_as_parent()
        # Spark asks for one empty partition where a batch reader planned none.
        if isinstance(partition, BundlePartition):
            with tagging():
                records = read(partition.bundle, self.options)
                yield from records if partition.intake is None else write_level0(records, partition.intake)


class BatchReader(DataSourceReader):
    """One bounded read."""

    def __init__(self, options: SourceOptions) -> None:
        self._reading = _Reading(options)

    def partitions(self) -> list[InputPartition]:
        """Plans the read; raises as Planner does."""
        with tagging():
            planner = self._reading.planner()
            planner.pin()
            start = planner.initial()
            end = planner.latest(start, None)
            return list(self._reading.bundles(plan.ranges(self._reading.options.connector, start, end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one bundle; raises as reader.read does, with `intake` also StorageError."""
        return self._reading.batches(partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches with admission by `max.offsets.per.trigger`; offsets.py has the form of a position."""

    def __init__(self, options: SourceOptions) -> None:
        self._reading = _Reading(options)

    @cached_property
    def _planner(self) -> Planner:
        return self._reading.planner()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where a query without checkpoint begins."""
        with tagging():
            return encode(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """`max.offsets.per.trigger`, counted in offsets: records may be fewer."""
        limit = self._reading.options.limits.max_offsets
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Where the next batch ends; `start` itself where there is nothing new."""
        with tagging():
            known = decode(start)
            end = self._planner.latest(known, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            if end is known:
                return start
            hit("source.plan")
            return encode(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  # Spark's name
        """The ends as last asked for, whatever the limit; for the query's progress."""
        return None if self._planner.ends is None else encode(self._planner.ends)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """From now on the stream ends at the last stable offsets of this moment."""
        with tagging():
            self._planner.pin()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Plans one micro-batch from its two positions alone."""
        with tagging():
            found = plan.ranges(self._reading.options.connector, decode(start), decode(end))
            return list(self._reading.bundles(found))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Reads one bundle; raises as reader.read does, with `intake` also StorageError."""
        return self._reading.batches(partition)
