"""Keeps files in a folder of a file system, as a `Storage`.

A file is written under a temporary name in its own folder, fsynced, and then given its name: by a hard link if the
name must not exist (rename would replace, and `O_EXCL` would show a file that is still being written), by a rename
if it may. The folder is fsynced after that. Anything that can be mounted and has hard links will do.

Only the account that makes a file may read it, as records lie in it; if a store is shared, also the accounts that
may read the folder that was made for it. So nothing is copied there through a symbolic link: the folder may be somebody
else's, who would be shown any file that this account may read.
"""

# ruff: noqa: D102 - `Storage` says what each method gives

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, Final

import pyarrow as pa

from compactor.errors import MissingFileError, StorageError
from compactor.storage.base import TEMPORARY, FileInfo, Files, Lock, refused, relative
from compactor.storage.folder_reads import content, files_below, names_in
from compactor.storage.limits import MOST_BYTES, SMALL_BYTES, UNHEALTHY, ListLimits, not_a_file
from compactor.storage.no_links import open_below

# The mode of folders: all rights for this account alone.
_OWNER: Final = 0o700
_READABLE: Final = 0o055
"""The bits of a folder's mode that let others read; their right to write is never passed on."""
# The bits that files may have: none to be run.
_FILE: Final = 0o666

_COPY_BYTES: Final = 1 << 30
"""What the kernel is asked to copy at once."""

_NO_FOLDER: Final = "A file stands where a folder should be: choose another storage.location, or move that file."

_NO_LINKS: Final = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)
"""What file systems answer that have no symbolic links."""

_REFUSED: Final = (errno.EACCES, errno.EPERM)
"""What the operating system answers to an account that lacks a right."""

_ACTIONS: Final = {
    errno.ENOSPC: "Free space there, or move storage.location to a larger disk.",
    errno.EDQUOT: "Raise the quota, or free space there.",
    errno.EACCES: "Let the user that runs keyfold read and write there.",
    errno.EPERM: "Let the user that runs keyfold write there, on a file system that has hard links.",
    errno.EOPNOTSUPP: "Choose a storage.location on a file system that has hard links and locks.",
    errno.EROFS: "Mount it writable, or choose another storage.location.",
    errno.ENOENT: "See whether storage.location is mounted and still there.",
    errno.ENOTDIR: _NO_FOLDER,
    errno.EEXIST: _NO_FOLDER,
    errno.EISDIR: "A folder stands where a file or a link should be: move that folder.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
}


