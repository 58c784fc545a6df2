"""The order of starts: a process takes nothing over from a process that started later on the same storage location."""

from __future__ import annotations

from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from compactor.catalog.owner_lock import Owner, parse, shown, this_process
from compactor.catalog.owner_starts import FOLDER, KEPT, Start, draw
from compactor.errors import StorageError
from tests.support.memory.storage import FailingStorage, MemoryStorage


def start_of(storage: MemoryStorage, process: str) -> tuple[Start, Owner]:
    """Draws a number as the process `process`; returns it with that process as an owner."""
    start = draw(storage, process)
    return start, Owner(host="h", pid=1, process=process, start=start.number)


def test_numbers_rise_also_if_two_processes_draw_at_once() -> None:
    """A number that another process creates first is passed over."""
    storage = MemoryStorage()
    racing = FailingStorage(storage)
    racing.before("create", lambda: storage.create(f"{FOLDER}/{1:012}", b"another"), FOLDER)
    assert [draw(racing).number, draw(storage).number] == [2, 3]


def test_a_process_comes_before_those_that_started_later() -> None:
    """The earlier start knows the later one; the later one has nobody before it."""
    storage = MemoryStorage()
    (first, one), (second, other) = (start_of(storage, name) for name in ("a", "b"))
    assert (first.is_before(other), second.is_before(one)) == (True, False)


def test_a_number_drawn_elsewhere_does_not_count() -> None:
    """A connector's folder that was moved names an owner whose start is not in this location, or is another's."""
    start, _ = start_of(MemoryStorage(), "a")
    assert not start.is_before(Owner(host="h", pid=1, process="b", start=7))
    storage = MemoryStorage()
    first, _ = start_of(storage, "a")
    start_of(storage, "b")
    assert not first.is_before(Owner(host="h", pid=1, process="c", start=2))


def test_a_process_never_comes_before_itself() -> None:
    """It may have drawn twice: an operator asked it to run the connector again."""
    storage = MemoryStorage()
    first, second = draw(storage), draw(storage)
    assert not first.is_before(this_process(start=second.number))


def test_old_numbers_are_removed_and_never_drawn_again() -> None:
    """The folder holds so many at most, however often processes start."""
    storage = MemoryStorage()
    numbers = [draw(storage).number for _ in range(KEPT + 5)]
    assert numbers == list(range(1, KEPT + 6))
    assert len(storage.list(FOLDER)) == KEPT


def test_a_start_whose_number_was_removed_still_comes_later() -> None:
    """Commands draw numbers too: a process may be frozen while a hundred of them run, and its successor goes on."""
    storage = MemoryStorage()
    frozen, _ = start_of(storage, "a")
    _, successor = start_of(storage, "b")
    for number in range(KEPT + 5):
        newest, _ = start_of(storage, f"command-{number}")
    assert f"{successor.start:012}" not in storage.list(FOLDER)
    assert frozen.is_before(successor)
    assert not newest.is_before(successor)
    elsewhere = Owner(host="h", pid=1, process="x", start=newest.number + 50)
    assert not newest.is_before(elsewhere), "its folder was moved here from a location with more starts"


def test_numbers_that_a_late_list_does_not_show_are_passed_over() -> None:
    """A network file system may show an old list for half a minute."""
    storage = _Late()
    for number in range(30):
        storage.create(f"{FOLDER}/{number + 1:012}", b"another")
    assert draw(storage).number == 31


def test_old_numbers_that_cannot_be_removed_do_not_matter() -> None:
    """They only take room: the process has its number."""
    storage = MemoryStorage()
    for _ in range(KEPT):
        draw(storage)
    failing = FailingStorage(storage)
    failing.before("delete", Mock(side_effect=StorageError("No.")))
    assert draw(failing).number == KEPT + 1


def test_a_start_without_a_number_comes_before_nobody() -> None:
    """It knows no order, and the owner that it takes over from may well have ended long ago."""
    storage = MemoryStorage()
    earlier = draw(storage)
    owner = Owner(host="h", pid=1, process="b", start=earlier.number)
    assert (Start(storage, 0).is_ordered, earlier.is_ordered) == (False, True)
    assert not Start(storage, 0).is_before(owner)


def test_strange_names_in_the_folder_are_no_numbers() -> None:
    """Whoever puts them there stops no worker."""
    storage = MemoryStorage()
    for name in ("²", "7.bak", "-3", "notes"):
        storage.create(f"{FOLDER}/{name}", b"")
    assert draw(storage).number == 1


class _Late(MemoryStorage):
    """A storage whose list shows nothing yet."""

    def list(self, folder: str) -> list[str]:
        return []


class _Contended(MemoryStorage):
    """A storage on which another process is always the first to create a number."""

    def create(self, path: str, data: bytes) -> bool:
        super().create(path, b"another")
        return False


def test_numbers_that_others_always_draw_first_end_as_an_error() -> None:
    """It names the folder and what to do; it is no endless loop."""
    with pytest.raises(StorageError, match=FOLDER):
        draw(_Contended())


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        ("h:7#12.ab", Owner(host="h", pid=7, process="ab", start=12)),
        ("h:7", Owner(host="h", pid=7)),
        ("", Owner(host="", pid=0)),
        ("2001:db8::1:7", Owner(host="2001:db8::1", pid=7)),
        ("restored by hand", Owner(host="restored by hand", pid=0)),
        ("h:" + "9" * 5_000 + "#" + "9" * 5_000 + ".ab", Owner(host="h", pid=0, process="ab")),
    ],
)
def test_the_text_of_an_owner_is_read_back(text: str, owner: Owner) -> None:
    """Catalogs of earlier versions name host and process id only; people see those of every owner."""
    assert parse(text) == owner
    assert shown(text) == text.partition("#")[0]
    assert parse(this_process(start=3).text) == this_process(start=3)


def test_processes_of_one_host_name_and_process_id_are_two() -> None:
    """Containers often share the name, and their first process has the id 1."""
    ours = this_process()
    theirs = replace(ours, process="another")
    assert str(theirs) == str(ours)
    assert theirs != ours
