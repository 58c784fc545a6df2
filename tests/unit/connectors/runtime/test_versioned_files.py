"""Small files of which each change is a new version: a writer who is late replaces nothing, and learns of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.errors import StorageError
from compactor.storage.base import FileInfo, Storage
from connectors.config.fields import is_connector_name
from connectors.errors import SupersededError
from connectors.runtime.specs.versioned_files import KEPT_MS, REMOVED, VersionedFiles
from tests.support.clocks import ManualClock
from tests.support.memory.storage import FailingStorage, MemoryStorage, lose_answer

OLD, NEW, OTHER = b'{"is": "old"}', b'{"is": "new"}', b'{"is": "another"}'


@pytest.fixture
def memory() -> MemoryStorage:
    return MemoryStorage()


def opened(storage: Storage) -> VersionedFiles:
    """The files as a process opens them, which has read them."""
    found = VersionedFiles(storage, "files", is_connector_name)
    found.read()
    return found


def stored(storage: Storage) -> dict[str, bytes]:
    """What the next start reads."""
    return opened(storage).read()


def test_a_file_is_what_was_written_last(memory: MemoryStorage) -> None:
    """One file is there for it, whose name has the version; one that was removed is not read."""
    files = opened(memory)
    for data in (OLD, NEW, OTHER):
        files.write("a", data)
        files.write("b.json", data)
    assert stored(memory) == {"a": OTHER, "b.json": OTHER}
    assert memory.list("files") == ["a@00000000000000000003.json", "b.json@00000000000000000003.json"]
    files.remove("a")
    files.remove("a")
    files.remove("nobody")
    assert stored(memory) == {"b.json": OTHER}
    files.write("a", NEW)
    assert stored(memory)["a"] == NEW


def test_a_file_without_a_version_is_before_all(memory: MemoryStorage) -> None:
    """An older keyfold has written it, or a hand; the first change is its first version, and takes it away."""
    memory.write("files/a.json", OLD)
    memory.write("files/a.json.bak", NEW)
    memory.write("files/more/a.json", NEW)
    files = VersionedFiles(memory, "files", is_connector_name)
    assert files.read() == {"a": OLD}
    files.write("a", NEW)
    assert stored(memory) == {"a": NEW}
    assert "a.json" not in memory.list("files")


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize("changes", [1, 2, 5])
@pytest.mark.parametrize("last", [NEW, REMOVED])
def test_a_late_writer_replaces_nothing(memory: MemoryStorage, changes: int, last: bytes, knows: bool) -> None:
    """Whether it finds its number taken, or a higher one; of a file that it knows, or believes not to be there."""
    if knows:
        opened(memory).write("a", OLD)
    late, owner = opened(memory), opened(memory)
    for number in range(changes):
        owner.write("a", b'{"n": "%d"}' % number)
    if last == REMOVED:
        owner.remove("a")
    before = memory.walk("")
    with pytest.raises(SupersededError, match="newer version of a"):
        late.write("a", OLD)
    assert memory.walk("") == before
    assert stored(memory) == ({} if last == REMOVED else {"a": b'{"n": "%d"}' % (changes - 1)})
    owner.write("a", OTHER)
    assert stored(memory) == {"a": OTHER}
    late.read()
    late.write("a", NEW)
    assert stored(memory) == {"a": NEW}, "one that has read again is not late"


@pytest.mark.parametrize("data", [NEW, REMOVED])
def test_an_answer_that_is_lost_is_read_back(memory: MemoryStorage, data: bytes) -> None:
    """The change was made, and the writer is told so."""
    storage = FailingStorage(memory)
    files = opened(storage)
    files.write("a", OLD)
    storage.after("create", lose_answer)
    files.write("a", data)
    assert not files.is_open
    assert stored(memory) == ({} if data == REMOVED else {"a": data})
    files.write("a", OTHER)
    assert stored(memory) == {"a": OTHER}


def test_a_change_that_was_refused_is_never_made(memory: MemoryStorage) -> None:
    """The writer is told that it was not made; a request that was on its way all the time finds its number taken."""
    storage = FailingStorage(memory)
    files = opened(storage)
    files.write("a", OLD)
    storage.before("create", lose_answer)
    with pytest.raises(StorageError, match="The store did not answer"):
        files.write("a", NEW)
    assert not files.is_open
    assert not memory.create("files/a@00000000000000000002.json", NEW)
    assert stored(memory) == {"a": OLD}
    files.write("a", OTHER)
    assert stored(memory) == {"a": OTHER}


@pytest.mark.parametrize("is_made", [True, False])
@pytest.mark.parametrize(
    "settle", [VersionedFiles.settle, lambda files: files.write("a", OTHER)], ids=["asked", "next"]
)
def test_an_outcome_that_nothing_tells_is_open_until_it_is_decided(
    memory: MemoryStorage, is_made: bool, settle: Callable[[VersionedFiles], object]
) -> None:
    """The message says that it is not known; then it is decided, for every process and for good."""
    storage = FailingStorage(memory)
    files = opened(storage)
    files.write("a", OLD)
    (storage.after if is_made else storage.before)("create", lose_answer)
    storage.before("read", lose_answer)
    with pytest.raises(StorageError, match="Whether a was stored is not known"):
        files.write("a", NEW)
    assert files.is_open
    settle(files)
    assert not files.is_open
    known = files.read()
    assert known == stored(memory)
    if settle is VersionedFiles.settle:
        assert known == {"a": NEW if is_made else OLD}
    else:
        assert known == {"a": OTHER}
    assert not memory.create("files/a@00000000000000000002.json", NEW) or stored(memory) == known


def test_a_request_that_arrives_late_is_found(memory: MemoryStorage) -> None:
    """It was not there when it was read back, and nothing could be put in its place: it is known from then on."""
    storage = FailingStorage(memory)
    files = opened(storage)
    for _ in range(2):
        storage.before("create", lose_answer)
    with pytest.raises(StorageError):
        files.write("a", NEW)
    assert files.is_open
    memory.create("files/a@00000000000000000001.json", NEW)
    files.settle()
    assert files.read() == {"a": NEW}


def test_an_open_outcome_that_another_owner_has_overtaken(memory: MemoryStorage) -> None:
    """The other's change counts, and what was open is given up."""
    storage = FailingStorage(memory)
    files = opened(storage)
    files.write("a", OLD)
    storage.before("create", lose_answer)
    storage.before("read", lose_answer)
    with pytest.raises(StorageError):
        files.write("a", NEW)
    other = opened(memory)
    other.write("a", OTHER)
    with pytest.raises(SupersededError):
        files.write("a", NEW)
    assert not files.is_open
    assert stored(memory) == {"a": OTHER}


