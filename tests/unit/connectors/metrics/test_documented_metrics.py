"""docs/metrics.md and the collector have the same metrics: names, kinds and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.core import Metric

from compactor.model.actions import AddSnapshot
from compactor.model.log import empty
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState
from connectors.clock import SystemClock
from connectors.metrics.collector import OWN, PARTITIONS, STATES, WorkerCollector
from connectors.metrics.source_lag import SourceLag
from tests.support.rest import RestWorker, rest_worker

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"
FAMILIES = ("strimzi", "confluent")
UNITS = {"_bytes": "bytes", "_seconds": "seconds", "_offsets": "offsets", "_ratio": "0 to 1"}
"""What the end of a metric's name says of its unit."""


class Described(NamedTuple):
    """A metric as Prometheus knows it."""

    name: str
    kind: str
    labels: tuple[str, ...]


class Row(NamedTuple):
    """A row of the page: the metric's name in each family, the rest as it stands there."""

    names: Mapping[str, str]
    kind: str
    labels: tuple[str, ...]
    unit: str
    meaning: str


def _rows(page: str) -> list[Row]:
    """The rows of all tables: one name for both families, or one for each."""
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        names = [cell.strip("`") for cell in cells if re.fullmatch("`[a-z_]+`", cell)]
        if names:
            kind, labels, unit, meaning = cells[len(names) :]
            both = dict(zip(FAMILIES, names if len(names) == 2 else names * 2, strict=True))
            found.append(Row(both, kind, tuple(filter(None, labels.split(", "))), unit, meaning))
    return found


ROWS = _rows(PAGE.read_text(encoding="utf-8"))


def _described(family: Metric) -> Iterable[Described]:
    if family.type in ("histogram", "summary"):  # one row: buckets, count and sum are what Prometheus makes of it
        labels = {tuple(name for name in sample.labels if name != "le") for sample in family.samples}
        return {Described(family.name, family.type, one) for one in labels}
    return {Described(sample.name, family.type, tuple(sample.labels)) for sample in family.samples}


def _collected(worker: RestWorker, names: str, *, partitions: bool = True) -> list[Described]:
    """What a scrape of `worker` has."""
    lag = {TopicPartition("a", 0): SourceLag(1, 0)}
    collector = WorkerCollector(worker.herder, SystemClock(), lambda *_: lag, names=names, partitions=partitions)
    return [one for family in collector.collect() for one in _described(family)]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterable[RestWorker]:
    """A worker with a connector that has a partition and a snapshot, so that each metric has a series."""
    with rest_worker(tmp_path_factory.mktemp("worker")) as found:
        found.create("a")
        taken = AddSnapshot(topic="a", id="1", path="", created_ms=1, source_offsets={"0": 1}, records=1, bytes=1)
        logs = (empty(TopicPartition("a", 0), 0, 0, None),)
        found.supervisor("a").catalog_state = CatalogState(connector="a", buckets=1, logs=logs, snapshots=(taken,))
        yield found


@pytest.mark.parametrize("names", FAMILIES)
def test_the_page_has_every_metric_and_no_other(worker: RestWorker, names: str) -> None:
    """Each with its kind and labels, in both families of names."""
    said = [Described(row.names[names], row.kind, row.labels) for row in ROWS]
    assert len(set(said)) == len(said)
    assert set(said) == set(_collected(worker, names))


def test_metrics_of_partitions_stand_by_themselves(worker: RestWorker) -> None:
    """What `metrics.partitions` adds is what the last table has."""
    added = set(_collected(worker, "strimzi")) - set(_collected(worker, "strimzi", partitions=False))
    last = PAGE.read_text(encoding="utf-8").partition("## For each partition")[2]
    assert added == {Described(row.names["strimzi"], row.kind, row.labels) for row in _rows(last)}
    assert {one.name for one in added} == {name for name, *_ in PARTITIONS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.names["strimzi"])
def test_a_row_says_what_is_measured(row: Row) -> None:
    """It has a unit, that of its name where that names one, and a sentence."""
    name = row.names["strimzi"].removesuffix("_total")
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), row.unit)
    assert row.unit == unit
    assert bool(row.unit) is (not name.endswith("_status"))
    assert row.meaning.endswith(".")


def test_the_page_is_read() -> None:
    """The parser finds all rows, with one name for both families or with one for each."""
    own = [row for row in ROWS if row.names["strimzi"].startswith("keyfold_")]
    assert len(own) == len(OWN) + len(PARTITIONS) + 6  # histogram, summary, sources, object stores
    assert len(ROWS) > len(own) + len(STATES)
    assert _rows("| `a` | `b` | gauge | x, y | s | M. |\n| `c` | counter | | | N. |") == [
        Row({"strimzi": "a", "confluent": "b"}, "gauge", ("x", "y"), "s", "M."),
        Row({"strimzi": "c", "confluent": "c"}, "counter", (), "", "N."),
    ]
