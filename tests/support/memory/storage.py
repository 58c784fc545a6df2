"""Storage in memory, and a wrapper that makes calls of another storage fail.

Both behave like the local storage; tests/unit/compactor/storage holds all of them to the same rules.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import IO, TypeVar

import pyarrow as pa

from compactor.errors import DEFECT, MissingFileError, StorageError
from compactor.storage.base import FileInfo, Files, Lock, Storage, relative
from compactor.storage.limits import SMALL_BYTES, check_size
from tests.support.clocks import ManualClock

T = TypeVar("T")


class MemoryStorage:
    """Implements Storage in memory; `sub` shares the files, a pickled copy has files of its own."""

    def __init__(
        self,
        clock: ManualClock | None = None,
        files: dict[str, tuple[bytes, int]] | None = None,
        locks: dict[str, bytes | bytearray] | None = None,
        root: str = "",
    ) -> None:
        self._clock = clock or ManualClock()
        # Set by a test: lists are empty, as those that a proxy answers with a page of its own.
        self.lists_nothing = False
        self._files = {} if files is None else files
        self._locks = {} if locks is None else locks
        self._root = root

    @property
    def location(self) -> str:
        return f"memory:/{self._root}".rstrip("/")

    @property
    def is_folder(self) -> bool:
        return False

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        try:
            data = self._files[self._at(path)][0]
            check_size(f"{self.location}/{path}", len(data), at_most)
            return data
        except KeyError:
            raise MissingFileError(f"Could not read {self.location}/{path}: it is not there.") from None

    def _content(self, path: str) -> bytes:
        return self.read(path, sys.maxsize)

    def create(self, path: str, data: bytes) -> bool:
        entry = (data, self._clock.now_ms())
        return self._files.setdefault(self._at(path), entry) is entry

    def write(self, path: str, data: bytes) -> None:
        self._files[self._at(path)] = (data, self._clock.now_ms())

    def replace(self, path: str, seen: bytes, data: bytes) -> bool:
        entry = self._files.get(self._at(path))
        if entry is None or entry[0] != seen:
            return False
        self.write(path, data)
        return True

    @property
    def copies_files(self) -> bool:
        return True

    def copy(self, source: str, target: str) -> None:
        self.write(target, self._content(source))

    def link(self, path: str, folder: str) -> bool:
        return False

    def list(self, folder: str) -> list[str]:
        below = self._below(folder)
        return sorted({path[len(below) :].partition("/")[0] for path in tuple(self._files) if path.startswith(below)})

    def walk(self, folder: str) -> Files:
        if self.lists_nothing:
            return []
        below = self._below(folder)
        found = [(path, *entry) for path, entry in sorted(self._files.items()) if path.startswith(below)]
        return [FileInfo(path[len(self._root) :], len(data), modified) for path, data, modified in found]

    def unfinished(self, folder: str) -> Files:
        return []

    def delete(self, path: str) -> None:
        self._files.pop(self._at(path), None)

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_own(self, paths: Iterable[str], is_own: Callable[[bytes], bool]) -> None:
        for path in paths:
            entry = self._files.get(self._at(path))
            if entry is not None and is_own(entry[0]):
                self.delete(path)

    def delete_folder(self, folder: str) -> None:
        for info in self.walk(folder):
            self.delete(info.path)

    def exists(self, path: str) -> bool:
        return self._at(path) in self._files or bool(self.list(path))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return pa.BufferReader(self._content(path))

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        stream = io.BytesIO()
        yield stream
        if not self.create(path, stream.getvalue()):
            raise StorageError(f"{self.location}/{path} exists already.", DEFECT)

    def url(self, path: str) -> str:
        return f"{self.location}/{path}"

    def sub(self, *parts: str) -> MemoryStorage:
        return MemoryStorage(self._clock, self._files, self._locks, self._below("/".join(parts)))

    def lock(self, path: str) -> Lock | None:
        name = self._at(path)
        holder = _MemoryLock(self._locks, name)
        return holder if self._locks.setdefault(name, holder.initial) is holder.initial else None

    def locked_by(self, path: str) -> bytes | None:
        held = self._locks.get(self._at(path))
        return None if held is None else bytes(held)

    def lapse(self, path: str) -> None:
        """Lets the lock `path` be free, as a lease that was not renewed; its holder does not know it."""
        self._locks.pop(self._at(path), None)

    def _at(self, path: str) -> str:
        return self._root + relative(path)

    def _below(self, folder: str) -> str:
        return f"{self._at(folder)}/" if folder else self._root


class _MemoryLock:
    def __init__(self, locks: dict[str, bytes | bytearray], name: str) -> None:
        self._locks = locks
        self._name = name
        self.initial = bytearray()  # an object of its own, so that setdefault tells who came first
        self._written: bytes | bytearray = self.initial

    def write(self, data: bytes) -> None:
        if self.is_current():
            self._locks[self._name] = self._written = bytearray(data)

    def is_current(self) -> bool:
        return self._locks.get(self._name) is self._written

    def release(self) -> None:
        if self.is_current():
            del self._locks[self._name]


class FailingStorage:
    """A store around another one, in which a test lets things happen before or after a call.

    `before` and `after` take the method's name and what to do, once; what it raises comes out of the call. So an
    answer is lost with `after("create", lost)`, and another owner comes in between with `before("create", other)`.
    """

    def __init__(self, inner: Storage) -> None:
        self._inner = inner
        self.plan: list[tuple[str, str, str, Callable[[], object]]] = []
        self.frozen: dict[str, list[str]] = {}

    @property
    def location(self) -> str:
        return self._inner.location

    def before(self, method: str, act: Callable[[], object], containing: str = "") -> None:
        """Calls `act` before the next `method` on a path with `containing` in it."""
        self.plan.append(("before", method, containing, act))

    def after(self, method: str, act: Callable[[], object], containing: str = "") -> None:
        """Calls `act` after the next such call has taken effect, before its answer is given."""
        self.plan.append(("after", method, containing, act))

    def freeze(self, folder: str) -> None:
        """From now on `list(folder)` answers what it would answer now: a listing that is behind."""
        self.frozen[folder] = self._inner.list(folder)

    def thaw(self) -> None:
        """Lists answer the truth again."""
        self.frozen.clear()

    @property
    def is_folder(self) -> bool:
        return self._inner.is_folder

    def read(self, path: str, at_most: int = SMALL_BYTES) -> bytes:
        return self._call("read", path, lambda: self._inner.read(path, at_most))

    def create(self, path: str, data: bytes) -> bool:
        return self._call("create", path, lambda: self._inner.create(path, data))

    def write(self, path: str, data: bytes) -> None:
        self._call("write", path, lambda: self._inner.write(path, data))

    def replace(self, path: str, seen: bytes, data: bytes) -> bool:
        return self._call("replace", path, lambda: self._inner.replace(path, seen, data))

    @property
    def copies_files(self) -> bool:
        return self._inner.copies_files

    def copy(self, source: str, target: str) -> None:
        self._call("copy", source, lambda: self._inner.copy(source, target))

    def link(self, path: str, folder: str) -> bool:
        return self._call("link", path, lambda: self._inner.link(path, folder))

    def list(self, folder: str) -> list[str]:
        frozen = self.frozen.get(folder)
        return self._call("list", folder, lambda: self._inner.list(folder) if frozen is None else frozen)

    def walk(self, folder: str) -> Files:
        return self._call("walk", folder, lambda: self._inner.walk(folder))

    def unfinished(self, folder: str) -> Files:
        return self._call("unfinished", folder, lambda: self._inner.unfinished(folder))

    def delete(self, path: str) -> None:
        self._call("delete", path, lambda: self._inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.delete(path)

    def delete_own(self, paths: Iterable[str], is_own: Callable[[bytes], bool]) -> None:
        for path in paths:
            self._call("delete_own", path, partial(self._inner.delete_own, [path], is_own))

    def delete_folder(self, folder: str) -> None:
        self._call("delete_folder", folder, lambda: self._inner.delete_folder(folder))

    def exists(self, path: str) -> bool:
        return self._call("exists", path, lambda: self._inner.exists(path))

    def open_input(self, path: str, size: int | None = None) -> pa.NativeFile:
        return self._call("open_input", path, lambda: self._inner.open_input(path, size))

    @contextmanager
    def open_output(self, path: str) -> Iterator[IO[bytes]]:
        self._happen("before", "open_output", path)
        with self._inner.open_output(path) as stream:
            yield stream
        self._happen("after", "open_output", path)

    def url(self, path: str) -> str:
        return self._inner.url(path)

    def sub(self, *parts: str) -> Storage:
        deeper = FailingStorage(self._inner.sub(*parts))
        deeper.plan = self.plan
        return deeper

    def lock(self, path: str) -> Lock | None:
        return self._call("lock", path, lambda: self._inner.lock(path))

    def locked_by(self, path: str) -> bytes | None:
        return self._call("locked_by", path, lambda: self._inner.locked_by(path))

    def _call(self, method: str, path: str, call: Callable[[], T]) -> T:
        self._happen("before", method, path)
        answer = call()
        self._happen("after", method, path)
        return answer

    def _happen(self, when: str, method: str, path: str) -> None:
        due = [step for step in self.plan if step[:2] == (when, method) and step[2] in path]
        if due:
            self.plan.remove(due[0])
            due[0][3]()


def lose_answer() -> None:
    """Raises the error of a storage whose answer was lost."""
    raise StorageError("The store did not answer.", "Try again.")
