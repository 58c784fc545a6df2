"""Snapshots that an erasure removes, whatever retention says."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.errors import FailpointError
from compactor.failpoints import VARIABLE
from compactor.model.actions import CloseTopic
from compactor.snapshot import listing, pins
from tests.support.engine import row
from tests.support.kept_snapshots import KeptSnapshots


def _kept(folder: Path) -> tuple[KeptSnapshots, list[str]]:
    kept = KeptSnapshots(folder, snapshot_retention_count=9)
    return kept, [kept.keep([row(0, number, b"k%d" % number, b"v")]) for number in range(3)]


def _latest(kept: KeptSnapshots) -> str:
    return listing.latest_of(kept.shelf.sub("c", "t")) or ""


def test_those_that_are_named_go_and_no_other(tmp_path: Path) -> None:
    """Of three the first two; LATEST stays, and the catalog names what is there."""
    kept, (first, second, third) = _kept(tmp_path)
    assert kept.snapshots().remove("t", {first, second, "20200101T000000Z-absent"}, kept.now_ms) == (first, second)
    assert (kept.ids, _latest(kept)) == ([third], third)
    assert [each.id for each in kept.owner.catalog.state.snapshots] == [third]


def test_another_takes_the_place_of_the_newest(tmp_path: Path) -> None:
    """Readers find a snapshot at any time."""
    kept, (first, second, third) = _kept(tmp_path)
    kept.owner.ingest([row(0, 3, b"k0", None)])
    kept.owner.publish()
    kept.owner.cleaner.clean(0)
    assert kept.snapshots().remove("t", {third}, kept.now_ms) == (third,)
    (newest,) = set(kept.ids) - {first, second}
    assert _latest(kept) == newest


def test_the_newest_stays_if_no_other_can_be_taken(tmp_path: Path) -> None:
    """Of a topic that is closed: readers go on finding what LATEST names."""
    kept, (first, second, third) = _kept(tmp_path)
    kept.owner.catalog.commit(lambda _: [CloseTopic(topic="t", reason="it was deleted")], kept.now_ms)
    assert kept.snapshots().remove("t", {first, third}, kept.now_ms) == (first,)
    assert (kept.ids, _latest(kept)) == ([second, third], third)


def test_a_pinned_one_stays(tmp_path: Path) -> None:
    """Who erases takes the pin away first."""
    kept, (first, second, third) = _kept(tmp_path)
    assert pins.pin(kept.shelf, f"c/t/{first}", 1)
    assert kept.snapshots().remove("t", {first, second}, kept.now_ms) == (second,)
    assert kept.ids == [first, third]


def test_one_of_another_catalog_stays(tmp_path: Path) -> None:
    """A folder with the mark of another catalog is not this connector's."""
    kept, (first, _, third) = _kept(tmp_path / "own")
    other, (strange, *_) = _kept(tmp_path / "other")
    (other.topic / strange).rename(kept.topic / "20200101T000000Z-other")
    removed = kept.snapshots().remove("t", {first, "20200101T000000Z-other"}, kept.now_ms)
    assert (removed, "20200101T000000Z-other" in kept.ids, third in kept.ids) == ((first,), True, True)


def test_what_was_broken_off_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the commit and the removal nothing names the folders; the next call removes them."""
    kept, (first, second, third) = _kept(tmp_path)
    monkeypatch.setenv(VARIABLE, "erase.dropped=error")
    with pytest.raises(FailpointError):
        kept.snapshots().remove("t", {first, second}, kept.now_ms)
    monkeypatch.delenv(VARIABLE)
    assert kept.ids == [first, second, third]
    assert kept.snapshots().remove("t", {first, second}, kept.now_ms) == (first, second)
    assert kept.ids == [third]
