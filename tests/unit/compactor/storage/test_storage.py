"""Every store behind the seam behaves alike."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import secrets
import shutil
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from unittest.mock import Mock

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.errors import MissingFileError, StorageError, StorageRefusedError, UnsupportedStorageError
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from compactor.storage.locations import open_storage
from compactor.storage.object_client import ObjectClient, StoreBucket
from tests.support.memory.storage import FailingStorage, MemoryStorage
from tests.support.stores.running import RunningStore


@pytest.fixture(params=["local", "memory", "failing", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(str(tmp_path / "store"))
    if request.param == "s3":
        store: RunningStore = request.getfixturevalue("moto")
        return open_storage(f"{store.location}/{tmp_path.name}/{secrets.token_hex(4)}", store.options())
    return MemoryStorage() if request.param == "memory" else FailingStorage(MemoryStorage())


def test_created_once(storage: Storage) -> None:
    """The first create makes the file, every later one leaves it as it is and says so."""
    assert storage.create("a/b.json", b"one")
    assert not storage.create("a/b.json", b"two")
    assert storage.read("a/b.json") == b"one"


def test_write_replaces(storage: Storage) -> None:
    """Write makes a file or replaces it whole."""
    storage.write("a", b"a long first content")
    storage.write("a", b"short")
    assert storage.read("a") == b"short"


def test_what_was_seen_is_replaced_once(storage: Storage) -> None:
    """The first caller replaces it; who has seen what was there before, or nothing at all, changes nothing."""
    storage.create("a/b.json", b"one")
    assert storage.replace("a/b.json", b"one", b"two")
    assert not storage.replace("a/b.json", b"one", b"three")
    assert not storage.replace("a/c.json", b"", b"three")
    assert (storage.read("a/b.json"), storage.list("a")) == (b"two", ["b.json"])


def test_what_is_not_its_own_is_not_removed(tmp_path: Path) -> None:
    """Each file is looked at by its content; what is gone, or is replaced right now, is passed over."""
    storage = LocalStorage(str(tmp_path))
    for name in "abc":
        storage.create(f"f/{name}", name.encode())
    replaced: list[bool] = []

    def is_own(data: bytes) -> bool:
        replaced.append(storage.replace(f"f/{data.decode()}", data, b"another"))
        return data != b"b"

    storage.delete_own(["f/a", "f/none", "f/b", "g/a"], is_own)
    assert (storage.list("f"), replaced) == (["b", "c"], [False, False])


def test_nothing_is_removed_from_a_folder_that_was_made_again_meanwhile(tmp_path: Path) -> None:
    """The caller slept after its last look; a file of that name is there again."""
    storage = LocalStorage(str(tmp_path))
    storage.create("f/a", b"old")

    def is_own(_data: bytes) -> bool:
        storage.delete_folder("f")
        return storage.create("f/a", b"old")

    storage.delete_own(["f/a"], is_own)
    assert storage.read("f/a") == b"old"


def test_two_replace_one_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that sleeps between its look and its replacement keeps all others off."""
    storage = LocalStorage(str(tmp_path))
    storage.create("a", b"one")
    others: list[bool] = []
    samestat = os.path.samestat

    def look(*about: os.stat_result) -> bool:
        if not others:
            others.append(False)
            others[0] = storage.replace("a", b"one", b"other")
        return samestat(*about)

    monkeypatch.setattr(os.path, "samestat", look)
    assert storage.replace("a", b"one", b"two")
    assert (others, storage.read("a")) == ([False], b"two")


