"""Freshness of rows that are taken out of change events in Avro, under the load of the row `fresh`."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.harness.change_events import AVRO
from benchmarks.harness.datasets import DataSet, filled_topic
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import Subject, watch
from benchmarks.peers.change_events import chain_settings, registry_for
from benchmarks.peers.keyfold import running_worker
from benchmarks.rows.worker import FRESH_S, KEYS, PARTITIONS, RATE, SETTLE_S

_FIRST: Final = DataSet(name="fresh-changes", records=50, keys=50, partitions=PARTITIONS, events=AVRO)
"""Published before the load begins: the worker has met the schemas."""


_TABLE: Final = {
    "snapshot.interval.ms": "60000",
    "snapshot.value.format": "typed",
    "snapshot.table": "delta",
}
_WITH_SNAPSHOTS_S: Final = 150.0
"""How long it is watched: two snapshots at least."""


def fresh_changes(bootstrap: str) -> dict[str, float]:
    """Measures seconds from created to visible for a read_committed reader, at RATE events/s over KEYS keys."""
    return _freshness(bootstrap, {}, FRESH_S)


def fresh_tables(bootstrap: str) -> dict[str, float]:
    """Measures the same while a typed snapshot and its table are made each minute."""
    with tempfile.TemporaryDirectory() as snapshots:
        return _freshness(bootstrap, {**_TABLE, "snapshot.location": snapshots}, _WITH_SNAPSHOTS_S)


def _freshness(bootstrap: str, settings: Mapping[str, str], seconds: float) -> dict[str, float]:
    topic = filled_topic(bootstrap, _FIRST)
    load = Load(topics=(topic,), partitions=PARTITIONS, rate=RATE, keys=KEYS, is_events=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        registry_for(AVRO, Path(folder)) as url,
        running_worker(bootstrap, topic, Path(folder), {**chain_settings(AVRO, url), **settings}) as worker,
    ):
        worker.running.until(worker.published())
        subject = Subject(worker.running, bootstrap, (worker.output,), worker.published)
        return watch(subject, load, Path(folder, "signals"), SETTLE_S, seconds).values()


FRESH_CHANGES: Final = Measurement(
    "fresh-changes",
    f"freshness of rows out of change events in Avro, at {RATE:,} events/s",
    {"p99, s": (0.6, 0.4)},
    fresh_changes,
)
FRESH_TABLES: Final = Measurement(
    "fresh-tables",
    f"the same with `snapshot.interval.ms=60000` and a Delta table, at {RATE:,} events/s",
    {"p99, s": (0.6, 0.4)},
    fresh_tables,
)
