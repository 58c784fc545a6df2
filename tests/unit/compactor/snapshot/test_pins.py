"""Pinned snapshots stay: retention leaves them, and either a pin or a removal comes first, never both."""

from __future__ import annotations

from pathlib import Path

import pytest

from compactor.snapshot import listing, manifest, pins
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.engine import row
from tests.support.kept_snapshots import KeptSnapshots
from tests.support.memory.storage import MemoryStorage

PATH = "c/t/20261121T023000Z-ab"


@pytest.fixture(params=["folder", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A location with one complete snapshot."""
    made: Storage = LocalStorage(str(tmp_path)) if request.param == "folder" else MemoryStorage()
    made.write(f"{PATH}/data/1.parquet", b"data")
    made.write(f"{PATH}/{manifest.NAME}", b"{}")
    return made


def test_retention_leaves_a_pinned_snapshot(tmp_path: Path) -> None:
    """It does not count either: as many others stay as are to be kept. Without its pin it goes with the next one."""
    kept = KeptSnapshots(tmp_path, snapshot_retention_count=2)
    first = kept.keep([row(0, 0, b"a", b"0")])
    assert pins.pin(kept.shelf, f"c/t/{first}", 1)
    for offset in range(1, 5):
        kept.keep([row(0, offset, b"a", b"%d" % offset)])
    assert len(kept.ids) == 3
    assert kept.ids[0] == first
    assert [each.id for each in kept.owner.catalog.state.snapshots_of("t")] == kept.ids
    assert pins.unpin(kept.shelf, f"c/t/{first}")
    last = kept.keep([row(0, 5, b"a", b"5")])
    assert (len(kept.ids), kept.ids[-1], first in kept.ids) == (2, last, False)


def test_a_pinned_snapshot_is_not_deleted(place: Storage) -> None:
    """Also if the catalog has dropped it before it was pinned; it is whole."""
    assert pins.pin(place, PATH, 0)
    assert not listing.delete(place, PATH)
    assert place.read(f"{PATH}/data/1.parquet") == b"data"
    assert pins.unpin(place, PATH)
    assert listing.delete(place, PATH)
    assert not place.walk("c")


def test_what_is_being_removed_cannot_be_pinned(place: Storage) -> None:
    """Its removal was begun and cut off: the next one goes on with it."""
    assert pins.begin_removal(place, PATH)
    assert not pins.pin(place, PATH, 0)
    assert not pins.unpin(place, PATH)
    assert listing.delete(place, PATH)


def test_what_has_gone_cannot_be_pinned(place: Storage) -> None:
    """Nothing is left in its folder by which a list would show it."""
    listing.clear(place, PATH)
    assert not pins.pin(place, PATH, 0)
    assert not place.walk(PATH)
    listing.delete(place, PATH)
    assert not pins.pin(place, PATH, 0)
    assert not place.exists(PATH)


class _LateStorage(LocalStorage):
    """A folder from which the snapshot goes right before its pin is created."""

    def create(self, path: str, data: bytes) -> bool:
        LocalStorage(self.location).delete_folder(PATH)
        return super().create(path, data)


def test_what_goes_while_it_is_pinned_leaves_no_folder(tmp_path: Path) -> None:
    """The pin was the only thing in it."""
    place = _LateStorage(str(tmp_path))
    place.write(f"{PATH}/{manifest.NAME}", b"{}")
    assert not pins.pin(place, PATH, 0)
    assert not place.exists(PATH)


def test_a_restore_takes_away_its_own_pin_only(place: Storage) -> None:
    """If a person, or another restore, has pinned the snapshot as well, it stays pinned."""
    assert pins.pin(place, PATH, 0, "A")
    assert pins.pin(place, PATH, 0, "A")
    assert not pins.unpin(place, PATH, "B")
    assert pins.unpin(place, PATH, "A")
    for other in (None, "B"):
        assert pins.pin(place, PATH, 0, "A")
        assert pins.pin(place, PATH, 0, other)
        assert not pins.unpin(place, PATH, "A")
        assert pins.is_pinned(place, PATH)
        assert pins.unpin(place, PATH)
    assert pins.pin(place, PATH, 0)
    assert pins.pin(place, PATH, 0, "A")
    assert not pins.unpin(place, PATH, "A")


def test_a_damaged_pin_keeps_its_snapshot(place: Storage) -> None:
    """What it said is not known any more."""
    place.write(f"{PATH}/{pins.PIN}", b"?")
    assert pins.is_pinned(place, PATH)
    assert not listing.delete(place, PATH)
    assert pins.unpin(place, PATH)


def test_pinning_twice_is_pinning_once(place: Storage) -> None:
    """The time of the first stays; one `unpin` ends it."""
    assert pins.pin(place, PATH, 1_000)
    assert pins.pin(place, PATH, 2_000)
    said = pins.read(place, PATH)
    assert said is not None
    assert said.pinned_at == "1970-01-01T00:00:01.000Z"
    assert [pins.unpin(place, PATH), pins.unpin(place, PATH)] == [True, False]
