"""Starts the streaming query of a worker: the source in, every micro-batch out to a function; and gives it a folder."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from compactor.ingest.ingest import WRITTEN
from compactor.model.record import ddl
from connectors.source.datasource import NAME, Address, KafkaSource
from connectors.spark import private
from connectors.spark.held_folder import hold, remove_left

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def start(spark: SparkSession, address: Address, checkpoint: str, take: Callable[[DataFrame], None]) -> StreamingQuery:
    """Starts the query; `take` is called with each micro-batch, on a thread of Spark's.

    A micro-batch begins as soon as the one before it has ended and the driver at `address` has planned it. `checkpoint`
    is the URL of an empty folder, for Spark alone: nothing is ever read from it again.
    """
    writer = load(spark, address).writeStream.foreachBatch(lambda batch, _: take(batch))
    return private.start_query(writer.option("checkpointLocation", checkpoint))


def load(spark: SparkSession, address: Address) -> DataFrame:
    """Returns the stream of what the driver at `address` plans: `WRITTEN` of compactor/ingest/ingest.py."""
    _register(spark)
    source = spark.readStream.format(NAME).schema(ddl(WRITTEN))
    return source.option("socket", address.path).option("secret", address.key).load()


def _register(spark: SparkSession) -> None:
    """Registers the source with `spark`, once."""
    with _registering:
        if spark not in _registered:
            spark.dataSource.register(KafkaSource)
            _registered.add(spark)


_registering: Final = threading.Lock()
_registered: Final[WeakSet[SparkSession]] = WeakSet()


_PREFIX: Final = "keyfold-query-"
_CHECKPOINT: Final = "checkpoint"
"""What Spark makes in it, once it is locked."""


@contextmanager
def query_folder(place: Path | None = None) -> Iterator[Path]:
    """Yields the path for the checkpoint, in a folder of mode 0700 in `place` (TMPDIR) that is removed at the end.

    Folders of workers that were killed are removed first.
    """
    place = place or Path(tempfile.gettempdir())
    remove_left(place, _PREFIX, _CHECKPOINT)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
    try:
        with hold(folder):
            yield folder / _CHECKPOINT
    finally:
        shutil.rmtree(folder, ignore_errors=True)
