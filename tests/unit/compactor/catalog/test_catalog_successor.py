"""An owner whose catalog is lost, and made again by another one, at whatever version: it ends and damages nothing.

    A  owns the catalog and stands at version N; it sleeps before one of its calls of the store
    B  the folder is lost; B makes a new catalog in it and comes to version M
    A  wakes up and goes on with a commit, a checkpoint, a vacuum or a look at the epoch

At M = N nothing but the content of N tells the two catalogs apart: A's commit N + 1 would follow B's N, A's vacuum
would remove B's files, and A's checkpoint would be read in place of B's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import pytest

from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import (
    CHECKPOINT_EVERY,
    FOLDER,
    TRIM_GRACE_MS,
    checkpoint_path,
    commit_path,
    list_versions,
)
from compactor.catalog.history import newest_epoch
from compactor.clean.vacuum import vacuum
from compactor.errors import FencedError, KeyfoldError
from compactor.storage.base import Storage
from tests.support.catalogs import NOW, append, end, grow, owned
from tests.support.clocks import ManualClock
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer

AWAKE: Final = NOW + 10 * TRIM_GRACE_MS
N: Final = 12
"""The version at which A sleeps, if it makes no checkpoint."""
BEFORE_A_CHECKPOINT: Final = CHECKPOINT_EVERY - 1
WAIT_S: Final = 60.0

Act = Callable[[Catalog], object]


class SteppedStorage(FailingStorage):
    """A store before whose call number `stop` (from 1) `act` is done once; it counts its calls."""

    def __init__(self, inner: Storage, stop: int = 0, act: Callable[[], object] = lambda: None) -> None:
        super().__init__(inner)
        self.calls = 0
        self.stop = stop
        self.act = act

    def _happen(self, when: str, method: str, path: str) -> None:
        if when == "before":
            self.calls += 1
            if self.calls == self.stop:
                self.act()


class Asleep:
    """Lets `owner` do `act` in a thread of its own, which sleeps before its call number `stop` until it is woken up."""

    def __init__(self, owner: Catalog, act: Act, stop: int) -> None:
        self._reached, self._go = threading.Event(), threading.Event()
        sleeps_at(owner, stop, self._sleep)
        self._thread = threading.Thread(target=self._run, args=(owner, act))
        self._thread.start()
        assert self._reached.wait(WAIT_S)

    def wake(self) -> None:
        """Lets it go on, to its end."""
        self._go.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()

    def _run(self, owner: Catalog, act: Act) -> None:
        with suppress(KeyfoldError):
            act(owner)
        self._reached.set()

    def _sleep(self) -> None:
        self._reached.set()
        assert self._go.wait(WAIT_S)


class Successor:
    """Loses the storage, and makes a new catalog of `versions` versions in it, with a file for each of its commits."""

    def __init__(self, inner: MemoryStorage, versions: int) -> None:
        self._inner = inner
        self._versions = versions
        self.catalog: Catalog | None = None

    def __call__(self) -> None:
        self._inner.delete_folder("")
        self.catalog = owned(self._inner, AWAKE, "host:9")
        for _ in range(self._versions - self.catalog.version):
            commit(self.catalog)

    def goes_on(self, commits: int = CHECKPOINT_EVERY + 2) -> None:
        """Checks that it commits as if nothing had happened, and that readers find what it has, with all files."""
        catalog = self.catalog
        assert catalog is not None
        assert Catalog.open(self._inner, "c").state == catalog.state
        for _ in range(commits):
            commit(catalog)
        assert Catalog.open(self._inner, "c").state == catalog.state
        assert newest_epoch(self._inner, catalog.state.catalog_id) == catalog.epoch
        assert [path for path in catalog.state.paths if not self._inner.exists(path)] == []
        listing = list_versions(self._inner)
        assert listing.holds(catalog.version)
        for version in listing.checkpoints:
            self._inner.delete(commit_path(version))  # what is read then is the checkpoint
        assert Catalog.open(self._inner, "c").state == catalog.state


def commit(catalog: Catalog) -> None:
    """Writes a file that nobody else writes, and commits it."""
    offset = end(catalog.state)
    path = f"runs/1-{catalog.state.catalog_id[:8]}-{offset}.parquet"
    catalog.storage.create(path, b"x")
    catalog.commit(lambda state: [append(end(state) + 1, path)], AWAKE)


def clean_up(catalog: Catalog) -> None:
    """Removes files that nothing names, as the vacuum does."""
    vacuum(catalog.storage, catalog, AWAKE + 2 * TRIM_GRACE_MS, TRIM_GRACE_MS)


def look(catalog: Catalog) -> None:
    """Looks whether the epoch is still the newest, as each publish does; the publish ends if it is not."""
    if newest_epoch(catalog.storage, catalog.state.catalog_id) < catalog.epoch:
        raise FencedError("The catalog is gone.")


def refresh(catalog: Catalog) -> None:
    """Reads what others have committed."""
    catalog.refresh()


ACTS: Final[Sequence[tuple[str, int, Act]]] = (
    ("a commit", N, commit),
    ("a checkpoint", BEFORE_A_CHECKPOINT, commit),
    ("a vacuum", N, clean_up),
    ("a look at the epoch", N, look),
    ("a refresh", N, refresh),
)


def sleeper(inner: MemoryStorage, version: int, stop: int = 0, act: Callable[[], object] = lambda: None) -> Catalog:
    """Returns the owner of a catalog at `version`, with a call at which it sleeps, counted from now."""
    made = owned(inner)
    grow(made, version - made.version)
    owner = stepped(made, inner)
    sleeps_at(owner, stop, act)
    return owner


def stepped(catalog: Catalog, inner: MemoryStorage) -> Catalog:
    """Returns the same owner over a store whose calls are counted."""
    owner = Catalog.open(SteppedStorage(inner), "c")
    owner.epoch = catalog.epoch
    return owner


def sleeps_at(owner: Catalog, stop: int, act: Callable[[], object]) -> None:
    """Has `act` done before call number `stop` of the owner's store, counted from now."""
    storage = owner.storage
    assert isinstance(storage, SteppedStorage)
    storage.calls, storage.stop, storage.act = 0, stop, act


