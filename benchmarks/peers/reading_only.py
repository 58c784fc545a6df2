"""The upper limit of every reader: librdkafka consuming a topic and doing nothing, a process for each core.

    python -m benchmarks.peers.reading_only BOOTSTRAP TOPIC PARTITION...

prints the seconds from the first poll to the end of these partitions.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.harness.process import ROOT, Used
from benchmarks.harness.topics import end_offsets


class ReadingOnly:
    """Consumes with librdkafka's defaults, partitions dealt to the processes in turn."""

    name = "reading only"

    def run(self, bootstrap: str, topic: str, folder: Path) -> Used:  # noqa: ARG002  # it writes no files
        """See Peer; the seconds are those of the slowest process, from its first poll."""
        partitions = end_offsets(bootstrap, topic)
        count = min(os.cpu_count() or 1, len(partitions))
        shares = [[str(one) for one in partitions if one % count == number] for number in range(count)]
        readers = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.peers.reading_only", bootstrap, topic, *share],
                stdout=subprocess.PIPE, cwd=ROOT, text=True,
            )
            for share in shares
        ]  # fmt: skip
        began = time.monotonic()
        printed = [one.communicate()[0] for one in readers]
        if any(one.returncode < 0 for one in readers):
            raise BrokenProcessPool  # the caller tries again, as if this process had been ended by a signal
        return Used(max(float(one) for one in printed), time.monotonic() - began, 0)


def read(bootstrap: str, topic: str, partitions: Collection[int]) -> float:
    """Reads `partitions` of `topic` to their ends; returns the seconds it took."""
    ends = {number: end for number, end in end_offsets(bootstrap, topic).items() if number in partitions and end}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "queued.min.messages": 1_000_000})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in ends])
    began = time.monotonic()
    while ends:
        consumer.consume(100_000, 0.1)
        for position in consumer.position([TopicPartition(topic, number) for number in ends]):
            if position.offset >= ends[position.partition]:
                del ends[position.partition]
    took = time.monotonic() - began
    consumer.close()
    return took


if __name__ == "__main__":
    print(read(sys.argv[1], sys.argv[2], {int(one) for one in sys.argv[3:]}))
