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

    @property
    def compacts(self) -> bool:
        """Whether records are folded by key."""
        return "compact" in self.cleanup_policy

    @property
    def folds_at_once(self) -> bool:
        """Whether nothing that is taken in has to wait until it may be folded."""
        return self.compacts and self.min_compaction_lag_ms <= 0

    @property
    def deletes(self) -> bool:
        """Whether old records go by retention.ms and retention.bytes."""
        return "delete" in self.cleanup_policy


class FoldPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When runs are rewritten: the connector's `fold.*` settings; times in ms, sizes in bytes.

    `level0_files`: so many level-0 runs make one of level 1. `tier_runs`: so many similar neighbours of a
    level make one of the next. `run_max_bytes`: no larger run is merged. `full_interval_ms`: a full fold at
    least so often where there is something to do; negative: never for that reason. `job_bytes`: how much one
    Spark job reads, but for a single larger log.
    """

    level0_files: int = 32
    tier_runs: int = 10
    run_max_bytes: int = 128 << 30
    full_interval_ms: int = 86_400_000
    job_bytes: int = 8 << 30
