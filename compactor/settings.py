"""Settings of one connector as the engine takes them; files and environment are read by `connectors.config`.

`CompactionPolicy` has the names of Kafka's topic configuration (`LogConfig`, `TopicConfig`).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

# Java's Long.MAX_VALUE, which Kafka's settings use for no limit; in ms.
FOREVER: Final = 9223372036854775807


class CompactionPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Kafka's settings of one compacted log; times in ms, sizes in bytes, -1 is unlimited.

    `min_compaction_lag_ms`: a record younger than it is not folded (KIP-58).
    `max_compaction_lag_ms`: a record older than it is folded whatever the ratio (KIP-354).
    `delete_retention_ms`: how long a tombstone is kept after the first clean that meets it (KIP-534).
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
        """Whether every record may be folded as soon as it is ingested: compacted, without a min.compaction.lag.ms."""
        return self.compacts and self.min_compaction_lag_ms <= 0

    @property
    def deletes(self) -> bool:
        """Whether retention.ms and retention.bytes remove old records."""
        return "delete" in self.cleanup_policy


class FoldPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When runs are rewritten: the connector's `fold.*` settings; times in ms, sizes in bytes.

    `level0_files`: number of level-0 runs that are merged to one of level 1. `tier_runs`: number of neighbouring runs
    of a level and of similar size that are merged to one of the next level. `run_max_bytes`: no larger run is merged.
    `full_interval_ms`: after this time a clean is due if it would change anything; negative is never.
    `job_bytes`: bytes that one job reads at most; a single log may be larger. `local_max_records`: records that the
    driver rewrites at most without a Spark job; -1 is none. `has_index`: runs that are written get an index of their
    keys, and a clean is due for what has none.
    """

    level0_files: int = 32
    tier_runs: int = 10
    run_max_bytes: int = 128 << 30
    full_interval_ms: int = 86_400_000
    job_bytes: int = 8 << 30
    local_max_records: int = -1
    has_index: bool = False


class EngineSettings(Struct, frozen=True, kw_only=True):
    """What one connector's engine is set to; times in ms.

    `fold_io_max_bytes_per_second`: bytes per second that folds read and write together at most; None is no limit.
    `publish_local_max_records`: records that the driver folds and sends at most without a Spark job; -1 is none.
    `tolerate_rejected`: a record that cannot be folded (no key) is counted and sent to the dead letter topic
    (errors.tolerance=all); otherwise it stops the connector, or with `sets_topics_aside` its topic alone
    (errors.scope=topic). `applies_truncates`: what the output has of a table goes once the table is emptied
    (debezium.truncate=apply). `snapshot_interval_ms`: -1 is only on command.
    `scope`: what the file says; the engine goes by the catalog's, `analyze` by this one.
    `publish_unchanged`: `skip` sends no record that equals the one before it of its key in value and headers; `send`.
    `snapshot_mode`: `latest` takes the live records of the base runs, `append` every record that is kept.
    `snapshot_string_columns`: which of key and value snapshots hold as UTF-8 text. `snapshot_file_bytes`: a data file
    of a snapshot is closed once it has so many bytes.
    `position_refresh_ms`: the age at which a committed position is committed again, well inside the brokers'
    offsets.retention.minutes (a week by default); `first_refresh_ms`: the same for a position of unknown age, counted
    from when it was read.
    """

    connector: str
    policy: CompactionPolicy
    fold: FoldPolicy = FoldPolicy()
    fold_io_max_bytes_per_second: int | None = None
    bootstrap_fold_enable: bool = True
    publish_local_max_records: int = -1
    scope: str = "partition"
    publish_unchanged: str = "send"
    tolerate_rejected: bool = False
    sets_topics_aside: bool = False
    applies_truncates: bool = False
    snapshot_interval_ms: int = -1
    snapshot_retention_count: int = 3
    snapshot_mode: str = "latest"
    snapshot_string_columns: frozenset[str] = frozenset()
    snapshot_file_bytes: int = 128 << 20
    position_refresh_ms: int = 43_200_000
    first_refresh_ms: int = 60_000

    @property
    def skips_unchanged(self) -> bool:
        """Whether a record that changes nothing is not sent."""
        return self.publish_unchanged == "skip"
