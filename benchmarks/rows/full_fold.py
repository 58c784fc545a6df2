"""A full fold of ingested runs against Kafka's own log cleaner on the same topic."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from benchmarks.harness.call import call
from benchmarks.harness.datasets import DataSet, fill, named
from benchmarks.harness.row import Measurement
from benchmarks.peers.keyfold import running_worker
from benchmarks.peers.log_cleaner import clean, cleaning_broker
from benchmarks.rows.brokerless import BrokerlessConnector
from benchmarks.rows.steady_load import SteadyLoad
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

_WARM_UP: Final = 0.1
"""Share of the data that both sides fold first: then no JVM is cold, and both have touched memory before."""
_NO_CLEANER: Final = {"log.cleaner.initial.delay.ms": "86400000"}
"""The worker only ingests and publishes: its cleaner would fold part of the data."""
_NO_PREFOLD: Final = {"min.compaction.lag.ms": "1"}
"""With a lag, however short, every record is ingested; without one records are folded while they are read."""


def full_fold(_bootstrap: str) -> dict[str, float]:
    """Measures records per second of a full fold and of the cleaner, one after the other, and their ratio.

    The broker is its own, started as for production, and its log can be read.
    """
    data = named("20M")
    topic, warm = (f"{stem}-{uuid4().hex[:6]}" for stem in ("fold", "warm"))
    with tempfile.TemporaryDirectory() as folder, cleaning_broker(Path(folder, "kafka")) as broker:
        fill(broker.bootstrap, warm, data.scaled(_WARM_UP))
        fill(broker.bootstrap, topic, data)
        ours = _keyfold_rate(broker.bootstrap, topic, Path(folder), data)
        clean(broker, warm)
        read, seconds = clean(broker, topic)
    if read < data.records:
        raise RuntimeError(f"the cleaner read {read} records of {data.records}")
    theirs = data.records / seconds
    return {"times the cleaner's rate": ours / theirs, "keyfold, records/s": ours, "cleaner, records/s": theirs}


def _keyfold_rate(bootstrap: str, topic: str, folder: Path, data: DataSet) -> float:
    """Ingests `topic` with a worker, then folds its runs in a child process; returns records per second."""
    with running_worker(bootstrap, topic, folder, _NO_PREFOLD, _NO_CLEANER) as worker:
        worker.running.until(worker.published())
    found = call("full fold", fold_storage, folder / "storage" / worker.name, worker.name, data.records)
    if found["records"] != data.records:
        raise RuntimeError(f"{found['records']:.0f} records of {data.records} were there to be folded")
    return found["records"] / found["seconds"]


def fold_storage(folder: Path, name: str, records: int) -> dict[str, float]:
    """Warms up, then folds the logs of connector `name` in `folder`; returns what `measure` does.

    It runs in a child process, whose Spark has ended when the cleaner is measured.
    """
    from connectors.spark.session import get_session

    with tempfile.TemporaryDirectory() as scratch:
        spark = get_session("local[*]", {})
        _warm_up(spark, Path(scratch), round(records * _WARM_UP))
        found = measure(spark, LocalStorage(str(folder)), name)
        spark.stop()
        return found


def measure(spark: SparkSession, storage: Storage, name: str) -> dict[str, float]:
    """Folds all logs of connector `name`; returns the records read and the seconds."""
    catalog = Catalog.open(storage, name)
    now_ms = time.time_ns() // 1_000_000
    catalog.take_over("benchmark", now_ms)
    began = time.monotonic()
    folded = _cleaner(spark, storage, catalog, name).clean(now_ms)
    seconds = time.monotonic() - began
    return {"records": sum(one.records_before for one in folded), "seconds": seconds}


def _warm_up(spark: SparkSession, folder: Path, records: int) -> None:
    load = SteadyLoad(records=max(2, records), keys=max(2, records // 10))
    connector = BrokerlessConnector(folder, load.partitions, 0)
    for tables in load.tables(1):
        files = connector.write(tables, CompactionPolicy().segment_bytes, 0)
        connector.append(files, dict.fromkeys((0, 1), load.partition_records), 0)
    connector.publish(0)
    _cleaner(spark, connector.storage, connector.catalog, "bench").clean(0)


def _cleaner(spark: SparkSession, storage: Storage, catalog: Catalog, name: str) -> Cleaner:
    settings = EngineSettings(connector=name, policy=CompactionPolicy())
    quarantine = QuarantineManager(catalog, threading.Event())
    return Cleaner(Rewriter(spark, storage), catalog, quarantine, settings, Counters(), frozenset)


FULL_FOLD: Final = Measurement(
    "fold",
    "full fold of kept runs, against Kafka's cleaner with 2 threads on the same records",
    {},
    full_fold,
    at_least={"times the cleaner's rate": (2, 3)},
    broker=False,
    beside=("keyfold, records/s", "cleaner, records/s"),
)
