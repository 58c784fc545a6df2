"""What the page shows of a connector that nothing runs."""

from __future__ import annotations

import threading
from pathlib import Path

from msgspec.structs import replace

from compactor.catalog import commits
from compactor.catalog.catalog import Catalog
from compactor.model.actions import AddPartition, AddSnapshot, AddTopic
from compactor.model.state import CatalogState
from compactor.storage.base import Storage
from connectors.ui.stored_catalogs import KEPT_MS, MOST_KEPT, MOST_READS, StoredCatalogs
from tests.support.browser import browse, words
from tests.support.clocks import ManualClock
from tests.support.kafka import wait_until
from tests.support.measured import connector, state, stopped
from tests.support.rest import RestWorker


def keep(storage: Storage) -> None:
    """Keeps a topic with a partition and a snapshot."""
    catalog = Catalog.open(storage, "a")
    catalog.take_over("w:1", 1)
    catalog.commit(
        lambda _: (
            AddTopic(topic="devices", topic_id="id-t", output="devices.kept", output_id="id-o"),
            AddPartition(topic="devices", partition=0, bucket=0, start=0),
            AddSnapshot(
                topic="devices", id="7", path="a/devices/7", created_ms=1, source_offsets={}, records=70, bytes=9
            ),
        ),
        1,
    )


def test_a_stopped_connector_shows_what_is_kept_of_it(worker: RestWorker, tmp_path: Path) -> None:
    """Its partitions, topics and snapshots, and no figure that nothing counts."""
    worker.create("a", **{"snapshot.location": str(tmp_path / "snapshots")})
    keep(worker.location.sub("a"))
    worker.ask("PUT", "/connectors/a/stop")
    page = words(browse(worker, "/ui/connectors/a").text)
    assert "as its storage has them" in page
    assert "devices devices.kept read" in page
    assert "devices / 0" in page
    assert f"{tmp_path}/snapshots/a/devices/7/data" in page
    for figure in ("Unpublished", "Oldest waits", "Read since start", "Published since start", "Full folds"):
        assert f"{figure} —" in page
    for false in ("No partition is known", "No topic has been read", "No snapshot is kept", "0 s"):
        assert false not in page


def test_a_connector_that_never_ran_says_so(worker: RestWorker) -> None:
    """Its storage answers, and has nothing."""
    worker.create("a")
    worker.ask("PUT", "/connectors/a/stop")
    page = words(browse(worker, "/ui/connectors/a").text)
    assert "No partition is known yet" in page
    assert "No snapshot is kept." in page


def test_a_catalog_that_cannot_be_read_is_not_an_empty_one(worker: RestWorker) -> None:
    """The page says that nothing is shown, and not that there is nothing."""
    worker.create("a")
    worker.ask("PUT", "/connectors/a/stop")
    storage = worker.location.sub("a")
    keep(storage)
    for name in storage.list(commits.FOLDER):
        storage.write(f"{commits.FOLDER}/{name}", b"damaged")
    page = words(browse(worker, "/ui/connectors/a").text)
    assert "Not shown while nothing runs it" in page
    assert "No partition is known" not in page
    assert "No snapshot is kept" not in page


def test_a_catalog_is_read_once_for_a_while() -> None:
    """And again later, or once the connector has run."""
    reads: list[str] = []
    clock = ManualClock()
    stored = StoredCatalogs(lambda name: _counted(reads, name), clock)
    assert stored.of(stopped("a")).state is not None
    assert stored.of(stopped("a")).state is not None
    assert len(reads) == 1
    assert stored.of(connector("a", state())).state is None
    stored.of(stopped("a"))
    assert len(reads) == 2
    clock.sleep_ms(KEPT_MS)
    stored.of(stopped("a"))
    assert len(reads) == 3


def test_the_catalogs_that_are_kept_are_few() -> None:
    """The one that was read first is read again."""
    reads: list[str] = []
    stored = StoredCatalogs(lambda name: _counted(reads, name), ManualClock())
    for number in range(MOST_KEPT + 1):
        stored.of(stopped(f"c{number}"))
    stored.of(stopped("c0"))
    assert reads.count("c0") == 2
    assert reads.count(f"c{MOST_KEPT}") == 1


def test_a_store_that_hangs_holds_few_threads() -> None:
    """No more reads are begun, and no page waits for one that another has begun."""
    reads: list[str] = []
    release = threading.Event()

    def hang(name: str) -> CatalogState:
        reads.append(name)
        release.wait(30)
        return CatalogState()

    stored = StoredCatalogs(hang, ManualClock(), wait_s=0.01)
    try:
        for number in range(2 * MOST_READS):
            assert stored.of(stopped(f"c{number}")).state is None
            assert stored.of(stopped(f"c{number}")).state is None
        assert len(reads) == MOST_READS
    finally:
        release.set()
    wait_until(lambda: stored.of(stopped("c0")).state is not None, "it is read after all")


def _counted(reads: list[str], name: str) -> CatalogState:
    reads.append(name)
    return replace(CatalogState(), buckets=1)
