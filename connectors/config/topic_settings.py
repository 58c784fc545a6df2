"""Names of Kafka's topic settings (LogConfig of Kafka 4.3), for `output.topic.config.*`."""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
    cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    delete.retention.ms file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas
    index.interval.bytes internal.segment.bytes leader.replication.throttled.replicas local.retention.bytes
    local.retention.ms max.compaction.lag.ms max.message.bytes message.timestamp.after.max.ms
    message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio min.compaction.lag.ms
    min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
    retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
    unclean.leader.election.enable
"""
TOPIC_SETTINGS: Final = frozenset(_NAMES.split())

KEYFOLDS_OWN: Final[dict[str, str]] = {
    "cleanup.policy": "the output topic has the connector's cleanup.policy",
    "message.timestamp.type": "the output keeps the source's timestamps (CreateTime)",
    "message.timestamp.after.max.ms": "the output takes every timestamp that the source had",
    "message.timestamp.before.max.ms": "the output takes every timestamp that the source had",
    "min.compaction.lag.ms": "the lag has passed when a record is published; set the connector's min.compaction.lag.ms",
    "remote.storage.enable": "Kafka refuses tiered storage for compacted topics",
}
"""Settings that keyfold decides, and how."""
