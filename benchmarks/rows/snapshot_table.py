"""A ready table from a snapshot, against a consumer that reads the whole output topic into a dict.

    python -m benchmarks.rows.snapshot_table table|arrow|consumer BOOTSTRAP TOPIC LOCATION

begins as any program that needs the table, and prints how many keys it has, and its peak memory (MiB).
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.harness.datasets import DataSet, filled_topic, scale
from benchmarks.harness.process import ROOT
from benchmarks.harness.row import Measurement
from benchmarks.harness.topics import end_offsets
from benchmarks.peers.keyfold import running_worker

KEPT: Final = DataSet(name="table", records=5_000_000, keys=5_000_000)
"""Each key once, so that the output has nothing that a better compaction would remove."""
_ROUNDS: Final = 3
_READERS: Final = ("consumer", "table", "arrow")


def snapshot_table(bootstrap: str) -> dict[str, float]:
    """Measures seconds from a process's start to all keys, for each reader in turn; the median of _ROUNDS."""
    data = KEPT.scaled(scale())
    topic = filled_topic(bootstrap, data)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with running_worker(
            bootstrap, topic, folder, {"snapshot.location": f"{folder}/snapshots"}, once=True
        ) as worker:
            worker.running.wait()
        location = f"{folder}/snapshots/{worker.name}/{topic}"
        rounds = [[_took(reader, bootstrap, worker.output, location) for reader in _READERS] for _ in range(_ROUNDS)]
    if len(keys := {keys for each in rounds for keys, _, _ in each}) > 1:
        raise RuntimeError(f"the readers have {sorted(keys)} keys")
    values = {"keys": float(keys.pop())}
    for number, reader in enumerate(_READERS):
        values[f"{reader}, s"] = statistics.median(each[number][1] for each in rounds)
        values[f"{reader}, MiB"] = max(each[number][2] for each in rounds)
    for reader in _READERS[1:]:
        values[f"{reader}, times as fast"] = values["consumer, s"] / values[f"{reader}, s"]
    return values


def _took(reader: str, bootstrap: str, topic: str, location: str) -> tuple[int, float, float]:
    """Runs a reader; returns its keys, the seconds from its start until it has them, and its MiB at the peak."""
    command = [sys.executable, "-m", "benchmarks.rows.snapshot_table", reader, bootstrap, topic, location]
    began = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    seconds = time.monotonic() - began
    process.communicate()
    keys, mib = line.split()
    return int(keys), seconds, float(mib)


def consumer(bootstrap: str, topic: str) -> int:
    """Reads the topic to its end into a dict, as librdkafka's documentation does it; returns how many keys it has."""
    settings = {"isolation.level": "read_committed", "queued.min.messages": 1_000_000, "group.id": "table"}
    ends: dict[int | None, int] = {number: end for number, end in end_offsets(bootstrap, topic).items() if end}
    reader = Consumer({"bootstrap.servers": bootstrap, "enable.partition.eof": True, **settings})
    reader.assign([TopicPartition(topic, number or 0, OFFSET_BEGINNING) for number in ends])
    state: dict[bytes | None, bytes] = {}
    while ends:
        for message in reader.consume(10_000, 0.1):
            if message.error() is not None:  # the end of a partition
                ends.pop(message.partition(), None)
            elif (value := message.value()) is None:
                state.pop(message.key(), None)
            else:
                state[message.key()] = value
    return len(state)


def main(reader: str, bootstrap: str, topic: str, location: str) -> None:
    """Runs one reader, and says what it has."""
    if reader == "consumer":
        _say(consumer(bootstrap, topic))
        return
    from connectors.bootstrap import open_table

    opened = open_table(location, {"bootstrap.servers": bootstrap})
    if reader == "arrow":
        _say(opened.arrow().num_rows)
        return
    with opened.table() as table:
        _say(len(table))


def _say(keys: int) -> None:
    print(keys, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, flush=True)


READY_TABLE: Final = Measurement(
    "ready-table",
    "5 million keys from a snapshot to a ready table, against reading the whole output",
    {},
    snapshot_table,
    at_least={"table, times as fast": (3, 6), "arrow, times as fast": (3, 10)},
)

if __name__ == "__main__":
    main(*sys.argv[1:])
