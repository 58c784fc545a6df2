"""The limit: librdkafka consuming a topic and doing nothing, a process for each core.

    python -m benchmarks.peers.reading BOOTSTRAP TOPIC PARTITION...

Prints the seconds from the first poll to the end of these partitions.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.peers.committed import ends


def main(bootstrap: str, topic: str, partitions: list[int]) -> float:
    """Reads `partitions` of `topic` to their ends; the seconds it took."""
    left = {number: end for number, end in ends(bootstrap, topic).items() if number in partitions and end}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "queued.min.messages": 1_000_000})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in left])
    began = time.monotonic()
    while left:
        consumer.consume(100_000, 0.1)
        for held in consumer.position([TopicPartition(topic, number) for number in left]):
            if held.offset >= left[held.partition]:
                del left[held.partition]
    took = time.monotonic() - began
    consumer.close()
    return took


if __name__ == "__main__":
    print(main(sys.argv[1], sys.argv[2], [int(one) for one in sys.argv[3:]]))
