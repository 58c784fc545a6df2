"""A catalog: what is committed is read back, by its owner and by anybody."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from compactor.catalog.catalog import Catalog
from compactor.catalog.commits import (
    CHECKPOINT_EVERY,
    FOLDER,
    TRIM_GRACE_MS,
    checkpoint_path,
    commit_path,
    list_versions,
    trimmable,
)
from compactor.catalog.history import newest_epoch
from compactor.errors import CatalogError, FencedError, GapError, HiddenCatalogError, StorageError
from compactor.model.actions import Create, SetBuckets, TakeOver
from compactor.model.state import CatalogState
from compactor.storage.base import FileInfo, Storage
from compactor.storage.local import LocalStorage
from tests.support.catalogs import NOW, append, beginning, deciding, end, grow, owned, publish
from tests.support.clocks import ManualClock
from tests.support.memory.storage import MemoryStorage


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return LocalStorage(str(tmp_path)) if request.param == "local" else MemoryStorage(ManualClock(NOW))


def test_absent_catalog_is_version_0(storage: Storage) -> None:
    """Opening reads and writes nothing; nobody owns what is not there."""
    catalog = Catalog.open(storage, "c")
    assert (catalog.version, catalog.epoch, catalog.state) == (0, 0, CatalogState())
    assert storage.walk("") == []
    assert newest_epoch(storage) == 0


def test_first_take_over_creates(storage: Storage) -> None:
    """The first owner creates the catalog in the commit that makes it the owner."""
    state = Catalog.open(storage, "c").take_over("host:1", NOW)
    assert (state.connector, state.epoch, state.owner) == ("c", 1, "host:1")
    assert len(state.catalog_id) == 32
    assert storage.list(FOLDER) == ["00000000000000000001.json"]
    assert newest_epoch(storage) == 1


def test_commit_is_read_by_others(storage: Storage) -> None:
    """What one instance commits another finds, opened anew or refreshed."""
    owner = owned(storage)
    beside = Catalog.open(storage, "c")
    owner.commit(lambda state: [append(1), append(2), publish(2)], NOW)
    assert beside.refresh() == Catalog.open(storage, "c").state == owner.state
    assert (beside.version, beside.epoch) == (3, 0)


def test_empty_decision_commits_nothing(storage: Storage) -> None:
    """Where nothing is decided, no version is made."""
    catalog = owned(storage)
    catalog.commit(lambda state: [], NOW)
    assert catalog.version == Catalog.open(storage, "c").version == 2


def test_only_an_owner_commits(storage: Storage) -> None:
    """An instance that has not taken over cannot commit."""
    owned(storage)
    with pytest.raises(CatalogError, match="only its owner"):
        Catalog.open(storage, "c").commit(lambda state: [SetBuckets(count=1)], NOW)


def test_impossible_action_is_never_written(storage: Storage) -> None:
    """A commit that a reader would have to refuse leaves no file."""
    catalog = owned(storage)
    with pytest.raises(GapError):
        catalog.commit(lambda state: [append(7)], NOW)
    for wrong in (TakeOver(epoch=9, owner="x"), Create(catalog_id="x", connector="c")):
        with pytest.raises(CatalogError, match="defect"):
            catalog.commit(deciding(wrong), NOW)
    assert (catalog.version, list_versions(storage).newest) == (2, 2)


def test_older_owner_is_fenced(storage: Storage) -> None:
    """After a take-over whatever the older owner does ends with FencedError, which names the new one."""
    old = owned(storage)
    new = owned(storage, owner="host:2")
    for _ in range(2):
        with pytest.raises(FencedError, match=r"host:2 took it over with epoch 2; ours is 1"):
            old.commit(lambda state: [append(1)], NOW)
        with pytest.raises(FencedError):
            old.refresh()
    assert end(new.refresh()) == 0
    assert newest_epoch(storage) == 2


def test_another_connectors_catalog_is_refused(storage: Storage) -> None:
    """A folder that holds another connector's catalog is not opened."""
    owned(storage)
    with pytest.raises(CatalogError, match=r"connector c's, not d's\."):
        Catalog.open(storage, "d")