@pytest.mark.parametrize("linked", ["data/part", "data"])
def test_a_copy_follows_no_link(tmp_path: Path, linked: str) -> None:
    """The folder may be somebody else's, who could lead the copy to a file that he may not read."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "part").write_text("secret")
    (tmp_path / "store").mkdir()
    if linked == "data":
        (tmp_path / "store" / "data").symlink_to("../other")
    else:
        (tmp_path / "store" / "data").mkdir()
        (tmp_path / "store" / "data" / "part").symlink_to("../../other/part")
    (tmp_path / "link").symlink_to("store")
    with pytest.raises(StorageError, match="Could not read"):
        LocalStorage(str(tmp_path / "link")).copy("data/part", "new/part")
    assert [file.name for file in (tmp_path / "store").rglob("*") if file.is_file() and not file.is_symlink()] == []


def test_a_copy_is_a_file_of_its_own(storage: Storage) -> None:
    """Copy makes or replaces a file, whole, also in a folder that is new; what becomes of the other is no matter."""
    large = os.urandom(3_000_000)
    with storage.open_output("a/large") as stream:
        stream.write(large)
    storage.write("a/empty", b"")
    if not storage.copies_files:
        with pytest.raises(UnsupportedStorageError, match="a/large"):
            storage.copy("a/large", "b/c/large")
        assert storage.list("") == ["a"]
        return
    for name in ("large", "empty"):
        storage.copy(f"a/{name}", f"b/c/{name}")
    storage.delete_folder("a")
    assert (storage.read("b/c/large", len(large)), storage.read("b/c/empty")) == (large, b"")
    storage.sub("b").copy("c/empty", "c/large")
    assert [(info.path, info.bytes) for info in storage.walk("")] == [("b/c/empty", 0), ("b/c/large", 0)]
    assert storage.read("b/c/large") == b""
    assert storage.unfinished("") == []


def test_a_copy_of_what_is_missing_is_none(storage: Storage) -> None:
    """The file that is not there is named, and nothing is made; no copy leads out of the storage."""
    if storage.copies_files:
        with pytest.raises(MissingFileError, match="a/absent"):
            storage.copy("a/absent", "b")
    assert storage.list("") == []
    storage.write("a", b"")
    for source, target in (("../x", "b"), ("a", "/x")):
        with pytest.raises(StorageError, match="leads out"):
            storage.copy(source, target)
    assert storage.list("") == ["a"]


@pytest.mark.parametrize("number", [errno.EXDEV, errno.ENOSYS])
def test_what_the_kernel_does_not_copy_is_copied_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Between file systems, or on one without it; also where it gives up in the middle."""
    real, data = os.copy_file_range, os.urandom(100_000)
    storage = LocalStorage(str(tmp_path))
    storage.write("a", data)
    for copied in (0, 1, 99_999):
        left = [copied] * bool(copied)

        def some(source: int, target: int, _: int, left: list[int] = left) -> int:
            if not left:
                raise OSError(number, os.strerror(number))
            return real(source, target, left.pop())

        monkeypatch.setattr(os, "copy_file_range", some)
        storage.copy("a", "b")
        assert storage.read("b") == data
        assert not left
    monkeypatch.setattr(os, "copy_file_range", real)
    monkeypatch.setattr(shutil, "copyfileobj", lambda *_: None)
    storage.copy("a", "c")
    assert storage.read("c") == data


def test_missing_file(storage: Storage) -> None:
    """A file that is not there is said to be missing, with its path."""
    for ask in (storage.read, storage.open_input):
        with pytest.raises(MissingFileError, match=r"no/such\.json"):
            ask("no/such.json")
    assert not storage.exists("no/such.json")


def test_list_is_names_directly_inside(storage: Storage) -> None:
    """List gives files and folders of one level, sorted; an absent folder has none."""
    for path in ("f/b", "f/a", "f/deeper/c", "g/x"):
        storage.write(path, b"")
    assert storage.list("f") == ["a", "b", "deeper"]
    assert storage.list("") == ["f", "g"]
    assert storage.list("absent") == []


def test_walk_is_all_files_below(storage: Storage) -> None:
    """Walk gives every file below a folder by its path from the root, with its size."""
    for path in ("f/b", "f/a", "f/deeper/c", "g/x"):
        storage.write(path, b"123")
    assert [(info.path, info.bytes) for info in storage.walk("f")] == [("f/a", 3), ("f/b", 3), ("f/deeper/c", 3)]
    assert len(storage.walk("")) == 4
    assert storage.walk("absent") == []


def test_a_link_leads_on_or_is_left_out(storage: Storage) -> None:
    """A name leads to a folder, and elsewhere once it is linked anew; a store without links says so, and has none."""
    for number in (b"1", b"2"):
        storage.write(f"t/{number.decode()}/data/x", number)
        if not storage.link("t/current", f"t/{number.decode()}/data"):
            assert "current" not in storage.list("t")
            continue
        assert storage.link("t/current", f"t/{number.decode()}/data")
        assert storage.read("t/current/x") == number
        assert not [info for info in storage.walk("") if "current" in info.path]
        assert storage.unfinished("") == []


