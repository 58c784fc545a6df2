"""Two runs of `run --once` with little memory: on distinct keys, then after a tenth of them was changed.

    python -m benchmarks.rows.whole_run --keys 50000000 --partitions 2 --into FOLDER

Each run publishes, folds fully and takes a snapshot; seconds and memory of the process tree are printed for each.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from benchmarks.harness.broker import broker
from benchmarks.harness.call import call
from benchmarks.harness.datasets import DataSet, filled_topic, produce
from benchmarks.harness.process import Running, exit_on_sigterm
from benchmarks.harness.topics import end_offsets
from benchmarks.peers.keyfold import running_worker
from compactor.catalog.catalog import Catalog
from compactor.model.state import CatalogState
from compactor.storage.local import LocalStorage

HEAP: Final = "2g"
CHANGED: Final = 10
"""One of this many keys gets another record before the second run."""
_POLL_S: Final = 0.5
_CLEANER: Final = {"log.cleaner.initial.delay.ms": "86400000"}
"""The only full fold is that at the end of `--once`, so that its time is known."""


class Phase(Struct, frozen=True, kw_only=True):
    """A phase of a run: its seconds, the records that it read, and the peak memory of the process tree, in bytes."""

    name: str
    seconds: float
    records: int
    rss: int
    pss: int

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


class WholeRun(Struct, frozen=True):
    """A run to its end: publishing from the process's start on, then the full fold, then the snapshot (`ended`)."""

    published: Phase
    folded: Phase
    ended: Phase

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases, in order."""
        return self.published, self.folded, self.ended

    @property
    def seconds(self) -> float:
        """Seconds of all phases."""
        return sum(one.seconds for one in self.phases)

    @property
    def pss(self) -> int:
        """Peak PSS in bytes."""
        return max(one.pss for one in self.phases)


def distinct_keys(keys: int, partitions: int) -> DataSet:
    """Returns a data set of `keys` records, each with a key of its own and a value of 20 bytes."""
    return DataSet(name=f"keys-{keys}", records=keys, keys=keys, value_bytes=20, partitions=partitions)


def both_runs(bootstrap: str, data: DataSet) -> tuple[WholeRun, WholeRun]:
    """Runs on `data`, then again after a tenth of its keys was changed.

    Raises:
        RuntimeError: a run failed, or a snapshot lacks records.
    """
    topic = filled_topic(bootstrap, data)
    changed = replace(data, records=max(1, data.records // CHANGED), keys=max(1, data.keys // CHANGED))
    name = f"whole-{topic}"
    with tempfile.TemporaryDirectory(prefix="bench-whole-") as temporary:
        folder = Path(temporary)
        first = _run(bootstrap, topic, folder, name, (data.records, data.records, data.records))
        call(f"change {data.name}", produce, bootstrap, topic, changed)
        records = changed.records, data.records + changed.records, data.records
        return first, _run(bootstrap, topic, folder, name, records)


def _run(bootstrap: str, topic: str, folder: Path, name: str, records: tuple[int, int, int]) -> WholeRun:
    """Runs to the end; `records` are those that publishing, full fold and snapshot read."""
    settings = {"snapshot.location": str(folder / "snapshots")}
    ends = end_offsets(bootstrap, topic)
    worker_settings = {"spark.driver.memory": HEAP, **_CLEANER}
    with running_worker(bootstrap, topic, folder, settings, worker_settings, name, once=True) as worker:
        running = worker.running
        published = _phase(running, "published", running.until(worker.published()), 0.0, records[0])
        seconds = running.until(lambda: _is_folded(folder, name, ends))
        folded = _phase(running, "folded", seconds, published.seconds, records[1])
        ended = _phase(running, "snapshot, end", running.wait(), seconds, records[2])
    taken = _state(folder, name).snapshots[-1]
    if taken.records != records[2]:
        raise RuntimeError(f"the snapshot of {topic} has {taken.records} records of {records[2]}")
    return WholeRun(published, folded, ended)


def _phase(running: Running, name: str, until: float, since: float, records: int) -> Phase:
    rss, pss = running.meter.take_peaks()
    found = Phase(name=name, seconds=until - since, records=records, rss=rss, pss=pss)
    print(
        f"  {name}: {found.seconds:.1f} s, {found.records:,} records, {found.rate:,.0f} records/s, "
        f"{rss / (1 << 30):.2f} GiB RSS, {pss / (1 << 30):.2f} GiB PSS",
        flush=True,
    )
    return found


def _is_folded(folder: Path, name: str, ends: Mapping[int, int]) -> bool:
    """Whether the base runs reach `ends`, partition → offset."""
    time.sleep(_POLL_S)
    return all(log.clean_end >= ends[log.partition] for log in _state(folder, name).logs)


def _state(folder: Path, name: str) -> CatalogState:
    return Catalog.open(LocalStorage(str(folder / "storage" / name)), name).state


def main() -> None:
    """Runs both on a broker of their own, with all files in a folder, and removes them."""
    exit_on_sigterm()
    options = argparse.ArgumentParser(prog="python -m benchmarks.rows.whole_run", description=__doc__)
    options.add_argument("--keys", type=int, default=50_000_000)
    options.add_argument("--partitions", type=int, default=2)
    options.add_argument(
        "--into", type=Path, default=Path("build/bench"), help="where broker and worker keep their files"
    )
    asked = options.parse_args()
    asked.into.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(asked.into.resolve())
    with broker() as bootstrap:
        runs = both_runs(bootstrap, distinct_keys(asked.keys, asked.partitions))
    print(f"most memory: {max(one.pss for one in runs) / (1 << 30):.2f} GiB PSS", flush=True)


if __name__ == "__main__":
    main()