def test_rules_are_fixed_with_the_first_commit(storage: Storage) -> None:
    """Order, identity and scope go into a new catalog, and no other ones are accepted afterwards."""
    new = Catalog.open(storage, "c")
    new.require("timestamp", "header:id", "topic")
    state = new.take_over("host:1", NOW)
    assert (state.order, state.identity, state.scope) == ("timestamp", "header:id", "topic")
    again = Catalog.open(storage, "c")
    again.require("timestamp", "header:id", "topic")
    with pytest.raises(CatalogError, match="start under a new connector name"):
        again.require("offset", "key", "partition")


def test_what_is_changed_is_named_first(storage: Storage) -> None:
    """By its setting, as it was and as it is; what is as it was is not spoken of."""
    new = Catalog.open(storage, "c")
    new.require("offset", "json", "partition")
    new.take_over("host:1", NOW)
    with pytest.raises(CatalogError) as caught:
        Catalog.open(storage, "c").require("offset", "key", "partition")
    said = "Connector c: compaction.key.identity was json so far and is bytes now."
    assert caught.value.message == said
    with pytest.raises(CatalogError, match=r"order was offset .*identity was json .*scope was partition"):
        Catalog.open(storage, "c").require("timestamp", "key", "topic")


@pytest.mark.parametrize(
    "asked", [("timestamp", "key", "partition"), ("offset", "key", "topic"), ("offset", "json", "partition")]
)
def test_the_way_to_other_rules_is_named(storage: Storage, asked: tuple[str, str, str]) -> None:
    """The source can be read again by any of them."""
    owned(storage)
    with pytest.raises(CatalogError) as caught:
        Catalog.open(storage, "c").require(*asked)
    assert "keyfold resync CONNECTOR.json" in caught.value.action


def test_rules_that_lost_the_race_to_create_are_refused(storage: Storage) -> None:
    """Rules asked of an absent catalog hold against one that another created meanwhile."""
    late = Catalog.open(storage, "c")
    late.require("timestamp", "key", "partition")
    owned(storage)
    with pytest.raises(CatalogError, match="start under a new connector name"):
        late.take_over("host:2", NOW)


def test_checkpoint_and_deltas_read_as_a_replay_of_all(storage: Storage) -> None:
    """The state is the same from the newest checkpoint as from the first commit on."""
    catalog = owned(storage)
    grow(catalog, CHECKPOINT_EVERY + 7)
    read = Catalog.open(storage, "c")
    storage.delete(checkpoint_path(CHECKPOINT_EVERY))
    replayed = Catalog.open(storage, "c")
    assert read.state == replayed.state == catalog.state
    assert read.version == replayed.version == catalog.version == CHECKPOINT_EVERY + 9


def test_lagging_reader_goes_on_from_the_checkpoint(storage: Storage) -> None:
    """A reader left behind by more than a checkpoint reads that, and none of the commits below it."""
    catalog = owned(storage)
    beside = Catalog.open(storage, "c")
    grow(catalog, CHECKPOINT_EVERY + 7)
    for version in range(1, CHECKPOINT_EVERY + 1):
        storage.delete(commit_path(version))
    assert beside.refresh() == catalog.state


def test_newest_epoch_of_a_lone_checkpoint(storage: Storage) -> None:
    """The epoch is known also where the newest version has only its checkpoint left."""
    catalog = owned(storage)
    grow(catalog, CHECKPOINT_EVERY - catalog.version)
    storage.delete(commit_path(CHECKPOINT_EVERY))
    assert newest_epoch(storage) == 1
    assert Catalog.open(storage, "c").state == catalog.state


def test_hole_is_named(storage: Storage) -> None:
    """A missing commit is an error that names its file, and the catalog is not read around it."""
    grow(owned(storage), 5)
    storage.delete(commit_path(4))
    with pytest.raises(CatalogError, match=r"hole.*00000000000000000004\.json.*backup"):
        Catalog.open(storage, "c")


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"\xff\xfe", b'{"format":1,"version":3', b"[]", b'{"format":1}', b"null"],
    ids=["empty", "torn", "binary", "cut", "array", "fields", "null"],
)
@pytest.mark.parametrize("back", [0, 1], ids=["newest", "older"])
def test_damage_is_named(storage: Storage, damage: bytes, back: int) -> None:
    """A damaged commit is an error that names it and says what to do; the newest can be given up, another one not."""
    grow(owned(storage), 5)
    path = commit_path(7 - back)
    storage.write(path, damage)
    with pytest.raises(CatalogError, match=path.partition("/")[2] + r".* is damaged.*backup") as found:
        Catalog.open(storage, "c")
    assert ("move that one file away: the catalog then stands at version 6" in found.value.action) is (back == 0)