@pytest.mark.parametrize(("version", "act"), [rest for _, *rest in ACTS], ids=[name for name, *_ in ACTS])
@pytest.mark.parametrize("ahead", [-1, 0, 1, CHECKPOINT_EVERY, 4 * CHECKPOINT_EVERY])
def test_an_owner_ends_once_another_catalog_is_in_the_place_of_its_own(version: int, act: Act, ahead: int) -> None:
    """Whatever it does first, at whatever version the other catalog is, and whatever epoch that has."""
    inner = MemoryStorage(ManualClock(NOW))
    owner = sleeper(inner, version)
    successor = Successor(inner, version + ahead)
    successor()
    for _ in range(2):
        with pytest.raises(FencedError, match="is gone"):
            act(owner)
    successor.goes_on()


def test_an_owner_removes_no_commits_of_the_catalog_in_the_place_of_its_own() -> None:
    """They have the numbers of its own, of which the first are needed no more."""
    inner = MemoryStorage(ManualClock(NOW))
    owner = sleeper(inner, 2 * CHECKPOINT_EVERY + 3)
    successor = Successor(inner, 30)
    successor()
    with pytest.raises(FencedError, match="is gone"):
        owner.trim(AWAKE + 2 * TRIM_GRACE_MS)
    assert list_versions(inner).commits == tuple(range(1, 31))
    successor.goes_on()


def test_who_creates_a_catalog_does_not_take_the_first_commit_of_another_for_its_own() -> None:
    """It sleeps after its create; the storage is lost, and another creates its catalog there."""
    inner = MemoryStorage()
    storage, others = FailingStorage(inner), Catalog.open(MemoryStorage(), "c")

    def lose() -> None:
        nonlocal others
        inner.delete_folder("")
        others = Catalog.open(inner, "c")
        others.take_over("host:9", AWAKE)

    storage.after("create", lose, commit_path(1))
    with pytest.raises(FencedError):
        Catalog.open(storage, "c").take_over("host:1", NOW)
    assert Catalog.open(inner, "c").state == others.state