def test_a_link_moves_with_its_folder(tmp_path: Path) -> None:
    """It is relative: a snapshot location that is moved or mounted elsewhere still has its `current`."""
    storage = LocalStorage(str(tmp_path / "here"))
    storage.write("t/1/data/x", b"1")
    assert storage.link("t/current", "t/1/data")
    (tmp_path / "here").rename(tmp_path / "there")
    assert (tmp_path / "there/t/current/x").read_bytes() == b"1"


def test_a_link_replaces_no_folder(tmp_path: Path) -> None:
    """What somebody else has made under that name stays, and the error says what is in the way."""
    storage = LocalStorage(str(tmp_path))
    storage.write("t/current/mine", b"1")
    with pytest.raises(StorageError, match=r"t/current.* A folder stands where"):
        storage.link("t/current", "t/1/data")
    assert storage.read("t/current/mine") == b"1"


def test_a_file_system_without_links_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As vfat: the name is left out; what is refused for another reason is an error."""
    for number, answer in ((errno.EPERM, False), (errno.EROFS, None)):
        failing = OSError(number, os.strerror(number))

        def refuse(*_: object, error: OSError = failing) -> None:
            raise error

        monkeypatch.setattr(Path, "symlink_to", refuse)
        if answer is None:
            with pytest.raises(StorageError, match="Mount it writable"):
                LocalStorage(str(tmp_path)).link("t/current", "t/1/data")
        else:
            assert LocalStorage(str(tmp_path)).link("t/current", "t/1/data") is answer


def test_delete_twice(storage: Storage) -> None:
    """Removing what is absent is fine, file or folder."""
    storage.write("f/a", b"")
    storage.write("f/g/b", b"")
    for _ in range(2):
        storage.delete("f/a")
        assert [info.path for info in storage.walk("")] == ["f/g/b"]
    for _ in range(2):
        storage.delete_folder("f")
        assert storage.list("") == []


def test_output_appears_when_it_is_complete(storage: Storage) -> None:
    """A file that is being written has no name yet; afterwards it reads back by random access."""
    table = pa.table({"n": [1, 2, 3]})
    with storage.open_output("runs/x.parquet") as stream:
        pq.write_table(table, stream)
        assert storage.walk("") == []
        assert not storage.exists("runs/x.parquet")
    with storage.open_input("runs/x.parquet") as source:
        assert pq.read_table(source).equals(table)


def test_output_of_a_failed_block_never_appears(storage: Storage) -> None:
    """A block that raises leaves nothing behind, and its error comes out as it was."""

    def write_half() -> None:
        with storage.open_output("runs/x") as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert storage.walk("") == []
    assert storage.unfinished("") == []


def test_output_never_replaces(storage: Storage) -> None:
    """A new file under a taken name is refused, and the old one stays."""
    storage.write("runs/x", b"old")
    with pytest.raises(StorageError, match="exists already"), storage.open_output("runs/x") as stream:
        stream.write(b"new")
    assert storage.read("runs/x") == b"old"


def test_sub_is_the_same_store(storage: Storage) -> None:
    """A storage deeper down sees the same files under shorter paths."""
    storage.sub("a", "b").write("c", b"x")
    assert storage.read("a/b/c") == b"x"
    assert storage.sub("a").walk("") == storage.sub("a").walk("b")
    assert [info.path for info in storage.sub("a").walk("")] == ["b/c"]


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a\0b"])
def test_no_path_leads_out(storage: Storage, path: str) -> None:
    """A path that would leave the storage is refused."""
    with pytest.raises(StorageError, match="leads out"):
        storage.write(path, b"")


def test_lock_has_one_holder(storage: Storage) -> None:
    """A lock is held by one at a time, who says who he is; released, it is free again."""
    assert storage.locked_by("x.lock") is None
    held = storage.lock("x.lock")
    assert held is not None
    assert storage.locked_by("x.lock") == b""
    held.write(b"a longer text")
    held.write(b"me")
    assert storage.lock("x.lock") is None
    assert storage.locked_by("x.lock") == b"me"
    held.release()
    held.release()
    assert storage.locked_by("x.lock") is None
    again = storage.lock("x.lock")
    assert again is not None
    again.release()


def test_local_storage_can_be_pickled(tmp_path: Path) -> None:
    """Spark's tasks get the same folder, wherever they run from."""
    storage = LocalStorage(str(tmp_path))
    storage.write("a", b"x")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"x"


