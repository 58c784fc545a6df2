"""What it costs to compare keys by an identity: freshness beside millions of kept keys in two encodings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.harness.datasets import DataSet, filled_topic, scale
from benchmarks.harness.row import Measurement
from benchmarks.harness.steady import Load
from benchmarks.harness.watch import Subject, watch
from benchmarks.peers.keyfold import running_worker
from benchmarks.rows.worker import FRESH_S, PARTITIONS, SETTLE_S

RATE: Final = 1_000
"""Changes per second, each of another key."""
KEPT: Final = DataSet(name="identity", records=5_000_000, keys=5_000_000, partitions=PARTITIONS, json_keys=True)
_RATIO: Final = "p99 over that of bytes"


class Changes(Load, frozen=True, kw_only=True):
    """A load on the keys of KEPT, every second of which it spells with a space, as KEPT spells none."""

    def key(self, partition: int, number: int) -> bytes:
        """See Load."""
        own = number % max(1, self.keys // self.partitions)
        spelling = b'{"p": %d,"k":%d}' if own % 2 else b'{"p":%d,"k":%d}'
        return spelling % (partition, own)


def identity(bootstrap: str) -> dict[str, float]:
    """Measures freshness at RATE changes/s with keys compared as JSON, and as bytes; each worker runs alone."""
    as_json, as_bytes = _fresh(bootstrap, "json"), _fresh(bootstrap, "bytes")
    return {
        _RATIO: as_json["p99, s"] / as_bytes["p99, s"],
        **{f"json, {name}": value for name, value in as_json.items()},
        **{f"bytes, {name}": value for name, value in as_bytes.items()},
    }


def _fresh(bootstrap: str, compared: str) -> dict[str, float]:
    data = KEPT.scaled(scale())
    topic, settings = filled_topic(bootstrap, data), {"compaction.key.identity": compared}
    load = Changes(topics=(topic,), partitions=PARTITIONS, rate=RATE, keys=data.keys)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running_worker(bootstrap, topic, folder, settings, once=True) as worker:
            worker.running.wait()
        with running_worker(bootstrap, topic, folder, settings, name=worker.name) as worker:
            worker.running.until(worker.published())
            subject = Subject(worker.running, bootstrap, (worker.output,), worker.published)
            return watch(subject, load, folder / "signals", SETTLE_S, FRESH_S).values()


IDENTITY: Final = Measurement(
    "identity",
    f"5 million kept keys, {RATE:,} changes/s, half spelled otherwise, keys compared as JSON",
    {_RATIO: (1.3, 1.1)},
    identity,
)