def test_what_is_left_of_a_removal_goes_after_a_while() -> None:
    """Not before a writer that is late may have come."""
    clock = ManualClock()
    memory = MemoryStorage(clock)
    files = opened(memory)
    for name in ("a", "b"):
        files.write(name, OLD)
    files.remove("a")
    for late_ms, left in ((KEPT_MS, 2), (KEPT_MS + 1, 1)):
        files.forget_removed(clock.now_ms() + late_ms)
        assert len(memory.walk("")) == left
    files.write("a", NEW)
    assert stored(memory) == {"a": NEW, "b": OLD}


def test_a_removal_that_was_forgotten_meanwhile_is_one() -> None:
    """A process that has not read for longer than a removal is kept reads again what is there, and may write."""
    clock = ManualClock()
    memory = MemoryStorage(clock)
    late = opened(memory)
    for name in ("a", "b"):
        late.write(name, OLD)
    owner = opened(memory)
    owner.remove("a")
    owner.forget_removed(clock.now_ms() + KEPT_MS + 1)
    assert late.read(["b"]) == {"b": OLD}
    assert late.read() == {"b": OLD}
    late.write("a", NEW)
    assert stored(memory) == {"a": NEW, "b": OLD}


class Racing(MemoryStorage):
    """A store whose next list leaves out a file, once `omitted` is set."""

    omitted = ""

    def walk(self, under: str) -> list[FileInfo]:
        omitted, self.omitted = self.omitted, ""
        return [info for info in super().walk(under) if not omitted or omitted not in info.path]