def _race(root: str, number: int, barrier: Barrier, wins: multiprocessing.Queue[tuple[int, int]]) -> None:
    storage = LocalStorage(root)
    for turn in range(40):
        barrier.wait()
        if storage.create(f"catalog/{turn}", bytes([number]) * 100_000):
            wins.put((turn, number))


def test_create_has_one_winner_among_processes(tmp_path: Path) -> None:
    """Of four processes that create a file at once exactly one has made it, and its content is whole."""
    context = multiprocessing.get_context("spawn")
    barrier, wins = context.Barrier(4), context.Queue()
    racers = [context.Process(target=_race, args=(str(tmp_path), number, barrier, wins)) for number in range(4)]
    for racer in racers:
        racer.start()
    won = [wins.get(timeout=60) for _ in range(40)]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert wins.empty()
    assert sorted(turn for turn, _ in won) == list(range(40))
    storage = LocalStorage(str(tmp_path))
    assert all(storage.read(f"catalog/{turn}") == bytes([number]) * 100_000 for turn, number in won)
    assert storage.unfinished("") == []


def test_temporary_files_are_shown_apart(tmp_path: Path) -> None:
    """What a dead writer left behind is neither listed nor walked, but found as unfinished."""
    storage = LocalStorage(str(tmp_path))
    storage.write("runs/x", b"")
    (tmp_path / "runs" / ".tmp-1-2").write_bytes(b"half")
    assert storage.list("runs") == ["x"]
    assert [info.path for info in storage.walk("")] == ["runs/x"]
    assert [info.path for info in storage.unfinished("")] == ["runs/.tmp-1-2"]


