"""Reads which keys an output partition holds, for the tombstones that a new generation begins with (step G2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import structlog
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import reading
from connectors.sinks.output_reader import OutputPartitionReader, header_pairs, keyfold_source, named_generation

_STEP: Final = 1_000_000
"""How many offsets are read before a line of the log says how far it is."""

_log = structlog.get_logger()


class OutputKeys(NamedTuple):
    """The keys that have a value in an output partition by their last record, sorted.

    `generations`: the newest generation there of each source partition.
    """

    live: list[bytes]
    generations: dict[int, int]


def live_keys(config: Mapping[str, Setting], output: str, tp: TopicPartition, end: int) -> OutputKeys:
    """Returns the keys that have a value below offset `end` of the output of `tp`, by their last record there.

    Records that name another source topic are left out. Those of its other partitions are not: they are there with
    compaction.scope=topic, and stay there until another scope has published. All keys are held in memory. Raises
    UnreachableError, NotAllowedError.
    """
    reader = OutputPartitionReader(config, Partition(output, tp.partition))
    live: dict[bytes, bool] = {}
    newest = {tp.partition: 1}
    with reading(config, f"The keys of output partition {output}-{tp.partition}", output):
        low, _ = reader.bounds()
        for start in range(low, end, _STEP):
            for message in reader.read(start, min(start + _STEP, end)):
                headers, key = header_pairs(message), message.key()
                source = keyfold_source(headers)
                if key is not None and (source is None or source[0] == tp.topic):
                    live[bytes(key)] = message.value() is not None
                    partition = tp.partition if source is None else source[1]
                    newest[partition] = max(newest.get(partition, 1), named_generation(headers))
            _log.info("reading the keys of an output", output=output, partition=tp.partition, offset=start, end=end)
    return OutputKeys(sorted(key for key, is_live in live.items() if is_live), newest)
