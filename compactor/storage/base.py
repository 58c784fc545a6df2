"""The one seam to a store: where catalogs, runs and snapshots are kept.

What the engine relies on, and every store behind this seam must give:

    create    of any number of callers at once exactly one makes the file; a reader sees all of it or none
    list      shows every file whose making returned before the list began, and that is still there
    durable   what create, write and open_output have returned from survives a loss of power

`file:` is in `compactor.storage.local`. Other stores are refused until they come.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import IO, TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from compactor.errors import UnsupportedStorageError

if TYPE_CHECKING:
    import pyarrow as pa


UNHEALTHY: Final = "See whether storage.location is healthy; the step can be tried again."
"""What to do where nothing better is known."""


class FileInfo(Struct, frozen=True):
    """A file of a store; `path` is relative to the storage that was asked."""

    path: str
    bytes: int
    modified_ms: int


Files = list[FileInfo]


class Lock(Protocol):
    """A lock that is held until `release` or the end of the process."""

    def write(self, data: bytes) -> None:
        """What `Storage.locked_by` answers from now on."""
        ...

    def stands(self) -> bool:
        """Whether it is what others find at its path: a folder may have been moved, or a disk unmounted, under it."""
        ...

    def release(self) -> None:
        """Gives the lock back; a second time is fine."""
        ...


class Storage(Protocol):
    """A folder of a store. Paths are relative to it, with `/`; it can be pickled and used in Spark's tasks.

    Every method raises StorageError where the store refuses, with the path and what to do.
    """

    @property
    def location(self) -> str:
        """The folder as a person names it, for messages."""
        ...

    def read(self, path: str) -> bytes:
        """The whole file; MissingFileError where it is absent."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Makes `path` with `data` if it is absent; True where this call made it. Complete or absent, durable."""
        ...

    def write(self, path: str, data: bytes) -> None:
        """Makes or replaces `path`; a reader sees the old or the new content. Durable."""
        ...

    def link(self, path: str, folder: str) -> bool:
        """Lets the name `path` lead to `folder`, in one step where it led elsewhere; False where there are no links."""
        ...

    def list(self, folder: str) -> list[str]:
        """Names of files and folders directly inside `folder`, sorted; none where it is absent."""
        ...

    def walk(self, folder: str) -> Files:
        """All files anywhere below `folder`, sorted by path; none where it is absent."""
        ...

    def unfinished(self, folder: str) -> Files:
        """Temporary files below `folder`: of writers at work, or that died. `list` and `walk` never show them."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file; an absent one is fine."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Removes `folder` and all that is in it; an absent one is fine."""
        ...

    def exists(self, path: str) -> bool:
        """Whether the file or folder is there."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """Random access to a file; MissingFileError where it is absent."""
        ...

    def open_output(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """A new file, whose name appears complete and durable when the block ends well, and not at all otherwise.

        StorageError where `path` exists already.
        """
        ...

    def url(self, path: str) -> str:
        """The file or folder as Spark and DuckDB read it."""
        ...

    def sub(self, *parts: str) -> Storage:
        """The storage of a folder deeper down; it need not exist."""
        ...

    def lock(self, path: str) -> Lock | None:
        """An exclusive lock named by the file `path`; None where another holds it. A courtesy, never safety."""
        ...

    def locked_by(self, path: str) -> bytes | None:
        """What the holder of the lock `path` wrote (b"" where nothing yet); None where nobody holds it."""
        ...


def relative(path: str) -> str:
    """`path`, if it stays inside its storage; StorageError otherwise."""
    if path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise UnsupportedStorageError(
            f"Path {path!r} leads out of its storage.", "Choose a name without .. and without / in front."
        )
    return path