class LocalStorage:
    """The files below `root`; a relative root counts from the current folder at the time of the call.

    The accounts that may read the folder `readers` may read what is written; None: only this account.
    """

    def __init__(self, root: str, readers: str | None = None, lists: ListLimits = ListLimits()) -> None:  # noqa: B008  # it is immutable
        self._lists = lists
        self._root = Path.cwd() / root
        self._readers = None if readers is None else Path.cwd() / readers

    @property
    def location(self) -> str:
        return str(self._root)

    @property
    def is_folder(self) -> bool:
        return True

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        with _storage_errors("read", self._at(path)) as file:
            return content(file, at_most)

    def create(self, path: str, data: bytes) -> bool:
        with _storage_errors("create", self._at(path)) as file, self._temporary(file) as temporary:
            with self._synced(temporary) as stream:
                stream.write(data)
            return _link(temporary, file)

    def write(self, path: str, data: bytes) -> None:
        with _storage_errors("write", self._at(path)) as file, self._temporary(file) as temporary:
            with self._synced(temporary) as stream:
                stream.write(data)
            temporary.replace(file)
            _sync_folder(file.parent)

    def replace(self, path: str, seen: bytes, data: bytes) -> bool:
        with _storage_errors("write", self._at(path)) as file, self._temporary(file) as temporary:
            with self._synced(temporary) as stream:
                stream.write(data)
            return _replace(temporary, file, seen)

    @property
    def copies_files(self) -> bool:
        return True

    def copy(self, source: str, target: str) -> None:
        with (
            _storage_errors("read", self._at(source)),
            os.fdopen(open_below(self._root, relative(source)), "rb", buffering=0) as original,
            _storage_errors("write", self._at(target)) as file,
            self._temporary(file) as temporary,
        ):
            with self._synced(temporary) as stream:
                _copy(original, stream)
            temporary.replace(file)
            _sync_folder(file.parent)

    def link(self, path: str, folder: str) -> bool:
        with _storage_errors("link", self._at(path)) as place:
            target = os.path.relpath(self._at(folder), place.parent)  # so that the whole may be moved
            if place.is_symlink() and str(place.readlink()) == target:
                return True
            with self._temporary(place) as temporary:
                if not _symlink(temporary, target):
                    return False
                temporary.replace(place)
                _sync_folder(place.parent)
            return True

    def list(self, folder: str) -> list[str]:
        with _storage_errors("list", self._at(folder)) as directory:
            names = sorted(names_in(directory, self._lists.begin(str(directory))))
            first = bisect_left(names, TEMPORARY)
            while names[first : first + 1] and names[first].startswith(TEMPORARY):
                del names[first]
            return names

    def walk(self, folder: str) -> Files:
        return [info for info in self._files(folder) if not info.is_temporary]

    def unfinished(self, folder: str) -> Files:
        return [info for info in self._files(folder) if info.is_temporary]

    def delete(self, path: str) -> None:
        with _storage_errors("delete", self._at(path)) as file:
            file.unlink(missing_ok=True)

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_own(self, paths: Iterable[str], is_own: Callable[[bytes], bool]) -> None:
        for path in paths:
            with _storage_errors("delete", self._at(path)) as file:
                _unlink_own(file, is_own)

    def delete_folder(self, folder: str) -> None:
        with _storage_errors("delete", self._at(folder)) as directory, suppress(FileNotFoundError):
            shutil.rmtree(directory)

    def exists(self, path: str) -> bool:
        with _storage_errors("look at", self._at(path)) as file:
            return file.exists()

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:  # noqa: ARG002 - a file says it itself
        with _storage_errors("read", self._at(path)) as file:
            if not stat.S_ISREG(file.stat().st_mode):  # to open a pipe would wait for its writer
                raise not_a_file(str(file))
            return pa.OSFile(str(file), "rb")

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        with _storage_errors("write", self._at(path)) as file, self._temporary(file) as temporary:
            with self._synced(temporary) as stream:
                yield stream
            if not _link(temporary, file):
                raise StorageError(f"{file} exists already.", "This is a defect of keyfold; it was left as it is.")

    def url(self, path: str) -> str:
        # Hadoop and DuckDB take the rest of the text as it stands: percent signs are not decoded.
        return f"file://{self._at(path)}"

    def sub(self, *parts: str) -> LocalStorage:
        readers = None if self._readers is None else str(self._readers)
        return LocalStorage(str(self._at("/".join(parts))), readers, self._lists)

    def lock(self, path: str) -> Lock | None:
        with _storage_errors("lock", self._at(path)) as file:
            _make_folder(file.parent, self._mode())
            return _FileLock.take(file, self._mode() & _FILE)

    def locked_by(self, path: str) -> bytes | None:
        with _storage_errors("look at", self._at(path)) as file:
            return _holder(file)

    def _mode(self) -> int:
        """Returns the mode of new folders; files have no right to be run."""
        try:
            return _OWNER | (_READABLE & self._readers.stat().st_mode if self._readers else 0)
        except FileNotFoundError:
            return _OWNER

    @contextmanager
    def _temporary(self, file: Path) -> Iterator[Path]:
        """Yields a new name in the folder of `file`; it is removed afterwards."""
        _make_folder(file.parent, self._mode())
        temporary = file.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            yield temporary
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    @contextmanager
    def _synced(self, temporary: Path) -> Iterator[IO[bytes]]:
        mode = self._mode() & _FILE
        with os.fdopen(_opened(temporary, os.O_WRONLY | os.O_EXCL, mode), "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())

    def _at(self, path: str) -> Path:
        return self._root / relative(path)

    def _files(self, folder: str) -> Files:
        with _storage_errors("list", self._at(folder)) as top:
            infos = map(self._info, files_below(top, self._lists.begin(str(top))))
            return sorted((info for info in infos if info), key=lambda info: info.path)

    def _info(self, file: os.DirEntry[str]) -> FileInfo | None:
        try:
            about = file.stat()
        except FileNotFoundError:
            return None
        path = file.path.removeprefix(str(self._root)).lstrip("/")
        return FileInfo(path, about.st_size, about.st_mtime_ns // 1_000_000)


class _FileLock:
    """A flock, which ends with the process that holds it, whatever ends that."""

    def __init__(self, descriptor: int, file: Path) -> None:
        self._descriptor: int | None = descriptor
        self._file = file

    @classmethod
    def take(cls, file: Path, mode: int) -> _FileLock | None:
        descriptor = _opened(file, os.O_RDWR, mode)
        try:
            held = _flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            os.close(descriptor)
            raise
        if held:
            return cls(descriptor, file)
        os.close(descriptor)
        return None

    def write(self, data: bytes) -> None:
        if self._descriptor is not None:
            with _storage_errors("write", self._file):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, data, 0)

    def is_current(self) -> bool:
        with _storage_errors("look at", self._file) as file:
            try:
                return self._descriptor is not None and os.path.samestat(os.fstat(self._descriptor), file.stat())
            except FileNotFoundError:
                return False

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def _holder(file: Path) -> bytes | None:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    try:
        return None if _flock(descriptor, fcntl.LOCK_SH) else os.pread(descriptor, 65_536, 0)
    finally:
        os.close(descriptor)


def _flock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _storage_errors(what: str, file: Path) -> Iterator[Path]:
    """Raises errors of the operating system as StorageError: `what` failed with `file`, and what to do next."""
    try:
        yield file
    except OSError as error:
        action = _ACTIONS.get(error.errno or 0, UNHEALTHY)
        said = str(error.strerror or error)
        if error.errno in _REFUSED:
            raise refused(what, str(file), said, action) from error
        kind = MissingFileError if what == "read" and isinstance(error, FileNotFoundError) else StorageError
        raise kind(f"Could not {what} {file}: {said}.", action) from error


def _opened(file: Path, flags: int, mode: int) -> int:
    """Opens `file`, which is made with `mode` if it is absent, whatever the umask; returns its descriptor."""
    descriptor = os.open(file, flags | os.O_CREAT, _OWNER & mode)
    if mode & ~_OWNER:
        with suppress(PermissionError):
            os.fchmod(descriptor, mode)
    return descriptor


def _link(temporary: Path, file: Path) -> bool:
    """Gives `temporary` the name `file` if that is free; either way the name is durable afterwards."""
    try:
        os.link(temporary, file)
        made = True
    except FileExistsError:
        # If an answer was lost, a network file system may repeat the call, and then finds its own link.
        made = temporary.stat().st_nlink > 1
    _sync_folder(file.parent)
    return made


def _replace(temporary: Path, file: Path, seen: bytes) -> bool:
    """Gives `temporary` the name `file` if that has the content `seen`; who does so holds the lock of the old file."""
    try:
        descriptor = os.open(file, os.O_RDWR)  # a network file system locks no file that is open for reading alone
    except FileNotFoundError:
        return False
    try:
        if not _flock(descriptor, fcntl.LOCK_EX):
            return False
        about = os.fstat(descriptor)
        if not os.path.samestat(about, file.stat()) or about.st_size != len(seen):
            return False
        if os.pread(descriptor, about.st_size, 0) != seen:
            return False
        temporary.replace(file)
        _sync_folder(file.parent)
    except FileNotFoundError:
        return False
    finally:
        os.close(descriptor)
    return True


def _unlink_own(file: Path, is_own: Callable[[bytes], bool]) -> None:
    """Removes `file` if its content `is_own`. Holds its lock, as `_replace` does, and its folder instead of a name.

    So a caller that sleeps before the last call removes nothing from a folder that was made again meanwhile.
    """
    with suppress(FileNotFoundError), _opened_folder(file.parent) as folder:
        descriptor = os.open(file.name, os.O_RDWR | os.O_NOFOLLOW, dir_fd=folder)
        try:
            if not _flock(descriptor, fcntl.LOCK_EX):
                return
            about = os.fstat(descriptor)
            if about.st_size <= MOST_BYTES and is_own(os.pread(descriptor, about.st_size, 0)):
                there = os.stat(file.name, dir_fd=folder, follow_symlinks=False)
                if os.path.samestat(about, there):
                    os.unlink(file.name, dir_fd=folder)
        finally:
            os.close(descriptor)


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _copy(original: FileIO, stream: IO[bytes]) -> None:
    """Copies `original` to `stream`, inside the kernel if it can: there some file systems share the blocks."""
    with suppress(OSError):  # not between these file systems, for example; a full disk refuses what follows as well
        while os.copy_file_range(original.fileno(), stream.fileno(), _COPY_BYTES):
            pass
    shutil.copyfileobj(original, stream)  # goes on from there; nothing if all is copied


def _symlink(place: Path, target: str) -> bool:
    try:
        place.symlink_to(target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def _make_folder(folder: Path, mode: int) -> None:
    if folder.is_dir():
        return
    if folder.parent != folder:
        _make_folder(folder.parent, mode)
    folder.mkdir(_OWNER, exist_ok=True)
    if mode & ~_OWNER:
        with suppress(PermissionError):
            folder.chmod(mode | folder.stat().st_mode)  # a folder may have its group from the one that it is in
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    with _opened_folder(folder) as descriptor:
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):  # some file systems have no fsync of folders
                raise
