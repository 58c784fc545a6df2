"""How a log is kept, in the names of Kafka's topic configuration (`LogConfig`, `TopicConfig`)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

FOREVER: Final = 9223372036854775807


class CompactionPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kafka's settings of one compacted log; times in ms, sizes in bytes, -1 is unlimited.

    `min_compaction_lag_ms`: a record younger than it is not folded (KIP-58).
    `max_compaction_lag_ms`: a record older than it is folded whatever the ratio (KIP-354).
    `delete_retention_ms`: how long a tombstone is kept after the first full fold that meets it (KIP-534).
    """

    cleanup_policy: tuple[str, ...] = ("compact",)
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    delete_retention_ms: int = 86_400_000
    retention_ms: int = -1
    retention_bytes: int = -1
    segment_bytes: int = 134_217_728