def test_a_file_that_is_replaced_while_a_folder_is_listed_is_there() -> None:
    """A list of a disk that was under way may show neither the old version nor the new one."""
    racing = Racing()
    files, owner = opened(racing), opened(racing)
    for name in ("a", "b"):
        files.write(name, OLD)
    owner.read()
    owner.write("a", NEW)
    racing.omitted = "/a@"
    assert files.read() == {"a": NEW, "b": OLD}


@pytest.mark.parametrize("away", ["walk", "delete"])
def test_what_was_removed_does_not_come_back(away: str) -> None:
    """What the store would not let go of below the removal goes before it does."""
    clock = ManualClock()
    memory = MemoryStorage(clock)
    storage = FailingStorage(memory)
    files = opened(storage)
    files.write("a", OLD)
    storage.before(away, lose_answer)
    with suppress(StorageError):
        files.remove("a")
    assert len(memory.walk("")) == 2
    owner = opened(memory)
    owner.forget_removed(clock.now_ms() + KEPT_MS + 1)
    assert stored(memory) == {}
    assert memory.walk("") == []


@pytest.mark.parametrize("away", ["walk", "delete"])
def test_a_late_writer_is_told_so_also_by_a_store_that_hardly_answers(memory: MemoryStorage, away: str) -> None:
    """Its number was free again, and it cannot see, or not remove, what it has made below the owner's version."""
    storage = FailingStorage(memory)
    opened(memory).write("a", OLD)
    late, owner = opened(storage), opened(memory)
    owner.write("a", NEW)
    owner.write("a", OTHER)
    storage.before(away, lose_answer)
    with pytest.raises((SupersededError, StorageError)):
        late.write("a", OLD)
    assert stored(memory) == {"a": OTHER}
    late.settle()
    assert not late.is_open
    assert late.read() == {"a": OTHER}
    owner.remove("a")
    assert stored(memory) == {}
    assert len(memory.walk("")) == 1


STEPS = st.sampled_from(["write", "remove", "read", "lost", "refused"])


@given(st.lists(st.tuples(st.integers(0, 1), STEPS, st.binary(min_size=6, max_size=7)), max_size=20))
def test_two_writers_agree_on_what_is_there(steps: list[tuple[int, str, bytes]]) -> None:
    """Whoever writes, however late, and whatever answers are lost: a change that was made counts until the next."""
    memory = MemoryStorage()
    storages = [FailingStorage(memory), FailingStorage(memory)]
    writers = [opened(storage) for storage in storages]
    is_there: bytes | None = None
    for who, step, data in steps:
        if step == "read":
            writers[who].read()
            continue
        if step in ("lost", "refused"):
            (storages[who].after if step == "lost" else storages[who].before)("create", lose_answer)
        try:
            if step == "remove":
                writers[who].remove("a")
            else:
                writers[who].write("a", data)
        except (SupersededError, StorageError):
            pass
        else:
            if step != "remove" or writers[who].read(["a"]) == {}:
                is_there = None if step == "remove" else data
        storages[who].plan.clear()
        assert stored(memory).get("a") == is_there


def test_what_a_list_leaves_out_is_not_gone() -> None:
    """Every connector that was made over REST would end, and be there again only with the worker's next start."""
    storage = MemoryStorage()
    files = VersionedFiles(storage, "f", is_connector_name)
    files.write("a", b"kept")
    files.write("b", b"gone")
    files.remove("b")
    assert files.read() == {"a": b"kept"}
    storage.lists_nothing = True
    with pytest.raises(StorageError, match="f holds a, and a list of it does not show that"):
        files.read()
    storage.lists_nothing = False
    assert files.read() == {"a": b"kept"}
    for info in storage.walk("f"):
        storage.delete(info.path)
    with pytest.raises(StorageError, match=r"f has nothing of a, .* mounted"):  # a removal would be listed
        files.read()
