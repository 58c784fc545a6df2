"""What a connector's settings are to the engine, and who may read what a worker keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from compactor.settings import CompactionPolicy, EngineSettings, FoldPolicy
from connectors.config.connector import ConnectorConfig
from connectors.config.engine_settings import engine_settings, warn_of_readers
from connectors.config.stores import connector_storage
from connectors.config.worker import WorkerConfig

NO_SETTINGS = {
    EngineSettings: {
        *("connector", "policy", "fold", "tolerate_rejected", "sets_topics_aside"),
        *("applies_truncates", "position_refresh_ms", "first_refresh_ms"),
    },
    CompactionPolicy: set[str](),
    FoldPolicy: {"job_bytes", "has_index"},
}


@pytest.mark.parametrize(("kind", "others"), NO_SETTINGS.items(), ids=lambda one: getattr(one, "__name__", ""))
def test_what_the_engine_is_set_to_has_the_settings_names(kind: type[Struct], others: set[str]) -> None:
    """A field of the engine's settings is carried over by its name; those that no setting names are known ones."""
    prefix = "fold_" if kind is FoldPolicy else ""
    assert {name for name in kind.__struct_fields__ if prefix + name not in ConnectorConfig.model_fields} == others


def test_every_setting_reaches_the_engine() -> None:
    """What a file says is what the engine gets, also where it is not the default."""
    changed = {
        "min.cleanable.dirty.ratio": "0.25",
        "cleanup.policy": "delete,compact",
        "fold.tier.runs": "7",
        "fold.io.max.bytes.per.second": "1000",
        "publish.local.max.records": "5",
        "bootstrap.fold.enable": "false",
        "errors.tolerance": "all",
        "state.index": "Always",
        "snapshot.retention.count": "9",
    }
    least = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
    found = engine_settings(ConnectorConfig.model_validate({**least, **changed}))
    assert (found.connector, found.policy.min_cleanable_dirty_ratio, found.fold.tier_runs) == ("c", 0.25, 7)
    assert found.policy.cleanup_policy == ("compact", "delete")
    assert (found.fold_io_max_bytes_per_second, found.publish_local_max_records) == (1000, 5)
    assert found.fold.has_index
    assert (found.bootstrap_fold_enable, found.tolerate_rejected, found.snapshot_retention_count) == (False, True, 9)


@pytest.mark.parametrize(
    ("tolerance", "scope", "sets_aside"),
    [("none", "topic", True), ("none", "connector", False), ("all", "topic", False)],
)
def test_a_topic_is_set_aside_only_for_a_record_that_is_not_let_go(
    tolerance: str, scope: str, *, sets_aside: bool
) -> None:
    """Both settings together say so."""
    given = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
    config = ConnectorConfig.model_validate({**given, "errors.tolerance": tolerance, "errors.scope": scope})
    assert engine_settings(config).sets_topics_aside is sets_aside


@pytest.mark.parametrize(
    ("top", "own", "told"), [(0o755, 0o755, True), (0o755, 0o750, True), (0o700, 0o755, False), (0o755, 0o700, False)]
)
def test_a_folder_that_others_may_read_is_told_of(tmp_path: Path, top: int, own: int, told: bool) -> None:
    """It is left as it is, as somebody may want it so."""
    settings: dict[str, Any] = {"bootstrap.servers": "h:1", "storage.location": str(tmp_path / "store")}
    worker = WorkerConfig(**settings)
    warn_of_readers(worker, "c")  # nothing is there yet
    connector_storage(worker, "c").write("status.json", b"{}")
    (tmp_path / "store" / "c").chmod(own)
    (tmp_path / "store").chmod(top)
    with capture_logs() as lines:
        warn_of_readers(worker, "c")
    assert [line["folder"] for line in lines] == [str(tmp_path / "store" / "c")] * told
    assert (tmp_path / "store" / "c").stat().st_mode & 0o777 == own


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, False),
        ({"publish.unchanged": "skip"}, True),
        ({"compaction.fill": "unavailable", "value.converter": "keyfold.Json"}, True),
        ({"compaction.key.identity": "json"}, True),
        ({"compaction.order": "Header:Version"}, True),
        ({"compaction.order": "offset"}, False),
        ({"compaction.scope": "topic"}, True),
        ({"compaction.key.identity": "json", "state.index": "never"}, False),
        ({"state.index": "always"}, True),
    ],
)
def test_an_index_is_written_if_a_setting_needs_it(changed: dict[str, str], expected: bool) -> None:
    """With state.index=auto; what is left out is told to the engine."""
    least = {"name": "c", "connector.class": "keyfold.CompactedTopic", "topics": "t"}
    found = engine_settings(ConnectorConfig.model_validate({**least, **changed}))
    assert found.fold.has_index is expected
    assert found.skips_unchanged is ("publish.unchanged" in changed)
