"""The runs that give the archives of cds_archive.py their classes: a worker's without a broker, and a broker's alone.

    python -m connectors.dev.cds_training spark|kafka ARCHIVE

Only kinds of work matter, not amounts: a Python source read by a stream, tasks in Python that write files, and a fold
of them in the way of compactor/fold/on_spark.py.
"""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from compactor.model.record import RUN, SOURCE, ddl
from connectors.jvm.cds_archive import KAFKA
from connectors.spark import private, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]

# Records of each partition: kinds of work decide which classes are loaded, not amounts.
_RECORDS: Final = 20
_HEADERS: Final = [{"key": "h", "value": b"v"}]
# How long (s) the stream, or the end of the JVM, which writes the archive, may take.
_WAIT_S: Final = 120


class TrainingSource(DataSource):
    """Two partitions of a topic that does not exist."""

    @classmethod
    def name(cls) -> str:
        """Returns what `format(…)` is given."""
        return "training"

    def schema(self) -> str:
        """Returns the schema of records: all types that the connectors' source and files have."""
        return ddl(SOURCE)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802  # Spark's signature
        """Returns a stream with one micro-batch."""
        return TrainingReader()


class TrainingReader(DataSourceStreamReader):
    """Gives every record once."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Returns the position before the records."""
        return {"end": 0}

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802  # Spark's
        """Returns the position after them."""
        return {"end": _RECORDS}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:  # noqa: ARG002  # Spark's
        """Plans one task for each partition of the topic."""
        return [InputPartition(number) for number in range(2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yields its records: a few keys, some without a value."""
        yield pa.RecordBatch.from_pylist([_record(partition.value, at) for at in range(_RECORDS)], schema=SOURCE)


def _record(partition: int, offset: int) -> dict[str, Any]:
    value = b"v" if offset % 3 else None
    at = {"topic": "t", "partition": partition, "offset": offset, "timestamp": offset, "timestamp_type": 0}
    return {**at, "key": str(offset % 7).encode(), "value": value, "headers": _HEADERS}


def fold_once(spark: SparkSession, folder: Path) -> None:
    """Runs one stream to its end, in `folder`."""
    spark.dataSource.register(TrainingSource)
    frame = spark.readStream.format("training").load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: _take(spark, batch, folder))
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(_WAIT_S)


def _take(spark: SparkSession, batch: DataFrame, folder: Path) -> None:
    paths = [row.path for row in batch.mapInArrow(_writing(folder), "path string").collect()]
    _fold(spark, paths[:1])
    _fold(spark, paths)


def _writing(folder: Path) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def task(batches: Batches) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(list(batches), SOURCE)
        for field in RUN:
            if field.name not in SOURCE.names:
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        path = folder / f"{table['partition'][0]}.parquet"
        pq.write_table(table.select(RUN.names).cast(RUN), path, compression="zstd")
        yield pa.RecordBatch.from_pylist([{"path": str(path)}])

    return task


def _fold(spark: SparkSession, paths: list[str]) -> None:
    from pyspark.sql.functions import broadcast, col, expr, lit, when
    from pyspark.sql.functions import max as greatest

    table = spark.createDataFrame(pa.table({"topic": ["t"], "log": pa.array([0], pa.int32())}))
    rows = spark.read.schema(ddl(RUN)).parquet(*paths).where((col("topic") == "t") & (col("offset") >= 1))
    named = rows.withColumn("log", when(col("partition") == 0, 1).otherwise(lit(0)).cast("int"))
    joined = rows.withColumn("file", col("_metadata.file_name")).join(broadcast(table), ["topic"])
    both = named.unionAll(joined.select(*named.columns))
    alone = when(col("rejected").isNotNull(), col("offset"))
    last = both.groupBy("log", "key", alone.alias("alone")).agg(greatest("offset").alias("offset"))
    kept = both.join(last.select("log", "offset").hint("merge"), ["log", "offset"], "left_semi")
    placed = kept.withColumn("bucket", expr("cast(array(0, 1)[log] as int)")).repartitionById(2, "bucket")
    placed.sortWithinPartitions("log", "offset").mapInArrow(_count, "records bigint").collect()


def _count(batches: Batches) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pylist([{"records": sum(batch.num_rows for batch in batches)}])


def train_spark(option: str) -> None:
    """Runs a JVM of Spark with `option` to its end: that is when it writes its archive."""
    options = f"{session.DEFAULTS[session.JAVA_OPTIONS]} {shlex.quote(option)}"
    spark = session.get_session("local[2]", {session.JAVA_OPTIONS: options, "spark.sql.shuffle.partitions": "2"})
    process = private.jvm_process(spark)
    if process is None or process.stdin is None:
        sys.exit("PySpark does not show the JVM's process, which has to end to write its archive")
    with tempfile.TemporaryDirectory() as folder:
        fold_once(spark, Path(folder))
    spark.stop()
    process.stdin.close()  # which ends a JVM of PySpark's
    if process.wait(_WAIT_S) != 0:
        sys.exit("the JVM did not end well")


def train_kafka(option: str) -> None:
    """Starts and stops a broker with `option`."""
    from connectors.dev.embedded_kafka import EmbeddedKafka

    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka(Path(folder), java_options=[option]):
        pass


if __name__ == "__main__":
    train = train_kafka if sys.argv[1] == KAFKA else train_spark
    train(f"-XX:ArchiveClassesAtExit={sys.argv[2]}")
