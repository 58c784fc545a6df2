"""Actions and catalogs for tests of the catalog and its users."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compactor.catalog.catalog import Catalog
from compactor.model.actions import AddPartition, AddTopic, AnyAction, Append, Clean, Publish
from compactor.model.log import BASE, OutputPoint, Run, RunFile
from compactor.model.state import CatalogState
from compactor.storage.base import Storage

NOW = 1_000_000


def run(start: int, end: int, path: str, level: int = 0) -> Run:
    """Returns a run of one file with a record at every offset of [start, end)."""
    size = end - start
    file = RunFile(path=path, first=start, last=end - 1, records=size, bytes=size, file_bytes=size, sha256="0")
    return Run(start=start, end=end, level=level, files=(file,), records=size, bytes=size)


def beginning(partitions: int = 1) -> list[AnyAction]:
    """Returns the actions that add one topic with its partitions."""
    topic = AddTopic(topic="t", topic_id="T", output="o", output_id="O")
    return [topic, *(AddPartition(topic="t", partition=number, bucket=0, start=0) for number in range(partitions))]


def append(end: int, path: str = "", partition: int = 0, start: int | None = None) -> Append:
    """Returns an Append of [start, end), by default of one offset."""
    first = end - 1 if start is None else start
    made = run(first, end, path or f"runs/1-{first:08x}-a.parquet")
    return Append(topic="t", partition=partition, start=first, end=end, run=made)


def publish(end: int) -> Publish:
    """Returns the Publish of a fold of partition 0 that was sent completely."""
    return Publish(topic="t", partition=0, end=end, output=OutputPoint(end, end))


def clean(end: int, path: str) -> Clean:
    """Returns a Clean of partition 0 with a base run up to `end`."""
    return Clean(topic="t", partition=0, end=end, base=run(0, end, path, BASE))


def owned(storage: Storage, now_ms: int = NOW, owner: str = "host:1") -> Catalog:
    """Opens and takes over a catalog; a new one gets a topic with one partition."""
    catalog = Catalog.open(storage, "c")
    catalog.take_over(owner, now_ms)
    catalog.commit(lambda state: () if state.logs else beginning(), now_ms)
    return catalog


def deciding(*actions: AnyAction) -> Callable[[CatalogState], Sequence[AnyAction]]:
    """Returns a decision for Catalog.commit: these actions, whatever the state."""
    return lambda state: actions


def end(state: CatalogState) -> int:
    """Returns the end offset of partition 0."""
    return state.logs[0].end


def grow(catalog: Catalog, commits: int, now_ms: int = NOW) -> None:
    """Makes `commits` commits, each of one offset."""
    for _ in range(commits):
        catalog.commit(lambda state: [append(end(state) + 1)], now_ms)