@pytest.mark.parametrize(
    ("number", "action"), [(errno.ENOSPC, "Free space"), (errno.EACCES, "Let the user"), (errno.EIO, "tried again")]
)
def test_refusals_say_where_and_what_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, action: str
) -> None:
    """An error of the operating system becomes a StorageError with the path and what to do; nothing is left."""

    def refuse(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    storage = LocalStorage(str(tmp_path))
    storage.write("catalog/a", b"")
    monkeypatch.setattr(os, "fsync", refuse)
    for make in (lambda: storage.create("catalog/b", b"x"), lambda: storage.copy("catalog/a", "catalog/b")):
        with pytest.raises(StorageError, match=r"catalog/b.*" + action):
            make()
    assert [file.name for file in (tmp_path / "catalog").iterdir()] == ["a"]


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_right_that_is_refused_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """It is told apart from a store that is away: somebody has to grant it."""
    storage = LocalStorage(str(tmp_path))
    monkeypatch.setattr(os, "fsync", Mock(side_effect=OSError(number, "No.")))
    with pytest.raises(StorageRefusedError, match=r"create .*/a: the right to write is refused: No\."):
        storage.create("a", b"x")


@pytest.mark.parametrize("kind", ["PermissionDeniedError", "UnauthenticatedError"])
def test_a_right_that_an_object_store_refuses_is_named(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """At once, also for a create, which is tried again for any other reason."""
    put = Mock(side_effect=getattr(obstore.exceptions, kind)("403 Forbidden"))
    monkeypatch.setattr(obstore, "put", put)
    client = ObjectClient(StoreBucket("s3", "b"))
    for make in (client.put, client.create):
        with pytest.raises(StorageRefusedError, match=r"s3://b/a: the right to write is refused: 403 Forbidden\."):
            make("a", b"x")
    assert put.call_count == 2


def test_a_lock_that_cannot_be_written_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As any other refusal: with the path and what to do; the lock is held all the same."""

    def refuse(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    lock = LocalStorage(str(tmp_path)).lock("owner.lock")
    assert lock is not None
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(StorageError, match=r"write .*owner\.lock.*Free space"):
        lock.write(b"me")
    monkeypatch.undo()
    lock.write(b"me")
    lock.release()


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    """A storage location that is a file is refused with its path."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"file.*stands where a folder"):
        LocalStorage(str(tmp_path / "file")).create("catalog/a", b"")


def test_full_disk_while_a_run_is_written(tmp_path: Path) -> None:
    """A disk that fills up in the middle of a file leaves neither the file nor a part of it."""
    storage = LocalStorage(str(tmp_path))
    with pytest.raises(StorageError, match="Free space"), storage.open_output("runs/x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert storage.walk("") == storage.unfinished("") == []


@pytest.mark.parametrize("prefix", ["", "file:", "file://", "file://localhost"])
def test_paths_and_file_urls_open(tmp_path: Path, prefix: str) -> None:
    """A plain path and the spellings of a file: URL name the same folder."""
    open_storage(f"{prefix}{tmp_path}/s").write("a", b"x")
    assert (tmp_path / "s" / "a").read_bytes() == b"x"


def test_relative_location_counts_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative location is held to the folder in which it was opened."""
    monkeypatch.chdir(tmp_path)
    storage = open_storage("data")
    monkeypatch.chdir("/")
    storage.write("a", b"")
    assert (tmp_path / "data" / "a").exists()
    assert storage.url("a") == f"file://{tmp_path}/data/a"


@pytest.mark.parametrize(
    "location",
    [
        *("hdfs://n/x", "gs:/x", "s3:bucket/x", "hdfs:data", "s3://key:secret@bucket/x", "file://server/x"),
        *("abfss://a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.chinacloudapi.cn/x", "abfss://c@a/x"),
        *("s3://host\\x/p", "s3://u@host/p", "s3://b:90/p", "gs://a%2Fb/p", "az://a b/p", "s3://-b/p"),
        *("abfss://c@a.dfs.core.windows.net:1/x", "abfss://u@c@a.dfs.core.windows.net/x"),
    ],
)
def test_other_stores_are_refused(location: str) -> None:
    """A store that is not supported yet is refused by its name, for good."""
    with pytest.raises(StorageError, match="supported") as refused:
        open_storage(location)
    assert repr(location) in refused.value.message
    assert not refused.value.retriable


@pytest.fixture(params=[0o022, 0o077], ids=["umask 022", "umask 077"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(top: Path) -> tuple[set[int], set[int]]:
    """The modes of all folders from `top` on, and those of all files."""
    found = [top, *top.rglob("*")]
    kinds = [[one for one in found if one.is_dir() == folders] for folders in (True, False)]
    folders, files = ({one.stat().st_mode & 0o7777 for one in kind} for kind in kinds)
    return folders, files


def fill(storage: Storage) -> None:
    """Makes a file in each way that there is."""
    storage.create("catalog/1.json", b"{}")
    storage.write("status.json", b"{}")
    storage.copy("status.json", "copies/status.json")
    with storage.open_output("runs/1.parquet") as stream:
        stream.write(b"x")
    lock = storage.lock("owner.lock")
    assert lock is not None
    lock.release()


@pytest.mark.usefixtures("_umask")
def test_nobody_else_may_read_what_is_kept(tmp_path: Path) -> None:
    """Records lie in the store: what keyfold makes of it is for its own account; what was there is left as it is."""
    (tmp_path / "store").mkdir(mode=0o755)
    before = (tmp_path / "store").stat().st_mode
    fill(open_storage(str(tmp_path / "store")).sub("c"))
    assert modes(tmp_path / "store" / "c") == ({0o700}, {0o600})
    assert (tmp_path / "store").stat().st_mode == before
    fill(open_storage(str(tmp_path / "new" / "store")).sub("c"))
    assert modes(tmp_path / "new") == ({0o700}, {0o600})


@pytest.mark.usefixtures("_umask")
@pytest.mark.parametrize(
    ("own", "folders", "files"),
    [
        (None, 0o700, 0o600),
        (0o700, 0o700, 0o600),
        (0o750, 0o750, 0o640),
        (0o755, 0o755, 0o644),
        (0o1777, 0o755, 0o644),
        (0o2770, 0o2750, 0o640),
    ],
)
def test_who_may_read_a_shared_folder_may_read_what_is_put_there(
    tmp_path: Path, own: int | None, folders: int, files: int
) -> None:
    """Snapshots are for whom the folder's owner lets in; nobody, where keyfold makes it; never may others write."""
    top = tmp_path / "snapshots"
    if own is not None:
        top.mkdir()
        top.chmod(own)
    fill(pickle.loads(pickle.dumps(open_storage(str(top), shared=True).sub("c").sub("t"))))  # as Spark's tasks get it
    assert modes(top / "c") == ({folders}, {files})
    assert top.stat().st_mode & 0o7777 == (own or 0o700)
