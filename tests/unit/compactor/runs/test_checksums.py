"""A run's file against what was written, and what the disk says while it is read."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from compactor.catalog.commits import commit_path
from compactor.errors import DamagedFileError, MissingFileError, StorageError, UnreadableFileError
from compactor.model.log import RunFile
from compactor.quarantine import verify
from compactor.runs import checksums
from compactor.runs.scan import between
from compactor.storage.base import Storage
from tests.support.logs import log, run
from tests.support.memory.storage import MemoryStorage

DATA = b"pages and a footer"
FILE = RunFile(
    path="runs/a",
    first=0,
    last=0,
    records=1,
    bytes=1,
    file_bytes=len(DATA),
    sha256="",
    footer=checksums.fingerprint(b"a footer"),
)


class BadSector(MemoryStorage):
    """A store on which a file can be opened, and not read."""

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        inner = super().open_input(path, size)

        class Broken:
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None: ...

            def size(self) -> int:
                return int(inner.size())

            def seek(self, position: int) -> int:
                return int(inner.seek(position))

            def read(self, _: int) -> bytes:
                raise OSError(errno.EIO, os.strerror(errno.EIO))

        return cast("pa.NativeFile", Broken())


@pytest.mark.parametrize("read", [checksums.verify_footer, checksums.verify_file])
def test_a_disk_that_cannot_be_read_names_the_file(read: Callable[[Storage, RunFile], object]) -> None:
    """An error of the operating system in the middle of a file is no damage, and says where and what to do."""
    storage = BadSector()
    storage.write("runs/a", DATA)
    with pytest.raises(StorageError, match=r"Could not read memory:/runs/a: Input/output error\. See whether") as found:
        read(storage, FILE)
    assert not checksums.is_damage(found.value)


@pytest.mark.parametrize("answers", [True, False])
def test_one_that_cannot_be_read_is_damaged_while_the_store_answers(*, answers: bool) -> None:
    """Then it is the file: its logs are set aside; else the store is away, which says nothing of any log."""
    storage = BadSector()
    storage.write("runs/a", DATA)
    if answers:
        storage.write(commit_path(1), b"{}")
    part = between(log(run(0, 1, [FILE])), 0, 1)
    if answers:
        (trouble,) = verify.find_damage(storage, [part])
        assert isinstance(trouble, UnreadableFileError)
    else:
        with pytest.raises(UnreadableFileError):
            verify.find_damage(storage, [part])


@pytest.mark.parametrize("data", [b"pages and a fooler", b"s and a footer", b""])
def test_a_footer_that_is_not_what_was_written_is_damage(data: bytes) -> None:
    """Another byte, or a file that is shorter or longer."""
    storage = MemoryStorage()
    storage.write("runs/a", data)
    with pytest.raises(DamagedFileError, match="memory:/runs/a is damaged"):
        checksums.verify_footer(storage, FILE)


def test_a_missing_file_stays_one() -> None:
    """What is not there is missing, not unreadable."""
    with pytest.raises(MissingFileError):
        checksums.verify_footer(MemoryStorage(), FILE)


@pytest.mark.parametrize("footer", [True, False])
def test_what_arrow_cannot_decode_is_damage(*, footer: bool) -> None:
    """It raises an error of the operating system's class without a number, or one of a value."""
    written, storage = io.BytesIO(), MemoryStorage()
    pq.write_table(pa.table({"key": [b"a"] * 100}), written, write_page_checksum=True)
    data = bytearray(written.getvalue())
    data[-4 if footer else 30] ^= 1
    storage.write("runs/a", bytes(data))
    file = msgspec.structs.replace(FILE, file_bytes=len(data), footer=None)  # of a version that kept no checksum
    with (
        pytest.raises(DamagedFileError, match=r"memory:/runs/a is damaged: .+\. Put the file back from a copy"),
        checksums.open_verified(storage, file) as opened,
    ):
        opened.read()


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError(), OSError(errno.ENETDOWN, "Network is down")])
def test_a_connection_that_ends_is_no_damage(error: OSError) -> None:
    """Such an error may have no number either."""
    with pytest.raises(StorageError, match="Could not read memory:/runs/a") as raised:  # noqa: SIM117
        with checksums.read_errors(MemoryStorage(), "runs/a"):
            raise error
    assert not checksums.is_damage(raised.value)
