"""What two owners, a sleeping owner and a failing store can do to a catalog, schedule by schedule."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from compactor import failpoints
from compactor.catalog.aside import LOST, set_aside
from compactor.catalog.catalog import CREATE_ATTEMPTS, Catalog
from compactor.catalog.commits import CHECKPOINT_EVERY, FOLDER, TRIM_GRACE_MS, commit_path, list_versions
from compactor.catalog.history import ATTEMPTS, newest_epoch
from compactor.errors import (
    CatalogError,
    FailpointError,
    FencedError,
    HiddenCatalogError,
    OutcomeUnknownError,
    StorageError,
)
from compactor.model.actions import AnyAction, SetBuckets
from compactor.model.state import CatalogState
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.catalogs import NOW, append, deciding, end, grow, owned
from tests.support.clocks import ManualClock
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer

AWAKE = NOW + 10 * TRIM_GRACE_MS


class Hiding(FailingStorage):
    """A store whose lists leave `hidden` out, for `lists_left` times; negative: until it is 0."""

    def __init__(self, inner: Storage, hidden: set[str]) -> None:
        super().__init__(inner)
        self._hidden = hidden
        self.lists_left = -1

    def list(self, folder: str) -> list[str]:
        names = super().list(folder)
        if not self.lists_left:
            return names
        self.lists_left -= 1
        return [name for name in names if name not in self._hidden]


def one_more(state: CatalogState) -> Sequence[AnyAction]:
    """The next offset."""
    return [append(end(state) + 1)]


def up_to(offset: int) -> Callable[[CatalogState], Sequence[AnyAction]]:
    """As ingest decides: what the log has already is not taken again."""
    return lambda state: [append(offset, start=end(state))] if end(state) < offset else []


def others_go_on(storage: Storage, clock: ManualClock) -> Catalog:
    """Another owner takes over, commits a lot, and the old versions are removed."""
    clock.at_ms = AWAKE
    other = owned(storage, AWAKE, "host:2")
    grow(other, 4 * CHECKPOINT_EVERY, AWAKE)
    other.trim(AWAKE + 2 * TRIM_GRACE_MS)
    return other


def sleeper() -> tuple[Catalog, FailingStorage, MemoryStorage, ManualClock]:
    """An owner at version 12 whose storage a test can let sleep."""
    clock = ManualClock(NOW)
    inner = MemoryStorage(clock)
    storage = FailingStorage(inner)
    old = owned(storage)
    grow(old, 10)
    return old, storage, inner, clock


def test_sleeper_before_its_create_is_fenced() -> None:
    """C1 succeeds under a number that is free again; the list shows the others, and no reader ever sees the file."""
    old, storage, inner, clock = sleeper()
    storage.before("create", lambda: others_go_on(inner, clock), commit_path(13))
    with pytest.raises(FencedError, match="host:2"):
        old.commit(up_to(99), NOW)
    assert b'"epoch":1' in inner.read(commit_path(13))  # the sleeper's, and it counts for nothing
    truth = Catalog.open(inner, "c")
    assert (truth.version, end(truth.state), truth.state.owner) == (213, 210, "host:2")
    assert newest_epoch(inner) == 2


def test_sleepers_file_misleads_no_reader_that_lags() -> None:
    """A reader that stands just below the sleeper's number goes on from the checkpoint, not from that file."""
    old, storage, inner, clock = sleeper()
    beside = Catalog.open(inner, "c")
    storage.before("create", lambda: others_go_on(inner, clock), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(up_to(99), NOW)
    assert beside.refresh() == Catalog.open(inner, "c").state


def test_sleepers_file_is_removed() -> None:
    """What a sleeper left behind goes like any old version."""
    old, storage, inner, clock = sleeper()
    storage.before("create", lambda: others_go_on(inner, clock), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(up_to(99), NOW)
    owned(inner, AWAKE).trim(AWAKE + 5 * TRIM_GRACE_MS)
    assert not inner.exists(commit_path(13))


def test_sleeper_after_its_create_has_committed() -> None:
    """Who sleeps between C1 and C2 is fenced, and the new owner has the commit."""
    old, storage, inner, clock = sleeper()
    storage.after("create", lambda: others_go_on(inner, clock), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(lambda state: [SetBuckets(count=7)], NOW)
    assert Catalog.open(inner, "c").state.buckets == 7


def test_sleeper_with_a_lost_answer_is_fenced_too() -> None:
    """A sleeper that finds its own file after a lost answer still lists, and believes nothing."""
    old, storage, inner, clock = sleeper()
    storage.before("create", lambda: others_go_on(inner, clock), commit_path(13))
    storage.after("create", lose_answer, commit_path(13))
    with pytest.raises(FencedError):
        old.commit(up_to(99), NOW)


def test_take_over_that_slept_is_fenced() -> None:
    """A take-over under a number that is free again does not own: its epoch number was given away meanwhile."""
    _, storage, inner, clock = sleeper()
    late = Catalog.open(storage, "c")
    storage.before("create", lambda: others_go_on(inner, clock), commit_path(13))
    with pytest.raises(FencedError, match="host:2"):
        late.take_over("host:3", NOW)
    assert late.epoch == 0
    with pytest.raises(CatalogError, match="only its owner"):
        late.commit(one_more, NOW)


def test_first_take_over_that_slept_is_refused() -> None:
    """Version 1 can be free again as well; who makes it late has not made a catalog, as if no list had shown one."""
    clock = ManualClock(NOW)
    inner = MemoryStorage(clock)
    storage = FailingStorage(inner)
    storage.before("create", lambda: others_go_on(inner, clock))
    with pytest.raises(HiddenCatalogError, match="listed no catalog as catalog"):
        Catalog.open(storage, "c").take_over("host:1", NOW)
    assert Catalog.open(inner, "c").state.owner == "host:2"


def test_loser_of_a_take_over_takes_over_again() -> None:
    """Who finds the version made by another take-over reads it and comes after it."""
    inner = MemoryStorage()
    storage = FailingStorage(inner)
    storage.before("create", lambda: owned(inner, owner="host:2"))
    state = Catalog.open(storage, "c").take_over("host:1", NOW)
    assert (state.owner, state.epoch) == ("host:1", 2)


def test_decides_again_on_the_newest_state() -> None:
    """A commit that follows one whose answer never came decides on the state with that one in it."""
    old, storage, inner, _ = sleeper()
    storage.after("list", lose_answer, FOLDER)
    for _ in range(9):
        storage.after("list", lose_answer, FOLDER)
    with pytest.raises(OutcomeUnknownError, match="cannot be listed"):
        old.commit(up_to(11), NOW)
    assert old.version == 12
    seen: list[int] = []

    def decide(state: CatalogState) -> Sequence[AnyAction]:
        seen.append(end(state))
        return up_to(12)(state)

    old.commit(decide, NOW)
    assert seen == [10, 11]
    assert end(Catalog.open(inner, "c").state) == 12


@pytest.mark.parametrize("times", range(1, CREATE_ATTEMPTS + 1))
def test_answer_lost_after_the_commit(times: int) -> None:
    """A create that took effect and answered with an error is found to be ours, and is not done twice."""
    old, storage, inner, _ = sleeper()
    for _ in range(times):
        storage.after("create", lose_answer)
    assert end(old.commit(up_to(11), NOW)) == 11
    assert (old.version, list_versions(inner).newest) == (13, 13)


@pytest.mark.parametrize("times", range(1, CREATE_ATTEMPTS))
def test_answer_lost_before_the_commit(times: int) -> None:
    """A create that did not take effect is tried again."""
    old, storage, inner, _ = sleeper()
    for _ in range(times):
        storage.before("create", lose_answer)
    assert end(old.commit(up_to(11), NOW)) == 11
    assert end(Catalog.open(inner, "c").state) == 11


def test_store_that_refuses() -> None:
    """Where every attempt fails and the file is not there, the store's own error comes out and nothing is committed."""
    old, storage, _, _ = sleeper()
    for _ in range(CREATE_ATTEMPTS):
        storage.before("create", lose_answer)
    with pytest.raises(StorageError, match="did not answer"):
        old.commit(up_to(11), NOW)
    assert (old.version, end(old.state)) == (12, 10)
    assert end(old.commit(up_to(11), NOW)) == 11


@pytest.mark.parametrize("took_effect", [True, False])
def test_unknown_outcome_is_resolved_by_the_next_commit(took_effect: bool) -> None:
    """Where not even reading back works, OutcomeUnknownError; the next commit is right either way."""
    old, storage, inner, _ = sleeper()
    for _ in range(CREATE_ATTEMPTS):
        (storage.after if took_effect else storage.before)("create", lose_answer)
    for _ in range(CREATE_ATTEMPTS):
        storage.before("read", lose_answer)
    storage.before("exists", lose_answer)
    with pytest.raises(OutcomeUnknownError, match="whether it was committed is unknown"):
        old.commit(up_to(11), NOW)
    storage.plan.clear()
    assert end(old.commit(up_to(12), NOW)) == 12
    assert Catalog.open(inner, "c").version == (14 if took_effect else 13)


def test_answer_lost_in_a_take_over() -> None:
    """A take-over whose answer was lost owns exactly what it committed."""
    inner = MemoryStorage()
    storage = FailingStorage(inner)
    storage.after("create", lose_answer)
    catalog = Catalog.open(storage, "c")
    assert catalog.take_over("host:1", NOW).epoch == catalog.epoch == 1
    assert list_versions(inner).newest == 1


def test_reader_overtaken_by_removal_starts_over() -> None:
    """A reader whose files are removed between its list and its read reads from a new list."""
    _, storage, inner, clock = sleeper()
    storage.before("read", lambda: others_go_on(inner, clock))
    beside = Catalog(storage, "c")
    assert end(beside.refresh()) == 210
    storage.before("read", lambda: others_go_on(inner, clock))
    assert newest_epoch(storage) in (2, 3)


def test_list_that_is_behind_before_a_commit() -> None:
    """An owner that is shown an old list cannot overwrite: the create tells it, and it waits for a true list."""
    inner = MemoryStorage()
    storage = FailingStorage(inner)
    old = owned(storage)
    storage.freeze(FOLDER)
    owned(inner, owner="host:2")
    with pytest.raises(StorageError, match="exists, but is not listed"):
        old.commit(one_more, NOW)
    storage.thaw()
    with pytest.raises(FencedError):
        old.commit(one_more, NOW)


def behind() -> FailingStorage:
    """A store whose lists do not show the last owner yet."""
    inner = MemoryStorage()
    storage = FailingStorage(inner)
    owned(inner)
    storage.freeze(FOLDER)
    owned(inner, owner="host:2")
    return storage


def test_list_that_is_behind_in_a_take_over() -> None:
    """Nobody is fenced by a list: it is waited for, and where it stays behind the next life tries again."""
    storage = behind()
    pauses: list[int] = []
    with pytest.raises(StorageError, match=r"00000003\.json exists, but is not listed") as found:
        Catalog.open(storage, "c").take_over("host:3", NOW, lambda: pauses.append(1))
    assert found.value.retriable
    assert len(pauses) > 5


def test_list_that_catches_up_in_a_take_over() -> None:
    """What it shows by then is what the owner goes on from."""
    storage = behind()
    pauses: list[int] = []

    def pause() -> None:
        pauses.append(1)
        if len(pauses) == 3:
            storage.thaw()

    assert Catalog.open(storage, "c").take_over("host:3", NOW, pause).epoch == 3
    assert len(pauses) == 3


def test_list_that_is_behind_after_a_commit() -> None:
    """A commit that its own list does not show is not believed; it counts, and the next commit finds it."""
    old, storage, inner, _ = sleeper()
    storage.freeze(FOLDER)
    with pytest.raises(OutcomeUnknownError, match="created, but is not listed"):
        old.commit(up_to(11), NOW)
    storage.thaw()
    assert end(old.commit(up_to(12), NOW)) == 12
    assert Catalog.open(inner, "c").version == 14


@pytest.mark.parametrize("commits", [0, 5], ids=["at once", "later"])
def test_a_catalog_that_lists_had_left_out_comes_before_one_that_was_made_beside_it(commits: int) -> None:
    """Version 1 is free again after a trim, so the list alone tells; whoever made another one is started again."""
    clock = ManualClock(NOW)
    storage = MemoryStorage(clock)
    real = owned(storage)
    grow(real, 150)
    clock.advance(10 * TRIM_GRACE_MS)
    grow(real, 150, clock.now_ms())
    assert min(list_versions(storage).commits) > 10
    shown = Hiding(storage, set(storage.list(FOLDER)))
    if commits:
        beside = owned(shown)
        grow(beside, commits)
        shown.lists_left = 0
        with pytest.raises(HiddenCatalogError, match="now lists version 302") as raised:
            beside.commit(one_more, NOW)
    else:
        shown.lists_left = 2  # it looks twice before it makes one
        with pytest.raises(HiddenCatalogError, match="now lists version 302") as raised:
            Catalog.open(shown, "c").take_over("host:2", NOW)
    assert raised.value.retriable
    again = Catalog.open(shown, "c")
    assert (again.state.catalog_id, end(again.state)) == (real.state.catalog_id, 300)
    assert end(owned(shown, owner="host:2").commit(up_to(301), NOW)) == 301


@pytest.mark.parametrize("lacks", [1, 2, 3])
@pytest.mark.parametrize("act", [Catalog.refresh, lambda owner: owner.trim(NOW)], ids=["look", "trim"])
def test_a_list_that_lacks_the_newest_versions_makes_no_catalog_lost(
    act: Callable[[Catalog], object], lacks: int
) -> None:
    """They are there by their names: the owner is started again, and goes on."""
    storage = FailingStorage(MemoryStorage())
    owner = owned(storage)
    grow(owner, 5)
    storage.frozen[FOLDER] = storage.list(FOLDER)[:-lacks]
    with pytest.raises(StorageError, match=r"00000007\.json exists, but is not listed") as raised:
        act(owner)
    assert raised.value.retriable
    storage.thaw()
    grow(owner, 1)
    assert Catalog.open(storage, "c").state == owner.state


@pytest.mark.parametrize("shows_own", [True, False])
def test_a_list_that_lacks_the_version_before_a_commit_makes_no_catalog_lost(shows_own: bool) -> None:
    """Whether the list shows the commit or not, the next one finds it."""
    storage = FailingStorage(MemoryStorage())
    owner = owned(storage)
    grow(owner, 5)
    created = commit_path(owner.version + 1).partition("/")[2]
    storage.frozen[FOLDER] = [*storage.list(FOLDER)[:-1], *([created] if shows_own else [])]
    with pytest.raises(OutcomeUnknownError):
        grow(owner, 1)
    storage.thaw()
    before = end(owner.state)
    grow(owner, 1)
    assert end(owner.state) == before + 2
    assert Catalog.open(storage, "c").state == owner.state


def test_sleeper_with_a_list_that_is_behind_hurts_nobody() -> None:
    """It finds its predecessor gone, and does not know what became of its commit; no true list shows it to a reader."""
    old, storage, inner, clock = sleeper()
    other = others_go_on(inner, clock)
    names = [commit_path(number).partition("/")[2] for number in range(1, 14)]
    storage.frozen[FOLDER] = names
    with pytest.raises(OutcomeUnknownError, match="cannot be listed, or read"):
        old.commit(up_to(11), NOW)
    assert Catalog.open(inner, "c").state == other.refresh()
    assert newest_epoch(inner) == 2
    grow(other, CHECKPOINT_EVERY, AWAKE)
    assert Catalog.open(inner, "c").state == other.state
    storage.thaw()
    with pytest.raises(FencedError):
        old.commit(up_to(12), NOW)


@pytest.mark.parametrize(
    ("point", "more"), [("catalog.create", 0), ("catalog.created", 0), ("catalog.checkpoint", CHECKPOINT_EVERY - 13)]
)
def test_failpoints_leave_an_owner_that_goes_on(point: str, more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error on either side of C1, or before the checkpoint, leaves an instance whose next commit is right."""
    old, _, inner, _ = sleeper()
    grow(old, more)
    monkeypatch.setenv(failpoints.VARIABLE, f"{point}=error")
    with pytest.raises(FailpointError):
        old.commit(up_to(11 + more), NOW)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert end(old.commit(up_to(12 + more), NOW)) == 12 + more
    assert Catalog.open(inner, "c").state == old.state


def test_an_error_before_a_file_is_replaced_leaves_an_owner_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file of the lost catalog is still there, and is replaced by the next commit."""
    old, storage, inner, _ = sleeper()
    successors: list[Catalog] = []
    storage.before("create", lambda: successors.append(made_again(inner, 10)), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(one_more, NOW)
    (successor,) = successors
    monkeypatch.setenv(failpoints.VARIABLE, "catalog.replace=error")
    with pytest.raises(FailpointError):
        successor.commit(up_to(11), NOW)
    monkeypatch.delenv(failpoints.VARIABLE)
    assert end(successor.commit(up_to(12), NOW)) == 12
    assert Catalog.open(inner, "c").state == successor.state


def test_threads_share_one_instance(tmp_path: Path) -> None:
    """Commits of several threads come one after the other, none is lost."""
    catalog = owned(LocalStorage(str(tmp_path)))
    threads = [threading.Thread(target=grow, args=(catalog, 15)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert end(catalog.state) == end(Catalog.open(LocalStorage(str(tmp_path)), "c").state) == 60


def _fight(root: str, number: int, done: multiprocessing.Queue[tuple[int, list[str], bool]]) -> None:
    catalog = Catalog.open(LocalStorage(root), "c")
    marks: list[str] = []
    fenced = False
    try:
        catalog.take_over(f"host:{number}", NOW)
        for turn in range(30):
            mark = f"runs/{catalog.epoch}-{number:08x}-{turn}.parquet"
            catalog.commit(deciding(append(end(catalog.state) + 1, mark)), NOW)
            marks.append(mark)
    except FencedError:
        fenced = True
    done.put((number, marks, fenced))


def test_processes_fight_for_one_catalog(tmp_path: Path) -> None:
    """Whatever each of four owners was told is committed is there, once, in its order; epochs only rise."""
    root = str(tmp_path)
    owned(LocalStorage(root))
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    fighters = [context.Process(target=_fight, args=(root, number, done)) for number in range(4)]
    for fighter in fighters:
        fighter.start()
    told = [done.get(timeout=60) for _ in fighters]
    for fighter in fighters:
        fighter.join(60)
    state = Catalog.open(LocalStorage(root), "c").state
    kept = [file.path for run in state.logs[0].runs for file in run.files]
    for _, marks, _ in told:
        assert [path for path in kept if path in set(marks)] == marks
    epochs = [int(path.split("/")[1].split("-")[0]) for path in kept]
    assert epochs == sorted(epochs)
    assert any(not fenced for _, _, fenced in told)


def made_again(storage: Storage, commits: int) -> Catalog:
    """The connector is deleted, and begins again: a new catalog of 2 versions and so many more."""
    storage.delete_folder(FOLDER)
    successor = owned(storage, owner="host:2")
    grow(successor, commits)
    return successor


def test_a_file_of_a_deleted_catalog_is_passed_over_and_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    """Its owner slept, and creates 13 while the successor stands at 6; no owner fails, and 13 comes to be its own."""
    old, storage, inner, _ = sleeper()
    successors: list[Catalog] = []
    storage.before("create", lambda: successors.append(made_again(inner, 4)), commit_path(13))
    with pytest.raises(FencedError, match="is gone"):
        old.commit(one_more, NOW)
    (successor,) = successors
    with pytest.raises(FencedError, match="is gone"):  # nor does it go on from its own 13
        old.commit(one_more, NOW)
    assert list_versions(inner).commits == (1, 2, 3, 4, 5, 6, 13)
    reader = Catalog.open(inner, "c")
    assert (reader.version, end(reader.state)) == (6, 4)
    assert newest_epoch(inner, successor.state.catalog_id) == 1
    grow(successor, 10)
    assert "".join(capfd.readouterr()).count("commits of a deleted catalog are passed over") == 2  # once a process
    assert list_versions(inner).commits == tuple(range(1, 17))
    assert reader.refresh() == successor.state == Catalog.open(inner, "c").state
    assert end(successor.state) == 14


def test_a_file_of_a_deleted_catalog_stands_right_above_its_successor() -> None:
    """It finds a 12, which is not its own, and ends; the successor goes on."""
    old, storage, inner, _ = sleeper()
    successors: list[Catalog] = []
    storage.before("create", lambda: successors.append(made_again(inner, 10)), commit_path(13))
    for _ in range(2):
        with pytest.raises(FencedError, match="is gone"):
            old.commit(one_more, NOW)
    (successor,) = successors
    assert Catalog.open(inner, "c").state == successor.state
    grow(successor, 3)
    assert Catalog.open(inner, "c").state == successor.state
    with pytest.raises(FencedError):
        old.refresh()


def test_a_sleeper_replaces_no_commit_of_the_catalog_that_has_taken_its_place() -> None:
    """To it the successor's 13 is another catalog's: but its own 12 is gone."""
    old, storage, inner, _ = sleeper()
    storage.before("create", lambda: made_again(inner, 11), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(one_more, NOW)
    truth = Catalog.open(inner, "c")
    assert (truth.version, end(truth.state)) == (13, 11)


def test_an_owner_that_slept_over_its_replacement_changes_nothing() -> None:
    """Another owner has replaced the file meanwhile, and gone on: what is there now is not what was seen."""
    old, storage, inner, _ = sleeper()
    successors: list[Catalog] = []
    storage.before("create", lambda: successors.append(made_again(inner, 10)), commit_path(13))
    with pytest.raises(FencedError):
        old.commit(one_more, NOW)
    slow = FailingStorage(inner)
    late = owned_on(slow, successors[0])
    slow.before("replace", lambda: grow(owned(inner, owner="host:3"), 3), commit_path(13))
    with pytest.raises(FencedError):
        late.commit(one_more, NOW)
    truth = Catalog.open(inner, "c")
    assert (truth.version, end(truth.state), truth.state.owner) == (16, 13, "host:3")


def owned_on(storage: Storage, owner: Catalog) -> Catalog:
    """The same owner, whose calls a test can hold up."""
    owner._storage = storage
    owner._history._storage = storage
    return owner


def test_a_sleeper_leaves_no_file_where_its_catalog_was_deleted() -> None:
    """The next connector of that name finds an empty folder."""
    old, storage, inner, _ = sleeper()
    storage.before("create", lambda: inner.delete_folder(FOLDER), commit_path(13))
    with pytest.raises(HiddenCatalogError, match="nothing of it is there"):
        old.commit(one_more, NOW)
    assert inner.list(FOLDER) == []


@pytest.mark.parametrize("act", [Catalog.refresh, lambda owner: owner.commit(one_more, NOW)], ids=["look", "commit"])
def test_a_commit_in_a_folder_that_is_lost_is_removed_once_the_store_answers(act: Callable[[Catalog], object]) -> None:
    """Its owner could not list the folder after it had created the commit."""
    old, storage, inner, _ = sleeper()
    storage.before("create", lambda: inner.delete_folder(FOLDER), commit_path(13))
    for _ in range(ATTEMPTS):
        storage.before("list", _no_answer)
    with pytest.raises(OutcomeUnknownError, match="cannot be listed"):
        old.commit(one_more, NOW)
    assert inner.exists(commit_path(13))
    with pytest.raises(HiddenCatalogError, match="nothing of it is there"):
        act(old)
    assert inner.list(FOLDER) == []


def left_alone() -> tuple[MemoryStorage, Catalog]:
    """A store that was lost below version 8, and the owner that has made this one after that."""
    inner = MemoryStorage()
    old = owned(inner)
    grow(old, 6)
    for version in range(1, 8):
        inner.delete(commit_path(version))
    return inner, old


def test_a_commit_that_an_owner_has_left_in_a_folder_that_is_lost_is_named() -> None:
    """What is lost is made again from the output, if an operator says that it is lost."""
    inner, _ = left_alone()
    for look in (Catalog.open, lambda storage, name: Catalog(storage, name).take_over("host:2", NOW)):
        with pytest.raises(CatalogError, match=r"catalog/0{19}8\.json follows a commit that is gone") as raised:
            look(inner, "c")
    assert "keyfold rebuild" in raised.value.action
    assert "keyfold delete" not in raised.value.action
    assert list_versions(inner).commits == (8,)


def test_what_a_lost_catalog_has_left_is_set_aside_for_another_one() -> None:
    """Its owner, if that lives, finds its commit gone, and ends; the next one comes to that number as to any other."""
    inner, old = left_alone()
    left = inner.read(commit_path(8))
    set_aside(inner)
    (aside,) = inner.walk(LOST)
    assert (list_versions(inner).commits, inner.read(aside.path)) == ((), left)
    later = owned(inner, owner="host:3")
    with pytest.raises((FencedError, CatalogError)):
        old.commit(one_more, NOW)
    grow(later, 9)
    truth = Catalog.open(inner, "c")
    assert (truth.version, end(truth.state), truth.state.owner) == (11, 9, "host:3")


def test_an_interrupted_setting_aside_is_taken_up_again() -> None:
    """The commit is in both places then, and is no longer after the next."""
    inner, _ = left_alone()
    storage = FailingStorage(inner)
    storage.before("delete_own", lose_answer)
    with pytest.raises(StorageError):
        set_aside(storage)
    assert len(inner.walk("")) == 2
    set_aside(storage)
    assert [info.path.partition("/")[0] for info in inner.walk("")] == [LOST]


@pytest.mark.parametrize("commits", [6, CHECKPOINT_EVERY], ids=["some follow others", "a checkpoint is there"])
def test_a_catalog_that_is_not_lost_stays(commits: int) -> None:
    """Also if it cannot be read: it may be restored."""
    inner = MemoryStorage()
    grow(owned(inner), commits)
    inner.delete(commit_path(1))
    before = inner.walk("")
    set_aside(inner)
    assert inner.walk("") == before


def test_an_owner_that_sleeps_while_it_takes_its_commit_back_removes_none_of_a_new_catalog() -> None:
    """A catalog was begun in that folder meanwhile, and has replaced the file."""
    old, storage, inner, _ = sleeper()
    storage.before("create", lambda: inner.delete_folder(FOLDER), commit_path(13))
    begun: list[Catalog] = []

    def begin() -> None:
        set_aside(inner)
        begun.append(owned(inner, owner="host:2"))
        grow(begun[0], 15)

    storage.before("delete_own", begin)
    with pytest.raises(HiddenCatalogError):
        old.commit(one_more, NOW)
    assert Catalog.open(inner, "c").state == begun[0].state


def test_an_owner_that_sleeps_while_it_removes_old_commits_removes_none_of_a_new_catalog(tmp_path: Path) -> None:
    """Their files have the same numbers; it has looked before at whose they are."""
    inner = LocalStorage(str(tmp_path))
    storage = FailingStorage(inner)
    old = owned(storage)
    grow(old, 2 * CHECKPOINT_EVERY)
    made: list[Catalog] = []
    storage.before("delete_own", lambda: made.append(made_again(inner, 20)))
    assert old.trim(1 << 60) > 20
    assert Catalog.open(inner, "c").state == made[0].state


def _no_answer() -> None:
    raise StorageError("503")


@pytest.mark.parametrize("named", [True, False], ids=["names its catalog", "of an earlier version"])
def test_a_hole_in_a_catalog_is_an_error(named: bool) -> None:
    """What lies above it is its own, or tells nothing."""
    inner = MemoryStorage()
    grow(owned(inner), 6)
    if not named:
        body = json.loads(inner.read(commit_path(8)))
        inner.write(
            commit_path(8), json.dumps({key: value for key, value in body.items() if key != "catalog"}).encode()
        )
    inner.delete(commit_path(5))
    with pytest.raises(CatalogError, match="has a hole"):
        Catalog.open(inner, "c")
