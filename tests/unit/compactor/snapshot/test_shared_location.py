"""Several catalogs may share a snapshot location: each removes only what is its own, and says what it removes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.catalog.catalog import Catalog
from compactor.errors import FencedError, SnapshotError, SnapshotStorageError, StorageError
from compactor.snapshot import listing, location, manifest
from compactor.snapshot.location import snapshot_storage
from compactor.storage.local import LocalStorage
from tests.support.memory.storage import MemoryStorage
from tests.support.snapshot_connectors import HOUR, SnapshotConnector, begin_snapshot


def _pair(monkeypatch: pytest.MonkeyPatch, place: Any = None) -> tuple[SnapshotConnector, SnapshotConnector]:
    """Two connectors of one name, each with a catalog of its own, and one snapshot location."""
    shared = place or MemoryStorage()
    return SnapshotConnector(monkeypatch, shared), SnapshotConnector(monkeypatch, shared)


def _said(logs: list[Any], event: str) -> list[tuple[Any, Any]]:
    return [(one["id"], one.get("why")) for one in logs if one["event"] == event]


def test_a_second_catalog_takes_no_snapshots_in_the_folder_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the first has taken stays, LATEST as well; both catalogs are named; the first goes on."""
    first, second = _pair(monkeypatch)
    assert first.take(0)
    kept = first.complete()
    assert not second.take(HOUR)
    assert (first.complete(), first.latest()) == (kept, kept[0])
    trouble = location.read_note(second.storage)
    assert trouble is not None
    assert all(text in trouble.error for text in (first.catalog_id, second.catalog_id, "snapshot.location"))
    assert location.MARK in trouble.error
    with pytest.raises(SnapshotError, match="takes no snapshots in"):
        second.snapshots.take(HOUR)
    second.begin()
    assert first.latest() == kept[0]
    assert first.take(HOUR)
    assert first.complete() == [first.latest()] != kept


def test_a_new_catalog_goes_on_once_the_folder_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the mark of the folder: LATEST is the new one's, the old one's snapshots stay and are named once."""
    first, second = _pair(monkeypatch)
    assert first.take(0)
    kept = first.latest()
    first.place.delete(f"c/{location.MARK}")
    with capture_logs() as logs:
        assert second.take(HOUR)
        assert second.take(2 * HOUR)
    assert _said(logs, "snapshot of another catalog is left as it is") == [(kept, None)]
    assert second.complete() == [kept, second.latest()]
    assert listing.list_others(second.place, second.catalog.state, "t") == (kept,)
    newest = second.latest()
    first.begin()
    assert not first.take(3 * HOUR)
    assert second.latest() == newest


def test_a_folder_that_is_given_away_meanwhile_keeps_its_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a snapshot's commit and LATEST it is looked at once more whose the folder is."""
    first, second = _pair(monkeypatch)
    assert first.take(0)

    def give_away() -> None:
        first.place.delete(f"c/{location.MARK}")
        assert second.take(HOUR)

    first.place.before("list", give_away, "c/t")
    assert first.take(HOUR)
    assert second.latest() == second.catalog.state.snapshots[-1].id


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("ours, begun", "it was never completed"),
        ("ours, complete", "the catalog does not name it"),
        ("ours, its mark lost", "the catalog does not name it"),
        ("another's, begun", None),
        ("another's, complete", None),
        ("of an older keyfold", None),
        ("damaged", None),
        ("not even begun", None),
    ],
)
def test_only_what_is_provably_ours_goes(monkeypatch: pytest.MonkeyPatch, what: str, why: str | None) -> None:
    """By the mark of its folder, or by its manifest's catalog; whatever is left is named in the log."""
    first, second = _pair(monkeypatch)
    maker = second if what.startswith("another") else first
    name = "19690101T000000Z-aaaaaa"
    path = begin_snapshot(maker.catalog.state, first.place, maker.storage, name)
    if "complete" in what:
        first.place.write(f"{path}/{manifest.NAME}", b"{}")
    if what in ("ours, its mark lost", "of an older keyfold"):
        assert first.take(0)
        text = first.place.read(f"c/t/{first.latest()}/{manifest.NAME}")
        old = replace(manifest.decode(text), catalog_id=None if "older" in what else first.catalog_id)
        first.place.write(f"{path}/{manifest.NAMES[1]}", manifest.encode(old))
        first.place.delete(f"{path}/{location.MARK}")
    if what == "damaged":
        first.place.write(f"{path}/{location.MARK}", b"{")
        first.place.write(f"{path}/{manifest.NAME}", b"{")
    if what == "not even begun":
        first.place.delete(f"{path}/{location.MARK}")
    with capture_logs() as logs:
        assert first.take(HOUR)
    assert ((name, why) in _said(logs, "snapshot removed")) is (why is not None)
    assert bool(first.place.walk(path)) is (why is None)


def test_what_a_restored_catalog_does_not_know_stays_while_it_is_among_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A complete snapshot of its own from after the copy was made goes once as many newer ones are there."""
    (world, _) = _pair(monkeypatch)
    path = begin_snapshot(world.catalog.state, world.place, world.storage, "20250101T000000Z-aaaaaa")
    world.place.write(f"{path}/{manifest.NAME}", b"{}")
    assert world.take(HOUR)
    assert world.place.exists(f"{path}/{manifest.NAME}")
    assert world.take(1_800_000_000_000)
    assert not world.place.walk(path)


def test_a_removal_that_was_broken_off_is_finished_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark goes last, so that what is left of a snapshot is still known to be ours."""
    (world, _) = _pair(monkeypatch)

    def break_off() -> None:
        raise StorageError("Could not delete.")

    assert world.take(0)
    first = world.latest()
    world.place.before("delete_folder", break_off)
    assert world.take(HOUR)
    assert first not in world.complete()
    assert world.place.walk(f"c/t/{first}")
    with capture_logs() as logs:
        assert world.take(2 * HOUR)
    assert (first, "it was never completed") in _said(logs, "snapshot removed")
    assert not world.place.walk(f"c/t/{first}")


