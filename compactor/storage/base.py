"""Storage: keeps catalogs, runs and snapshots.

The engine relies on this, and every implementation must give it:

    create    of any number of callers at once exactly one makes the file; a reader sees all of it or none
    list      shows every file that was made before the list began (its call had returned), and is still there
    durable   what create, write, copy and open_output have returned from survives a loss of power

Folders are in `compactor.storage.local`, object stores in `object_store`; `locations` tells which one a location names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from compactor.errors import StorageRefusedError, UnsupportedStorageError
from compactor.storage.limits import SMALL_BYTES

if TYPE_CHECKING:
    import pyarrow as pa


TEMPORARY: Final = ".tmp-"
"""What names begin with that `list` and `walk` leave out."""

_RIGHTS: Final = {
    "look at": "read",
    "create": "write",
    "give up": "write",
    "copy": "read and write",
    "link": "write",
    "lock": "write",
}
"""The right that an operation takes, if its name is another."""


def refused(what: str, where: str, said: str, action: str) -> StorageRefusedError:
    """Returns the error for a store that refuses the right to do `what`; `said` is its answer."""
    right = _RIGHTS.get(what, what)
    return StorageRefusedError(f"Could not {what} {where}: the right to {right} is refused: {said}.", action)


class FileInfo(Struct, frozen=True):
    """A file of a store; `path` is relative to the storage that was asked."""

    path: str
    bytes: int
    modified_ms: int

    @property
    def is_temporary(self) -> bool:
        """Whether a writer has not given it its name yet."""
        return self.path.rpartition("/")[2].startswith(TEMPORARY)


Files = list[FileInfo]


class Lock(Protocol):
    """A lock that is held until `release` or the end of the process."""

    def write(self, data: bytes) -> None:
        """Writes what `Storage.locked_by` returns from now on."""

    def is_current(self) -> bool:
        """Returns whether its file is still the one at its path: a folder may have been moved, or a disk unmounted."""

    def release(self) -> None:
        """Gives the lock back; a second call does nothing."""


class Storage(Protocol):
    """A folder of a store. Paths are relative to it, with `/`; it can be pickled and used in Spark's tasks.

    Every method raises StorageError if the store refuses, with the path and what to do.
    """

    @property
    def location(self) -> str:
        """The folder as it is shown in messages."""

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of a file system, which Spark's JVM reads by its `url`; False for an object store."""

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        """Reads the whole file; MissingFileError if it is absent.

        ForeignContentError if it has more than `at_most` bytes, which are not read, or is no file.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Creates `path` with `data` if it is absent; True if this call made it. Complete or absent, durable."""

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces `path`; a reader sees the old or the new content. Durable."""

    def replace(self, path: str, seen: bytes, data: bytes) -> bool:
        """Replaces `path` if its content is `seen`, in one step; True if this call did. Durable.

        Every other caller that would replace the same content returns False. A store that cannot compare is asked
        right before: another writer may still come in between.
        """

    @property
    def copies_files(self) -> bool:
        """Whether there is `copy`: not if a store may answer before a copy is complete."""

    def copy(self, source: str, target: str) -> None:
        """Creates or replaces `target` with the content of `source`, if possible without reading it in a process.

        A reader sees the old or the new content. Durable. MissingFileError if `source` is absent.
        """

    def link(self, path: str, folder: str) -> bool:
        """Lets the name `path` lead to `folder`, in one step even if it led elsewhere; False if there are no links."""

    def list(self, folder: str) -> list[str]:
        """Lists names of files and folders directly inside `folder`, sorted; empty if it is absent.

        Every list ends within its `ListLimits`, or raises ForeignContentError or StorageError.
        """

    def walk(self, folder: str) -> Files:
        """Lists all files anywhere below `folder`, sorted by path; empty if it is absent."""

    def unfinished(self, folder: str) -> Files:
        """Lists temporary files below `folder`, of writers at work or dead. `list` and `walk` never show them."""

    def delete(self, path: str) -> None:
        """Removes a file, if it is there."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Removes files, those that are there, in as few requests as the store needs."""

    def delete_own(self, paths: Iterable[str], is_own: Callable[[bytes], bool]) -> None:
        """Removes each file of which `is_own` is true, given its content; looks and removes in one step.

        So no file goes that has taken the place of one by `replace`, or in a folder that was removed and made again. A
        store that cannot compare removes all of them: the caller has looked right before.
        """

    def delete_folder(self, folder: str) -> None:
        """Removes `folder` and all that is in it, if it is there."""

    def exists(self, path: str) -> bool:
        """Returns whether the file or folder is there."""

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        """Opens a file for random access; MissingFileError if it is absent.

        `size`: its bytes, if they are known, which spares a store a request.
        """

    def open_output(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Opens a new file. It appears, complete and durable, when the block ends well, and not at all otherwise.

        StorageError if `path` exists already.
        """

    def url(self, path: str) -> str:
        """Returns the URL of the file or folder as Spark and DuckDB read it."""

    def sub(self, *parts: str) -> Storage:
        """Returns the storage of a folder deeper down, which need not exist."""

    def lock(self, path: str) -> Lock | None:
        """Takes an exclusive lock named by the file `path`; None if another holds it. No promise rests on it."""

    def locked_by(self, path: str) -> bytes | None:
        """Reads what the holder of the lock `path` wrote (b"" if nothing yet); None if it is free."""


def relative(path: str) -> str:
    """Returns `path`, if it stays inside its storage; raises StorageError otherwise."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise UnsupportedStorageError(
            f"Path {path!r} leads out of its storage.", "Choose a name without .. and without / in front."
        )
    return path