def test_what_the_newest_commit_said_is_made_up_for(storage: Storage) -> None:
    """Without its damaged newest file the catalog stands one commit earlier, and goes on from there."""
    catalog = owned(storage)
    grow(catalog, 3)
    before = catalog.state
    grow(catalog, 1)
    storage.write(commit_path(catalog.version), b"")
    storage.delete(commit_path(catalog.version))
    again = Catalog.open(storage, "c")
    assert again.state == before
    again.take_over("host:2", NOW)
    again.commit(lambda state: [append(end(state) + 1)], NOW)
    assert end(Catalog.open(storage, "c").state) == end(before) + 1


@pytest.mark.parametrize("held", [0, 20, CHECKPOINT_EVERY + 9], ids=["opened", "far behind", "behind"])
@pytest.mark.parametrize("checkpoints", [1, 2, 3])
def test_a_damaged_checkpoint_is_read_around(storage: Storage, checkpoints: int, held: int) -> None:
    """The one before it, or the beginning, and the commits since say the same; also to who reads on from a version."""
    catalog = owned(storage)
    beside = Catalog(storage, "c")
    newest = checkpoints * CHECKPOINT_EVERY
    for _ in range(newest + 7 - catalog.version):
        if catalog.version == held:
            beside.refresh()
        grow(catalog, 1)
    catalog.trim(NOW + 10 * TRIM_GRACE_MS)
    storage.write(checkpoint_path(newest), b"{")
    assert beside.refresh() == catalog.state
    assert beside.version == newest + 7


def test_a_damaged_checkpoint_without_what_was_before_is_named(storage: Storage) -> None:
    """Where the commits below it are gone, the damaged checkpoint is the trouble, not the hole."""
    grow(owned(storage), CHECKPOINT_EVERY)
    storage.write(checkpoint_path(CHECKPOINT_EVERY), b"{")
    storage.delete(commit_path(7))
    with pytest.raises(CatalogError, match=r"00000050\.checkpoint\.json is damaged.*backup"):
        Catalog.open(storage, "c")


def test_a_damaged_commit_has_its_checkpoint(storage: Storage) -> None:
    """The newest version is known from its checkpoint where its commit is damaged."""
    catalog = owned(storage)
    grow(catalog, CHECKPOINT_EVERY - catalog.version)
    storage.write(commit_path(CHECKPOINT_EVERY), b"{")
    assert Catalog.open(storage, "c").state == catalog.state
    assert newest_epoch(storage) == 1


def test_damaged_newest_commit_has_no_epoch(storage: Storage) -> None:
    """A publish task never takes an older epoch for the newest because the newest cannot be read."""
    owned(storage)
    storage.write(commit_path(3), b"{")
    with pytest.raises(CatalogError, match=r"damaged.*newest commit"):
        newest_epoch(storage)


def test_later_format_is_refused(storage: Storage) -> None:
    """A file of a format that does not exist yet is refused with what to do, whatever else it says."""
    owned(storage)
    storage.write(commit_path(3), b'{"format":3,"version":"three"}')
    with pytest.raises(CatalogError, match=r"format 3; this keyfold knows 1 and 2\. Run a keyfold"):
        Catalog.open(storage, "c")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"version": 4}, "says that it is version 4"),
        ({"previous": "0123456789abcdef"}, "does not follow"),
        ({"epoch": 7}, "is of epoch 7, but 1 owned it"),
        ({"actions": [{"do": "set-buckets", "count": "many"}]}, "is damaged"),
        ({"actions": [{"do": "fly"}]}, "is damaged"),
        ({"actions": [{"do": "publish", "topic": "t", "partition": 0, "end": 5}]}, "cannot be"),
    ],
)
def test_commit_that_cannot_be_is_refused(storage: Storage, fields: dict[str, object], why: str) -> None:
    """A file that is no possible next version is refused, never skipped."""
    grow(owned(storage), 1)
    body = json.loads(storage.read(commit_path(3)))
    storage.write(commit_path(3), json.dumps(body | fields).encode())
    with pytest.raises(CatalogError, match=why):
        Catalog.open(storage, "c")


