"""Verifies files of runs: a whole file, or its Parquet footer, which page checksums do not cover.

A footer with wrong statistics would make a reader leave out records without an error. So it is compared with its own
checksum before anything is planned with it: one small read a file.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from compactor.errors import DamagedFileError, MissingFileError, StorageError, UnreadableFileError
from compactor.model.log import RunFile
from compactor.remembered import Remembered
from compactor.runs.group_notes import GroupNote
from compactor.storage.base import Storage
from compactor.storage.limits import UNHEALTHY

RESTORE: Final = (
    "Put the file back from a copy, then `keyfold release` the partition; until then it alone is quarantined."
)

_SAID: Final = 200
"""Characters of what Arrow says that an error quotes."""


def fingerprint(footer: bytes) -> str:
    """Returns what a RunFile keeps of its Parquet footer: length in bytes and checksum."""
    return f"{len(footer)}:{hashlib.sha256(footer).hexdigest()[:32]}"


def verify_footer(storage: Storage, file: RunFile) -> None:
    """Reads the end of `file` and compares it with the footer that was written; nothing is read if none was kept.

    Raises MissingFileError, DamagedFileError; StorageError if the store does not answer.
    """
    if file.footer is not None:
        with read_errors(storage, file.path), storage.open_input(file.path, file.file_bytes) as source:
            _verify_footer(storage, file, source)


@contextmanager
def open_verified(storage: Storage, file: RunFile, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
    """Opens `file` after its footer is verified, so that reads can be planned with it; damaged pages raise when read.

    `footer`: that of an earlier call, which is then not read and verified again.

    Raises MissingFileError, DamagedFileError; StorageError if the store does not answer, also within the block.
    """
    with read_errors(storage, file.path), storage.open_input(file.path, file.file_bytes) as source:
        if footer is None:
            _verify_footer(storage, file, source)
            source.seek(0)
        with _opened(storage, file.path, source, footer) as opened:
            yield opened


def _opened(storage: Storage, path: str, source: pa.NativeFile, footer: pq.FileMetaData | None) -> pq.ParquetFile:
    # Of an object store the columns of a row group are asked for together, not one by one.
    together = not storage.is_folder
    try:
        return pq.ParquetFile(source, metadata=footer, page_checksum_verification=True, pre_buffer=together)
    except pa.ArrowInvalid as error:  # a footer of which older versions have kept no checksum
        raise _damaged(storage, path, error) from error


def _verify_footer(storage: Storage, file: RunFile, source: pa.NativeFile) -> None:
    if file.footer is None:
        return
    length, size = int(file.footer.partition(":")[0]), source.size()
    source.seek(max(0, size - length))
    if size != file.file_bytes or fingerprint(source.read(length)) != file.footer:
        raise DamagedFileError(f"{storage.location}/{file.path} is damaged: its end is not what was written.", RESTORE)


@contextmanager
def read_errors(storage: Storage, path: str) -> Iterator[None]:
    """Raises what goes wrong while an open file is read as a StorageError that names the file.

    DamagedFileError for what Arrow cannot decode, UnreadableFileError for what the disk cannot read.
    """
    try:
        yield
    except OSError as error:
        if is_decoding(error):
            raise _damaged(storage, path, error) from error
        kind = UnreadableFileError if error.errno == errno.EIO else StorageError
        why = error.strerror or error
        raise kind(f"Could not read {storage.location}/{path}: {why}.", UNHEALTHY) from error


def is_decoding(error: OSError) -> bool:
    """Returns whether Arrow says that it cannot decode a file: with the class of the system's errors, but no number.

    Errors of a connection have none either, and a class of their own.
    """
    return type(error) is OSError and error.errno is None


def _damaged(storage: Storage, path: str, error: Exception) -> DamagedFileError:
    why = str(error).partition("\n")[0][:_SAID].removesuffix(".")
    return DamagedFileError(f"{storage.location}/{path} is damaged: {why}.", RESTORE)


def is_damage(error: BaseException | None) -> bool:
    """Returns whether `error` says that a file is missing or damaged, rather than that a store does not answer."""
    return isinstance(error, MissingFileError | DamagedFileError)


def verify_file(storage: Storage, file: RunFile) -> bool:
    """Reads all of `file`; returns whether it is, byte for byte, what was written. Raises StorageError."""
    return sha256_of(storage, file.path, file.file_bytes) == file.sha256


_A_NAME: Final = 512
"""Bytes in memory of the names and the checksum of a file that was verified."""

_FILES: Final = 50_000
"""How many files a process remembers to have verified: 3 TB of them if they have 64 MB each, in 25 MB of memory. With
more of them, each that is not among the last that were used is read again as a whole."""

# Bytes of the files that this process has verified, by location, path and checksum.
_intact: Final = Remembered[int](_A_NAME * _FILES)


def check_intact(storage: Storage, file: RunFile, before_reading: Callable[[int], None] | None = None) -> None:
    """Raises DamagedFileError if a file is not what was written; it is read for that once in a process.

    To decode a damaged page may end the process. `before_reading` is told the bytes of a file that was not verified
    yet, and may raise. Raises MissingFileError, StorageError.
    """
    name = storage.location, file.path, file.sha256
    if _intact.get(name) is not None:
        return
    if before_reading is not None:
        before_reading(file.file_bytes)
    if not verify_file(storage, file):
        raise DamagedFileError(f"{storage.location}/{file.path} is damaged: it is not what was written.", RESTORE)
    _intact.put(name, file.file_bytes, _A_NAME)


def check_group(storage: Storage, file: RunFile, group: GroupNote) -> None:
    """Raises DamagedFileError if a row group of a file is not what was written, MissingFileError, StorageError."""
    with read_errors(storage, file.path), storage.open_input(file.path, file.file_bytes) as source:
        source.seek(group.first)
        data = source.read(group.end - group.first)
    if not group.fits(data):
        what = f"its bytes {group.first:,} to {group.end:,} are not what was written"
        raise DamagedFileError(f"{storage.location}/{file.path} is damaged: {what}.", RESTORE)


def sha256_of(storage: Storage, path: str, size: int) -> str:
    """Reads all of a file of `size` bytes; returns its checksum in hex. Raises StorageError."""
    digest = hashlib.sha256()
    with read_errors(storage, path), storage.open_input(path, size) as source:
        while data := source.read(_PIECE):
            digest.update(data)
    return digest.hexdigest()


# Bytes of a file in memory at a time.
_PIECE: Final = 8 << 20
