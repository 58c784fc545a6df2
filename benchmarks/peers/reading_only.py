"""The upper limit of every reader: librdkafka consuming a topic and doing nothing, a process for each core.

    python -m benchmarks.peers.reading_only BOOTSTRAP TOPIC SETTINGS PARTITION...

SETTINGS is a JSON object; it prints the monotonic time at the end of these partitions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.harness.process import ROOT, Used
from benchmarks.harness.topics import end_offsets
from connectors.kafka.client_settings import Setting

_PLAIN: Final = {"queued.min.messages": 1_000_000}


class ReadingOnly:
    """Consumes with librdkafka's defaults, or the given settings, partitions dealt to the processes in turn."""

    def __init__(self, settings: Mapping[str, Setting] | None = None, name: str = "reading only") -> None:
        self.name = name
        self._settings = dict(settings or _PLAIN)

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:  # noqa: ARG002  # it writes no files
        """See Peer; the seconds are those of the slowest process, from the command to its last record."""
        partitions = end_offsets(bootstrap, topic)
        count = min(os.cpu_count() or 1, len(partitions))
        shares = [[str(one) for one in partitions if one % count == number] for number in range(count)]
        settings = json.dumps(self._settings)
        began = time.monotonic()
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.reading_only", bootstrap, topic, settings, *share],
                stdout=subprocess.PIPE, cwd=ROOT, text=True,
            )
            for share in shares
        ]  # fmt: skip
        printed = [one.communicate()[0] for one in readers]
        if any(one.returncode < 0 for one in readers):
            raise BrokenProcessPool  # the caller tries again, as if this process had been ended by a signal
        return Used(max(float(one) for one in printed) - began, time.monotonic() - began, 0)


def read(bootstrap: str, topic: str, partitions: Collection[int], settings: Mapping[str, Setting]) -> float:
    """Reads `partitions` of `topic` to their ends; returns the monotonic time of it, the same in all processes."""
    ends = {number: end for number, end in end_offsets(bootstrap, topic).items() if number in partitions and end}
    consumer = Consumer({**settings, "bootstrap.servers": bootstrap, "group.id": "reading"})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
    while ends:
        consumer.consume(100_000, 0.1)
        for position in consumer.position([TopicPartition(topic, number) for number in ends]):
            if position.offset >= ends[position.partition]:
                del ends[position.partition]
    at = time.monotonic()
    consumer.close()
    return at


if __name__ == "__main__":
    print(read(sys.argv[1], sys.argv[2], {int(one) for one in sys.argv[4:]}, json.loads(sys.argv[3])))
