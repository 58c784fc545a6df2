"""Starts the streaming query of a worker: the source in, every micro-batch out to a function; and gives it a folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from compactor.ingest.ingest import WRITTEN
from compactor.model.record import ddl
from connectors.source.datasource import NAME, Address, KafkaSource
from connectors.spark import private

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
_HELD: Final = "held"
"""The file in a folder that its worker has locked."""
_CHECKPOINT: Final = "checkpoint"
"""What Spark makes in it, once it is locked: a folder without this one may be about to be locked."""


@contextmanager
def query_folder(place: Path | None = None) -> Iterator[Path]:
    """Yields the path for the checkpoint, in a folder of mode 0700 in `place` (TMPDIR) that is removed at the end.

    Folders of workers that were killed are removed first. A worker holds a lock in its folder, which ends with the
    process, whatever ends that. A process id says nothing: workers of two containers may share TMPDIR, and have the
    same one.
    """
    place = place or Path(tempfile.gettempdir())
    _remove_left(place)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=place))
    try:
        with (folder / _HELD).open("wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield folder / _CHECKPOINT
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_left(place: Path) -> None:
    """Removes the folders that no process holds. What cannot be looked at is another account's."""
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / _HELD).open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if (folder / _CHECKPOINT).exists():
                shutil.rmtree(folder, ignore_errors=True)