def test_an_owner_that_sleeps_at_a_checkpoint_leaves_one_that_nobody_reads() -> None:
    """It is passed over while the other catalog is below it, and replaced once that comes to its number."""
    inner = MemoryStorage(ManualClock(NOW))
    successor = Successor(inner, 30)
    owner = sleeper(inner, BEFORE_A_CHECKPOINT)
    sleeps_at(owner, calls_of(BEFORE_A_CHECKPOINT, commit, until=checkpoint_path(50)), successor)
    with suppress(KeyfoldError):
        commit(owner)
    assert list_versions(inner).checkpoints == (50,)
    assert newest_epoch(inner) == 1
    assert Catalog.open(inner, "c").version == 30
    successor.goes_on()


def test_a_commit_does_not_follow_a_checkpoint_that_was_made_too_late() -> None:
    """The owner does not hear that its catalog is gone, as the store fails, and commits on top of its checkpoint."""
    inner = MemoryStorage(ManualClock(NOW))
    storage, made = FailingStorage(inner), owned(inner)
    grow(made, BEFORE_A_CHECKPOINT - made.version)
    owner = Catalog.open(storage, "c")
    owner.epoch = made.epoch
    successor = Successor(inner, 30)
    storage.before("create", successor, checkpoint_path(50))
    storage.before("walk", lose_answer, FOLDER)
    commit(owner)
    assert (list_versions(inner).checkpoints, owner.version) == ((50,), 50)
    for act in (commit, commit, refresh, look):
        with pytest.raises(FencedError):
            act(owner)
    successor.goes_on()


def calls_of(version: int, act: Act, until: str = "") -> int:
    """Counts the calls of the store that `act` takes; with `until`, those up to the one that creates this path."""
    owner = sleeper(MemoryStorage(ManualClock(NOW)), version)
    storage = owner.storage
    assert isinstance(storage, SteppedStorage)
    at: list[int] = []
    before = storage.create

    def create(path: str, data: bytes) -> bool:
        if path == until:
            at.append(storage.calls + 1)
        return before(path, data)

    storage.create = create  # type: ignore[method-assign]  # of this one object
    act(owner)
    return at[0] if at else storage.calls


@pytest.mark.parametrize(("version", "act"), [rest for _, *rest in ACTS], ids=[name for name, *_ in ACTS])
def test_an_owner_may_sleep_before_any_call(version: int, act: Act) -> None:
    """The successor goes on, wherever the owner slept and at whatever version it finds the successor."""
    for stop in range(1, calls_of(version, act) + 1):
        for versions in (2, version - 1, version, version + 1, version + 2, CHECKPOINT_EVERY + 1):
            inner = MemoryStorage(ManualClock(NOW))
            successor = Successor(inner, versions)
            owner = sleeper(inner, version, stop, successor)
            with suppress(KeyfoldError):
                act(owner)
            for after in (clean_up, refresh, look):
                with pytest.raises(FencedError):
                    after(owner)
            successor.goes_on()


@pytest.mark.parametrize("version", [N, BEFORE_A_CHECKPOINT], ids=["a commit", "a checkpoint"])
def test_an_owner_may_wake_up_before_any_call_of_its_successor(version: int) -> None:
    """Both commit the same version: the successor's counts, whatever call of either comes first."""
    for stop in range(1, calls_of(version, commit) + 1):
        for meets in range(1, calls_of(version, commit) + 1):
            inner = MemoryStorage(ManualClock(NOW))
            sleeping = Asleep(sleeper(inner, version), commit, stop)
            successor = Successor(inner, version)
            successor()
            assert successor.catalog is not None
            successor.catalog = stepped(successor.catalog, inner)
            sleeps_at(successor.catalog, meets, sleeping.wake)
            commit(successor.catalog)
            sleeping.wake()
            successor.goes_on(commits=2)
