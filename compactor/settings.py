"""What the engine is told of a connector's configuration; it never reads a file or an environment."""

from __future__ import annotations

from msgspec import Struct

from compactor.policy import CompactionPolicy, FoldPolicy

HALF_A_DAY_MS = 43_200_000


class EngineSettings(Struct, frozen=True, kw_only=True):
    """Times in ms.

    `tolerate_rejected`: a record that cannot be folded (no key) is counted and sent to the dead letter
    topic (errors.tolerance=all); otherwise it stops the connector. `snapshot_interval_ms` -1: only on demand;
    `snapshot_strings`: which of key and value are written as UTF-8 text there.
    `position_refresh_ms`: how old a committed position may grow, well inside the broker's
    offsets.retention.minutes (a week by default); `first_refresh_ms`: when one of unknown age is committed again.
    `fold_bytes_per_second`: what folds read and write together at most; None: no limit. `publish_local_records`:
    so many are folded and sent in the driver at most, without a Spark job; -1: none.
    """

    connector: str
    policy: CompactionPolicy
    fold: FoldPolicy = FoldPolicy()
    fold_bytes_per_second: int | None = None
    bootstrap_fold: bool = True
    publish_local_records: int = -1
    tolerate_rejected: bool = False
    snapshot_interval_ms: int = -1
    snapshot_retention_count: int = 3
    snapshot_strings: frozenset[str] = frozenset()
    position_refresh_ms: int = HALF_A_DAY_MS
    first_refresh_ms: int = 60_000
