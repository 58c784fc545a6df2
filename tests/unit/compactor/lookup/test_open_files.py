"""Files that stay open between the look-ups of a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from compactor.errors import DamagedFileError, MissingFileError
from compactor.lookup.open_files import USES, OpenFiles
from compactor.model import record
from compactor.model.log import RunFile
from compactor.runs import writer
from compactor.runs.writer import RunTarget
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage
from tests.support.engine import row
from tests.support.memory.storage import MemoryStorage


def files_of(storage: Storage, count: int) -> list[RunFile]:
    """Writes files with a record each."""
    target = RunTarget(storage=storage, prefix="1-j", max_bytes=1)
    batches = [pa.RecordBatch.from_pylist([row(0, at, b"k", b"v")], record.RUN) for at in range(count)]
    return [next(iter(writer.write([batch], target, "ingest.write"))).file for batch in batches]


def read(files: OpenFiles, storage: Storage, file: RunFile) -> None:
    with files.opened(storage, file, None) as opened:
        assert opened.read_row_group(0, ["value"]).to_pylist() == [{"value": b"v"}]


def open_now(folder: Path) -> list[str]:
    """Returns the names of the files in `folder` that this process has open; the system adds to deleted ones."""
    return sorted(Path(target).name for target in _targets() if target.startswith(str(folder)))


def _targets() -> Iterator[str]:
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            yield str(descriptor.readlink())
        except FileNotFoundError:  # that of the list itself
            continue


def names_of(*files: RunFile) -> list[str]:
    return sorted(Path(file.path).name for file in files)


def test_the_files_that_were_used_last_stay_open(tmp_path: Path) -> None:
    """Each is open once, however often it is read, and no more than are allowed."""
    storage, files = LocalStorage(str(tmp_path)), OpenFiles(2)
    first, second, third = files_of(storage, 3)
    for file in (first, second, first, third, first):
        read(files, storage, file)
    assert open_now(tmp_path) == names_of(first, third)


@pytest.mark.parametrize("uses", [1, USES])
def test_a_deleted_file_is_closed_with_the_next_that_is_opened(tmp_path: Path, uses: int) -> None:
    """Or after some uses of another: what is deleted is not to stay on the disk because it was looked at once."""
    storage, files = LocalStorage(str(tmp_path)), OpenFiles(2)
    first, second = files_of(storage, 2)
    if uses > 1:
        read(files, storage, second)
    read(files, storage, first)
    storage.delete(first.path)
    for _ in range(uses):
        read(files, storage, second)
    assert open_now(tmp_path) == names_of(second)


def test_a_file_that_could_not_be_read_is_closed(tmp_path: Path) -> None:
    """It may be put back from a copy: the next look-up reads that."""
    storage, files = LocalStorage(str(tmp_path)), OpenFiles(2)
    (file,) = files_of(storage, 1)
    read(files, storage, file)
    whole = storage.read(file.path)
    place = tmp_path / file.path
    place.chmod(0o600)
    place.write_bytes(bytes(len(whole)))
    with pytest.raises(DamagedFileError):
        read(files, storage, file)
    assert open_now(tmp_path) == []
    place.write_bytes(whole)
    read(files, storage, file)


def test_a_thread_has_files_of_its_own_until_it_ends(tmp_path: Path) -> None:
    """Arrow does not say that threads may share a reader. A thread that has nothing to do ends."""
    storage, files, closes = LocalStorage(str(tmp_path)), OpenFiles(2), threading.Event()
    (file,) = files_of(storage, 1)
    is_read = threading.Event()

    def look_up() -> None:
        read(files, storage, file)
        is_read.set()
        closes.wait()

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    is_read.wait()
    read(files, storage, file)
    assert open_now(tmp_path) == names_of(file, file)
    closes.set()
    thread.join()
    assert open_now(tmp_path) == names_of(file)


@pytest.mark.parametrize("most", [0, 2])
def test_no_file_stays_open_unless_it_is_asked_for_and_in_a_folder(tmp_path: Path, most: int) -> None:
    """Of an object store each read is a request of its own."""
    storage: Storage = MemoryStorage() if most else LocalStorage(str(tmp_path))
    files = OpenFiles(most)
    (file,) = files_of(storage, 1)
    read(files, storage, file)
    storage.delete(file.path)
    with pytest.raises(MissingFileError):
        read(files, storage, file)