def test_every_snapshot_that_is_taken_or_removed_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """At info, with the topic, the id, and why it went."""
    (world, _) = _pair(monkeypatch)
    world.take(0)
    first = world.latest()
    with capture_logs() as logs:
        world.take(HOUR)
    assert _said(logs, "snapshot taken") == [(world.latest(), None)]
    assert _said(logs, "snapshot removed") == [(first, "beyond snapshot.retention.count")]
    assert {(one["log_level"], one["topic"]) for one in logs if one["event"].startswith("snapshot ")} == {("info", "t")}
    with capture_logs() as logs:
        world.place.before("write", lambda: (_ for _ in ()).throw(StorageError("Full.")), manifest.NAME)
        world.take(2 * HOUR)
    assert [why for _, why in _said(logs, "snapshot removed")] == ["it could not be completed"]


def test_a_mark_that_cannot_be_read_is_nobodys_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged mark may be another's: nothing is written there until a person has looked."""
    (world, _) = _pair(monkeypatch)
    world.place.write(f"c/{location.MARK}", b"\xff{")
    assert not world.take(0)
    assert [info.path for info in world.place.walk("")] == [f"c/{location.MARK}"]


def test_a_topic_whose_snapshot_fails_alone_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others' are taken when they are due, and not more often; its own is tried again alone, later and later."""
    world = SnapshotConnector(monkeypatch, topics=("t", "u"))
    world.refused["t"] = SnapshotError("Not UTF-8.")
    tries = []
    for minute in range(70):
        before = len(world.tried)
        world.take(minute * 60_000)
        tries += [(minute, topic) for topic in world.tried[before:]]
    assert tries == [
        *((0, topic) for topic in "tu"),
        *((minute, "t") for minute in (1, 3, 7, 15, 31)),
        (60, "u"),
        (63, "t"),
    ]
    found = location.read_note(world.storage)
    assert found is not None
    assert (found.failures, found.error) == (7, "Not UTF-8.")
    world.refused.clear()
    assert world.take(63 * 60_000 + HOUR)
    assert location.read_note(world.storage) is None


def test_two_topics_that_fail_wait_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who failed first is not tried again because another fails; one that is closed is no trouble any more."""
    world = SnapshotConnector(monkeypatch, topics=("t", "u", "v"))
    world.refused = {"t": SnapshotError("T."), "u": SnapshotError("U.")}
    assert not world.take(0)
    assert world.tried == ["t", "u", "v"]
    assert not world.take(30_000)
    del world.refused["t"]
    assert not world.take(60_000)
    assert world.tried[3:] == ["t", "u"]
    world.refused.clear()
    assert world.take(4 * 60_000)
    assert world.tried[5:] == ["u"]
    assert location.read_note(world.storage) is None


def test_current_leads_to_the_newest_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Beside LATEST, and set right by the next vacuum where a life ended before it was, or slept."""
    world = SnapshotConnector(monkeypatch, LocalStorage(str(tmp_path)))
    assert world.take(0)
    current = tmp_path / "c/t/current"
    assert current.resolve() == tmp_path / "c/t" / world.latest() / "data"
    first = world.latest()
    world.place.before("link", lambda: (_ for _ in ()).throw(StorageError("Denied.")))
    world.snapshots = world.begin(snapshot_retention_count=2)
    world.place.before("link", lambda: (_ for _ in ()).throw(StorageError("Denied.")))
    assert world.take(HOUR)
    assert world.latest() != first == current.resolve().parent.name
    world.place.plan.clear()
    world.snapshots.repair()
    assert current.resolve().parent.name == world.latest()
    assert (current / "1.parquet").read_bytes() == b"data"


def test_a_folder_called_current_stops_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What somebody else has put there stays; snapshots are taken, LATEST follows, and old ones go."""
    world = SnapshotConnector(monkeypatch, LocalStorage(str(tmp_path)))
    (tmp_path / "c/t/current").mkdir(parents=True)
    (tmp_path / "c/t/current/mine").touch()
    for hour in range(3):
        assert world.take(hour * HOUR)
    assert world.complete() == [world.latest()]
    assert (tmp_path / "c/t/current/mine").exists()


def test_the_mark_of_a_folder_is_no_topics_name() -> None:
    """A topic of that name would need a folder where the mark is: Kafka allows none."""
    from connectors.config.fields import check_topic

    with pytest.raises(ValueError, match="no topic name"):
        check_topic(location.MARK)


def test_the_location_itself_is_a_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose a snapshot is, is asked of the location: what that refuses is its own error."""
    (world, _) = _pair(monkeypatch)
    world.place.before("exists", lambda: (_ for _ in ()).throw(StorageError("Away.")))
    with pytest.raises(SnapshotStorageError, match="Away"):
        location.claim(snapshot_storage(world.place), world.catalog.state, world.storage)


def test_a_worker_that_was_frozen_before_the_manifest_takes_its_snapshot_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer owner has removed what was begun of it: a manifest without its data must not stay there."""
    world = SnapshotConnector(monkeypatch)
    newer = Catalog.open(world.storage, "c")

    def taken_over() -> None:
        newer.take_over("newer", HOUR)

    world.place.before("write", taken_over, manifest.NAME)
    with pytest.raises(FencedError):
        world.snapshots.take(HOUR)
    assert world.place.list("c/t") == []
