"""What the page of a connector shows of its partitions, topics and snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from compactor.model.log import Quarantined
from compactor.model.record import TopicPartition
from compactor.model.state import CatalogState, Topic
from connectors.metrics.measured import measured
from connectors.metrics.source_lag import SourceLag
from connectors.runtime.supervised_connector import Connector
from connectors.ui.conditions import LATE_MS
from connectors.ui.detail import PAGE_PARTITIONS, PAGE_SNAPSHOTS, Detail, detail
from connectors.ui.shown_settings import setting_groups
from tests.support.logs import base, log, run
from tests.support.measured import NOW_MS, connector, snapshot, state

DIRTY = log(run(100, 150, 9_000), clean=base(100, 1_200), published=150, tp=TopicPartition("t", 0))
CLEAN = log(clean=base(100, 1_200), published=100, tp=TopicPartition("t", 1))


def shown(made: Connector, page: int = 1, behind: int = 0) -> Detail:
    """The page of a connector, of which partition 0 is `behind` its source."""
    lag = {TopicPartition("t", 0): SourceLag(behind, None), TopicPartition("t", 1): SourceLag(0, None)}
    return detail(made, measured(made, lag), NOW_MS, LATE_MS, page)


def test_a_partition_says_when_it_is_folded_and_why() -> None:
    """The ratio, the mark and the cleaner's own reason."""
    page = shown(connector("a", state(DIRTY, CLEAN), **{"fold.full.interval.ms": str(2 * NOW_MS)}), behind=30)
    dirty, clean = page.partitions
    assert (dirty.is_due, clean.is_due, page.due_mark) == (True, False, 0.5)
    assert "above min.cleanable.dirty.ratio 0.5" in dirty.log.fold.text
    assert (dirty.log.source_end, dirty.log.lag, clean.log.lag) == (180, 30, 0)


@pytest.mark.parametrize(
    ("behind", "share", "full"), [(0, 0, 1_000), (14, 1, 1_000), (1_000, 100, 1_000), (7_000, 100, 7_000)]
)
def test_a_bar_of_lag_is_a_share_of_the_largest(behind: int, share: int, full: int) -> None:
    """Or of a thousand offsets: a few alarm nobody."""
    page = shown(connector("a", state(DIRTY, CLEAN)), behind=behind)
    assert ([each.lag_share for each in page.partitions], page.full_lag) == ([share, 0], full)


def test_a_quarantine_is_shown_with_its_error() -> None:
    """It says since when, and what is damaged."""
    aside = Quarantined(since_ms=NOW_MS, retry_ms=NOW_MS, failures=2, error="runs/x is damaged")
    page = shown(connector("a", state(replace(CLEAN, quarantine=aside))))
    assert page.partitions[0].log.quarantine == aside
    assert "1 in quarantine" in [pill.text for pill in page.row.pills]


def test_many_partitions_have_pages() -> None:
    """A connector of thousands does not make a page of megabytes."""
    logs = [log(clean=base(1, 1), tp=TopicPartition("t", number)) for number in range(PAGE_PARTITIONS + 1)]
    page = shown(connector("a", state(*logs)), page=2)
    assert ([each.log.partition for each in page.partitions], page.page, page.pages) == ([PAGE_PARTITIONS], 2, 2)


def test_a_connector_without_a_catalog_has_a_page() -> None:
    """One that has never run, or is stopped."""
    page = shown(connector("a", None))
    assert (page.partitions, page.topics, page.snapshots, page.folds.last_ms) == ((), (), (), None)


def test_a_topic_that_is_not_read_says_why() -> None:
    """With what to do, if something has to be done."""
    topics = {
        name: Topic(topic=name, topic_id=name, output=f"{name}.compacted", output_id=None, closed=closed)
        for name, closed in (("open", None), ("gone", "deleted"), ("other", "recreated"))
    }
    page = shown(connector("a", CatalogState(topics=topics)))
    assert [(each.topic, each.output) for each in page.topics] == [
        ("gone", "gone.compacted"), ("open", "open.compacted"), ("other", "other.compacted")
    ]  # fmt: skip
    gone, is_read, other = (each.closed for each in page.topics)
    assert (gone, is_read) == ("deleted", None)
    assert other is not None
    assert "with a new name" in other


def test_snapshots_have_the_line_that_opens_them(tmp_path: Path) -> None:
    """The newest first, at most so many; where a placeholder names their place, that is not told."""
    taken = [replace(snapshot(ms, 5), path=f"a/t/{ms}") for ms in range(PAGE_SNAPSHOTS + 2)]
    place = {"snapshot.location": str(tmp_path)}
    page = shown(connector("a", state(snapshots=taken), **place))
    newest = page.snapshots[0]
    assert (newest.is_newest, newest.taken.created_ms, page.more_snapshots) == (True, PAGE_SNAPSHOTS + 1, 2)
    assert newest.opening == f"duckdb -c \"SELECT * FROM '{tmp_path}/{newest.taken.path}/data/**/*.parquet' LIMIT 10\""
    assert shown(connector("a", state(snapshots=taken))).snapshots[0].opening is None
    hidden = tmp_path / "place.properties"
    hidden.write_text(f"place={tmp_path}")
    config = {"snapshot.location": f"${{file:{hidden}:place}}"}
    assert shown(connector("a", state(snapshots=taken), **config)).snapshots[0].opening is None


def test_each_setting_has_its_meaning() -> None:
    """Those that are set are told from defaults; settings of classes have what the class says."""
    config = {
        "name": "a",
        "topics": "t",
        "transforms": "d",
        "transforms.d.type": "keyfold.DropHeaders",
        "transforms.d.headers": "x",
        "min.cleanable.dirty.ratio": "0.9",
    }
    rows = {row.name: row for group in setting_groups(config) for row in group.rows}
    assert (rows["min.cleanable.dirty.ratio"].value, rows["min.cleanable.dirty.ratio"].is_default) == ("0.9", False)
    assert (rows["delete.retention.ms"].value, rows["delete.retention.ms"].is_default) == ("86400000", True)
    assert all(row.meaning for row in rows.values())
    assert (rows["transforms.d.headers"].value, rows["transforms.d.headers"].is_default) == ("x", False)
