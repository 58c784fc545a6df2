"""A full fold of kept runs against Kafka's own cleaner, over the same records of the same topic."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from benchmarks.harness import alone
from benchmarks.harness.datasets import DataSet, fill, named
from benchmarks.harness.figure import Figure
from benchmarks.peers.broker_cleaner import clean, cleaning_broker
from benchmarks.peers.keyfold_worker import working
from benchmarks.rows.kept import Kept
from benchmarks.rows.steady import Steady
from compactor.catalog.catalog import Catalog
from compactor.clean.cleaner import Cleaner
from compactor.clean.rewriter import Rewriter
from compactor.metrics import Counters
from compactor.quarantine.quarantine import QuarantineManager
from compactor.settings import CompactionPolicy, EngineSettings
from compactor.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from compactor.storage.base import Storage

_WARM: Final = 0.02
"""What both sides fold before it counts: this share of the data, so that no JVM comes to it cold."""
_LATE: Final = {"log.cleaner.initial.delay.ms": "86400000"}
"""The worker only takes in and publishes: its cleaner would fold part of it before."""
_WHOLE: Final = {"min.compaction.lag.ms": "1"}
"""With a lag, however short, what is taken in is kept whole; without one it is folded while it is read."""


def fold(_bootstrap: str) -> dict[str, float]:
    """Records per second of a full fold, of the cleaner, and the one over the other; they never run beside each other.

    On a broker of its own, which is started as for production and whose log can be read.
    """
    data = named("small")
    topic, warm = (f"{stem}-{uuid4().hex[:6]}" for stem in ("fold", "warm"))
    with tempfile.TemporaryDirectory() as place, cleaning_broker(Path(place, "kafka")) as broker:
        fill(broker.bootstrap, warm, data.scaled(_WARM))
        fill(broker.bootstrap, topic, data)
        ours = _ours(broker.bootstrap, topic, Path(place), data)
        clean(broker, warm)
        read, seconds = clean(broker, topic)
    if read < data.records:
        raise RuntimeError(f"the cleaner read {read} records of {data.records}")
    theirs = data.records / seconds
    return {"times the cleaner's rate": ours / theirs, "keyfold, records/s": ours, "cleaner, records/s": theirs}


def _ours(bootstrap: str, topic: str, place: Path, data: DataSet) -> float:
    """A worker takes the topic in and ends; then its runs are folded."""
    with working(bootstrap, topic, place, _WHOLE, _LATE) as worker:
        worker.running.until(worker.published())
    found = alone.call("fold of kept runs", kept_folded, place / "storage" / worker.name, worker.name, data.records)
    if found["records"] != data.records:
        raise RuntimeError(f"{found['records']:.0f} records of {data.records} were there to be folded")
    return found["records"] / found["seconds"]


def kept_folded(folder: Path, name: str, records: int) -> dict[str, float]:
    """Folds something small, then what connector `name` keeps in `folder`, as `measure` tells.

    Where no other process runs: its Spark must not be there while the cleaner is measured.
    """
    from connectors.spark.session import session

    with tempfile.TemporaryDirectory() as scratch:
        spark = session("local[*]", {})
        _warm_up(spark, Path(scratch), round(records * _WARM))
        found = measure(spark, LocalStorage(str(folder)), name)
        spark.stop()
        return found


def measure(spark: SparkSession, storage: Storage, name: str) -> dict[str, float]:
    """Folds everything that connector `name` keeps: how many records, in how many seconds."""
    catalog = Catalog.open(storage, name)
    now_ms = time.time_ns() // 1_000_000
    catalog.take_over("benchmark", now_ms)
    began = time.monotonic()
    folded = _cleaner(spark, storage, catalog, name).clean(now_ms)
    seconds = time.monotonic() - began
    return {"records": sum(one.records_before for one in folded), "seconds": seconds}


def _warm_up(spark: SparkSession, folder: Path, records: int) -> None:
    load = Steady(records=max(2, records), keys=max(2, records // 10))
    kept = Kept(folder, load.partitions, 0)
    for tables in load.tables(1):
        kept.append(kept.write(tables, CompactionPolicy().segment_bytes, 0), dict.fromkeys((0, 1), load.each), 0)
    kept.publish(0)
    _cleaner(spark, kept.storage, kept.catalog, "bench").clean(0)


def _cleaner(spark: SparkSession, storage: Storage, catalog: Catalog, name: str) -> Cleaner:
    settings = EngineSettings(connector=name, policy=CompactionPolicy())
    quarantine = QuarantineManager(catalog, threading.Event())
    return Cleaner(Rewriter(spark, storage), catalog, quarantine, settings, Counters(), frozenset)


FOLD: Final = Figure(
    "fold",
    "full fold of kept runs, records/s against Kafka's cleaner on the same records",
    {},
    fold,
    at_least={"times the cleaner's rate": (1, 3)},
    broker=False,
)
