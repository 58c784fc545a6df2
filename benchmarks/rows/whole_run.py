"""`run --once` with little memory on records each of a key of its own, to its end, and once more on a tenth of them.

    python -m benchmarks.rows.whole_run --keys 50000000 --partitions 2 --into FOLDER

Each run publishes, folds fully and takes a snapshot; told are the seconds, and the memory of the process tree, of each.
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

from benchmarks.harness import alone
from benchmarks.harness.broker import broker
from benchmarks.harness.datasets import DataSet, fill_more, filled
from benchmarks.harness.measure import ended_by_sigterm
from benchmarks.harness.process import Running
from benchmarks.peers.committed import ends
from benchmarks.peers.keyfold_worker import working
from compactor.catalog.catalog import Catalog
from compactor.model.state import State
from compactor.storage.local import LocalStorage

HEAP: Final = "2g"
CHANGED: Final = 10
"""One of so many keys gets another record before the second run."""
_POLL_S: Final = 0.5
_CLEANER: Final = {"log.cleaner.initial.delay.ms": "86400000"}
"""All folding is done at the end of `--once`, so that its time is known."""


class Phase(Struct, frozen=True, kw_only=True):
    """A part of a run: its seconds, the records that it has read, and the most memory of the tree in it, in bytes."""

    name: str
    seconds: float
    records: int
    rss: int
    pss: int

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds > 0 else 0.0


class WholeRun(Struct, frozen=True):
    """A run to its end: `published` counts from the process's start, `folded` from there, `ended` is the snapshot."""

    published: Phase
    folded: Phase
    ended: Phase

    @property
    def phases(self) -> tuple[Phase, ...]:
        """In order."""
        return self.published, self.folded, self.ended

    @property
    def seconds(self) -> float:
        """Of all of it."""
        return sum(one.seconds for one in self.phases)

    @property
    def pss(self) -> int:
        """The most memory, pages that processes share counted once."""
        return max(one.pss for one in self.phases)


def unique(keys: int, partitions: int) -> DataSet:
    """Each record of a key of its own, with a value of 20 bytes."""
    return DataSet(name=f"keys-{keys}", records=keys, keys=keys, value_bytes=20, partitions=partitions)


def both_runs(bootstrap: str, data: DataSet) -> tuple[WholeRun, WholeRun]:
    """A run on `data`, and one after a tenth of its keys was changed. Raises RuntimeError where one falls short."""
    topic = filled(bootstrap, data)
    changed = replace(data, records=max(1, data.records // CHANGED), keys=max(1, data.keys // CHANGED))
    name = f"whole-{topic}"
    with tempfile.TemporaryDirectory(prefix="bench-whole-") as place:
        folder = Path(place)
        first = _run(bootstrap, topic, folder, name, (data.records, data.records, data.records))
        alone.call(f"change {data.name}", fill_more, bootstrap, topic, changed)
        records = changed.records, data.records + changed.records, data.records
        return first, _run(bootstrap, topic, folder, name, records)


def _run(bootstrap: str, topic: str, folder: Path, name: str, records: tuple[int, int, int]) -> WholeRun:
    """`records`: how many the publish, the fold and the snapshot read."""
    settings = {"snapshot.location": str(folder / "snapshots")}
    wanted = ends(bootstrap, topic)
    with working(bootstrap, topic, folder, settings, {"spark.driver.memory": HEAP, **_CLEANER}, name, once=True) as one:
        running = one.running
        published = _phase(running, "published", running.until(one.published()), 0.0, records[0])
        seconds = running.until(lambda: _is_folded(folder, name, wanted))
        folded = _phase(running, "folded", seconds, published.seconds, records[1])
        ended = _phase(running, "snapshot, end", running.ended(), seconds, records[2])
    taken = _state(folder, name).snapshots[-1]
    if taken.records != records[2]:
        raise RuntimeError(f"the snapshot of {topic} has {taken.records} records of {records[2]}")
    return WholeRun(published, folded, ended)


def _phase(running: Running, name: str, until: float, since: float, records: int) -> Phase:
    rss, pss = running.meter.since()
    found = Phase(name=name, seconds=until - since, records=records, rss=rss, pss=pss)
    print(
        f"  {name}: {found.seconds:.1f} s, {found.records:,} records, {found.rate:,.0f} records/s, "
        f"{rss / (1 << 30):.2f} GiB RSS, {pss / (1 << 30):.2f} GiB PSS",
        flush=True,
    )
    return found


def _is_folded(folder: Path, name: str, wanted: Mapping[int, int]) -> bool:
    """Whether all is folded that the topic held."""
    time.sleep(_POLL_S)
    return all(log.clean_end >= wanted[log.partition] for log in _state(folder, name).logs)


def _state(folder: Path, name: str) -> State:
    return Catalog.open(LocalStorage(str(folder / "storage" / name)), name).state


def main() -> None:
    """Both runs on a broker of their own, with all data in a folder; what there is in it afterwards is removed."""
    ended_by_sigterm()
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
        runs = both_runs(bootstrap, unique(asked.keys, asked.partitions))
    print(f"most memory: {max(one.pss for one in runs) / (1 << 30):.2f} GiB PSS", flush=True)


if __name__ == "__main__":
    main()
