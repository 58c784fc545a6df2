"""Reads which keys an output partition holds, for the tombstones that a new generation begins with (step G2).

On its own because it reads all of an output, which nothing else does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Partition

from compactor.model.record import TopicPartition
from connectors.kafka.client_settings import Setting
from connectors.kafka.errors import cause, typed
from connectors.sinks.output_reader import OutputPartitionReader, header_pairs, keyfold_source

_STEP: Final = 1_000_000
"""How many offsets are read before a line of the log says how far it is."""

_log = structlog.get_logger()


def live_keys(config: Mapping[str, Setting], output: str, tp: TopicPartition, end: int) -> list[bytes]:
    """Returns the keys whose last record below offset `end` of the output of `tp` has a value, sorted.

    Records that name another source partition are left out. All keys are held in memory. Raises UnreachableError,
    NotAllowedError.
    """
    reader = OutputPartitionReader(config, Partition(output, tp.partition))
    live: dict[bytes, bool] = {}
    try:
        low, _ = reader.bounds()
        for start in range(low, end, _STEP):
            for message in reader.read(start, min(start + _STEP, end)):
                source = keyfold_source(header_pairs(message))
                key = message.key()
                if key is not None and (source is None or source[:2] == tp):
                    live[bytes(key)] = message.value() is not None
            _log.info("reading the keys of an output", output=output, partition=tp.partition, offset=start, end=end)
    except KafkaException as error:
        doing = f"The keys of output partition {output}-{tp.partition} cannot be read"
        raise typed(cause(error), doing, str(config.get("bootstrap.servers")), f"Read on topic {output}") from error
    return sorted(key for key, is_live in live.items() if is_live)
