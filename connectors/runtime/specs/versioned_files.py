"""Keeps small files of which every change is a new version, so that a writer who is late replaces nothing.

    FOLDER/NAME@<20 digits>.json   a version; the highest counts, those below it are removed
    FOLDER/NAME.json               version 0: written by an older keyfold, or put there by hand

A change is made as a commit of a catalog is (`compactor.catalog.catalog`): version N + 1 is created if it is absent,
N being the newest that this process knows; then the folder is listed, as an owner that went further has removed N + 1
again. So a process that no longer owns the files, and does not know it yet, finds its number taken, or a higher one:
its change counts for nothing, and it is told so. A removal is a version too, with the content REMOVED.

*Lost answers.* If a create fails the version is read back. If that says nothing either, the outcome is open until
the next change of the file: that creates the same version with the content of the one before. One of the two creates
succeeds, whenever the first is carried out, so from then on it is known which, to every process and for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Final

import structlog
from msgspec import Struct

from compactor.errors import ForeignContentError, MissingFileError, StorageError
from compactor.storage.base import FileInfo, Storage
from connectors.errors import SupersededError

REMOVED: Final = b"null\n"
"""The content of a version without the file; no other content is as short, so that a listing tells it."""
KEPT_MS: Final = 7 * 24 * 3_600_000
"""A removal is kept for so long (ms): a writer that was late for longer would find its number free again."""
_LONGEST: Final = 16 << 20
"""Bytes of a file that are read: REST takes a megabyte, of which each character may be written as six."""
_READ_TRIES: Final = 3
"""How often the files are listed again if one was replaced between the list and the reading."""
_PATH: Final = re.compile(r".*/(?P<name>[^/@]+)(?:@(?P<number>\d{20}))?\.json")


_log = structlog.get_logger()


class Version(Struct, frozen=True):
    """A version of a file: its number, and what it holds."""

    number: int = 0
    data: bytes = REMOVED


class VersionedFiles:
    """The files of `folder` in `storage` with a name that `is_name` takes. Every method raises StorageError.

    Threads may change different files at the same time.
    """

    def __init__(self, storage: Storage, folder: str, is_name: Callable[[str], bool]) -> None:
        self._storage = storage
        self._folder = folder
        self._is_name = is_name
        self._newest: dict[str, Version] = {}
        """What this process knows to be the newest version of each file."""
        self._knows_all = False
        """Whether a file that is not in `_newest` is known not to be there."""
        self._open: dict[str, Version] = {}
        """Versions of which it is not known whether they were made."""

    def read(self, names: Collection[str] | None = None) -> dict[str, bytes]:
        """Reads the newest versions of all files that are there, or of `names`, by name."""
        for tries_left in reversed(range(_READ_TRIES)):
            with suppress(MissingFileError):
                listed = _newest_of(self._infos())
                self._refuse_incomplete(listed, is_last=not tries_left)
                newest = {name: self._read(info) for name, info in listed.items() if names is None or name in names}
                break
        else:
            raise StorageError(f"{self._storage.location}/{self._folder} changes again and again.", "Ask again.")
        for name, version in newest.items():
            if name in self._open and version.number >= self._open[name].number:
                del self._open[name]
        self._newest.update(newest)
        if names is None:
            self._newest, self._knows_all = newest, True
        return {name: version.data for name, version in sorted(newest.items()) if version.data != REMOVED}

    def _refuse_incomplete(self, listed: Collection[str], *, is_last: bool) -> None:
        """Raises StorageError if a file that this process knows is not `listed`: a removal would be.

        What answers may be a proxy with a page of its own, a store that lists late, or the empty folder in which
        nothing is mounted any more. If other files are listed, and this one is not there either, its removal was
        forgotten since this process read last. As it may have been replaced while the list was made, it is only
        forgotten with the last of several lists; before, MissingFileError asks for another.
        """
        for name, version in tuple(self._newest.items()):
            if name in listed or version.data == REMOVED:
                continue
            place = f"{self._storage.location}/{self._folder}"
            try:
                self._storage.read(self._path(name, version.number), _LONGEST)
            except MissingFileError:
                if listed and not is_last:
                    raise
                if listed:
                    self._newest.pop(name, None)
                    continue
                raise StorageError(
                    f"{place} has nothing of {name}, which this worker has stored there or read.",
                    "See whether storage.location is mounted; it is asked again. If the file was removed by hand, "
                    "start the worker again.",
                ) from None
            raise StorageError(
                f"{place} holds {name}, and a list of it does not show that.",
                "See whether storage.location is what answers, and not a proxy; it is asked again.",
            )

    def path(self, name: str) -> str:
        """Returns the path of the newest version that this process knows, as it is shown in messages."""
        return f"{self._storage.location}/{self._path(name, self._newest.get(name, Version()).number)}"

    def write(self, name: str, data: bytes) -> None:
        """Makes `data` the newest version; when this returns it is that.

        Raises SupersededError if another process has made one that this one does not know; StorageError if it was
        not made, or if that is not known yet, as the message says then.
        """
        self._settle(name)
        before = self._known(name)
        after = Version(before.number + 1, data)
        try:
            made = self._storage.create(self._path(name, after.number), data)
        except StorageError as error:
            self._open[name] = after
            if not self._read_back(name, error):
                raise
        else:
            if not made:
                raise self._superseded(name)
        self._confirm(name, after)

    def remove(self, name: str) -> None:
        """Removes a file, if it is there. Raises as `write`."""
        self._settle(name)
        if self._known(name).data != REMOVED:
            self.write(name, REMOVED)

    @property
    def is_open(self) -> bool:
        """Whether it is not known of a change whether it was made."""
        return bool(self._open)

    def settle(self) -> None:
        """Decides all open outcomes for good. Raises StorageError if the storage does not answer."""
        for name in tuple(self._open):
            with suppress(SupersededError):
                self._settle(name)

    def forget_removed(self, now_ms: int) -> None:
        """Removes what is left of files that were removed long ago; to be called by who owns the files."""
        infos = self._infos()
        for name, info in _newest_of(infos).items():
            if _is_removal(info) and now_ms - info.modified_ms > KEPT_MS:
                # First what may be left below it: without the removal that would count again.
                self._storage.delete_all([other.path for other in infos if _name(other.path) == name and other != info])
                self._storage.delete(info.path)
                self._newest.pop(name, None)

    def _read_back(self, name: str, failure: StorageError) -> bool:
        """Returns whether the version is there, as its create has failed. Raises StorageError if nothing tells that."""
        after = self._open[name]
        try:
            data = self._storage.read(self._path(name, after.number), _LONGEST)
        except MissingFileError:
            with suppress(StorageError):  # then it is open: it may still be made, and the next change asks again
                return self._settle(name)
            return False
        except StorageError:
            raise _not_known(name, failure) from failure
        del self._open[name]
        if data != after.data:
            raise self._superseded(name)
        return True

    def _settle(self, name: str) -> bool:
        """Decides an open outcome for good; returns whether the version was made. True if none is open."""
        after = self._open.get(name)
        if after is None:
            return True
        before, path = self._known(name), self._path(name, after.number)
        data = before.data if self._storage.create(path, before.data) else self._storage.read(path, _LONGEST)
        del self._open[name]
        if data not in (before.data, after.data):
            raise self._superseded(name)
        self._confirm(name, Version(after.number, data))
        return data == after.data

    def _confirm(self, name: str, after: Version) -> None:
        """Takes a version that was made for the newest. Raises SupersededError if another process went further.

        Raises StorageError, and the outcome is open, if nothing tells that.
        """
        try:
            others = [info.path for info in self._infos() if _name(info.path) == name]
        except StorageError as error:
            self._open[name] = after
            raise _not_known(name, error) from error
        if any(_number(path) > after.number for path in others):
            with suppress(StorageError):  # it counts for nothing below the higher one
                self._storage.delete(self._path(name, after.number))
            raise self._superseded(name)
        with suppress(StorageError):  # what is left below it is passed over, and removed with the next change
            self._storage.delete_all([path for path in others if _number(path) < after.number])
        self._newest[name] = after

    def _known(self, name: str) -> Version:
        if name not in self._newest and not self._knows_all:
            self.read([name])
        return self._newest.get(name, Version())

    def _superseded(self, name: str) -> SupersededError:
        self._newest.pop(name, None)
        self._knows_all = False
        said = f"{self._storage.location}/{self._folder}: another process has stored a newer version of {name}."
        return SupersededError(said, "Look at it as it is now, and ask again.")

    def _read(self, newest: FileInfo) -> Version:
        try:
            data = REMOVED if _is_removal(newest) else self._storage.read(newest.path, _LONGEST)
        except ForeignContentError as error:  # of one file: the others must be read
            _log.error("a stored file is none", error=str(error))
            data = b""
        return Version(_number(newest.path), data)

    def _infos(self) -> list[FileInfo]:
        infos = self._storage.walk(self._folder)
        return [info for info in infos if _folder(info.path) == self._folder and self._is_name(_name(info.path))]

    def _path(self, name: str, number: int) -> str:
        return f"{self._folder}/{name}@{number:020d}.json" if number else f"{self._folder}/{name}.json"


def _newest_of(infos: Iterable[FileInfo]) -> dict[str, FileInfo]:
    """Returns the newest version of each file, by name."""
    return {_name(info.path): info for info in sorted(infos, key=lambda info: _number(info.path))}


def _not_known(name: str, failure: StorageError) -> StorageError:
    said = f"Whether {name} was stored is not known: {failure.message}"
    return StorageError(said, f"Ask for it again. {failure.action}")


def _is_removal(info: FileInfo) -> bool:
    return info.bytes == len(REMOVED) and _number(info.path) > 0


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _name(path: str) -> str:
    """Returns the name of the file that `path` is a version of, "" if it is of none."""
    match = _PATH.fullmatch(path)
    return match["name"] if match else ""


def _number(path: str) -> int:
    match = _PATH.fullmatch(path)
    return int(match["number"] or 0) if match else 0