def test_file_has_the_fields_of_the_format(storage: Storage) -> None:
    """The first commit reads as docs/formats.md says."""
    owned(storage)
    body = json.loads(storage.read(commit_path(1)))
    assert list(body) == ["format", "version", "epoch", "at_ms", "commit_id", "catalog", "previous", "actions"]
    assert [body[name] for name in ("format", "version", "epoch", "at_ms", "previous")] == [1, 1, 1, NOW, ""]
    assert [action["do"] for action in body["actions"]] == ["create", "take-over"]


def test_lost_folder_is_noticed(storage: Storage) -> None:
    """An owner whose folder is gone (not mounted) does not begin another catalog in its place, and waits for it."""
    catalog = owned(storage)
    storage.delete_folder(FOLDER)
    acts: list[Callable[[], object]] = [lambda: catalog.commit(deciding(append(1)), NOW), catalog.refresh]
    for act in acts:
        with pytest.raises(HiddenCatalogError, match="was at version 2, and nothing of it is there") as raised:
            act()
        assert raised.value.retriable
        assert storage.list(FOLDER) == []


def test_foreign_files_are_ignored(storage: Storage) -> None:
    """A file whose name is no version is nobody's business."""
    for name in ("README", "1.json", "00000000000000000009.json.bak"):
        storage.write(f"{FOLDER}/{name}", b"")
    assert owned(storage).version == 2


def _files(commits: range, checkpoints: range, modified_ms: int = 0) -> list[FileInfo]:
    paths = [*map(commit_path, commits), *map(checkpoint_path, checkpoints)]
    return [FileInfo(path, 1, modified_ms) for path in sorted(paths)]


@pytest.mark.parametrize(
    ("files", "now_ms", "left"),
    [
        ([], 10**9, 0),
        (_files(range(1, 60), range(50, 51)), 10**9, 60),  # one checkpoint: nothing goes
        (_files(range(1, 110), range(50, 101, 50)), 10**9, 60 + 2),  # 50…109 and both checkpoints
        (_files(range(1, 110), range(50, 101, 50)), TRIM_GRACE_MS, 109 + 2),  # too young
        (_files(range(1, 1000), range(50, 951, 50)), 0, 200 + 4),  # young, but far below the second newest
    ],
)
def test_superfluous(files: list[FileInfo], now_ms: int, left: int) -> None:
    """What lies below the second newest checkpoint goes after the grace, or when there is too much of it."""
    gone = trimmable(files, now_ms, 2**31)
    assert len(files) - len(gone) == left
    assert gone == [info.path for info in files][: len(gone)] or set(gone) < {info.path for info in files}


def test_a_long_history_stays_short() -> None:
    """Thousands of commits within the grace leave some hundreds of files, and the state reads back."""
    clock = ManualClock(NOW)
    storage = MemoryStorage(clock)
    catalog = owned(storage)
    for _ in range(3_000):
        catalog.commit(lambda state: [SetBuckets(count=state.buckets + 1)], clock.advance(10))
    assert len(storage.list(FOLDER)) <= 220
    assert Catalog.open(storage, "c").state == catalog.state
    catalog.trim(clock.advance(TRIM_GRACE_MS + 1))
    assert len(storage.list(FOLDER)) <= 110
    assert Catalog.open(storage, "c").state == catalog.state


def test_an_owner_counts_its_own_commits() -> None:
    """The take-over is one; what another has committed is not, nor a decision to do nothing."""
    storage = MemoryStorage()
    first = owned(storage)
    grow(first, 3)
    later = Catalog.open(storage, "c")
    before = first.commits
    later.take_over("other", NOW)
    later.commit(lambda _: [], NOW)
    assert (later.commits, first.commits) == (1, before)
    grow(later, 2)
    assert later.commits == 3


def test_checkpoint_that_cannot_be_written_loses_nothing() -> None:
    """The commit counts without its checkpoint; the next one makes up for it."""

    class Full(MemoryStorage):
        def create(self, path: str, data: bytes) -> bool:
            if path == checkpoint_path(CHECKPOINT_EVERY):
                raise StorageError("No space left.")
            return super().create(path, data)

    storage = Full()
    catalog = owned(storage)
    grow(catalog, 2 * CHECKPOINT_EVERY)
    assert list_versions(storage).checkpoints == (2 * CHECKPOINT_EVERY,)
    assert Catalog.open(storage, "c").state == catalog.state


def test_beginning_twice_is_refused(storage: Storage) -> None:
    """A partition that is known cannot be added again."""
    with pytest.raises(CatalogError, match="t-0 is in the catalog already"):
        owned(storage).commit(lambda state: beginning(), NOW)
