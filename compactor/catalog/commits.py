"""Encodes and reads the files of a catalog: `catalog/<version>.json` and `catalog/<version>.checkpoint.json`.

A version has 20 digits in a name. A commit is what was decided, as actions; a checkpoint is the whole state after the
commit of the same version. Every commit names the random id of the one before it, so that a file which is not part of
the one history (one that a sleeping owner made under a number that had become free) can never be taken for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from compactor.decode_errors import UNDECODABLE, why
from compactor.errors import (
    BrokenChainError,
    CatalogError,
    DamagedError,
    ForeignContentError,
    KeyfoldError,
    StorageError,
)
from compactor.model.actions import (
    AnyAction,
    BeginGeneration,
    Refill,
    Reidentify,
    RenewTopic,
    Reorder,
    Rescope,
    RestoreLog,
    SetFence,
    Skip,
)
from compactor.model.state import CatalogState, apply
from compactor.storage.base import FileInfo, Storage
from compactor.storage.limits import MOST_BYTES

# The first format: what a keyfold without generations understands. It is written as long as it suffices.
FORMAT: Final = 1
FORMAT_OF_GENERATIONS: Final = 2
"""The format of what an older keyfold would not understand: later generations of logs, and offsets given up."""
FOLDER: Final = "catalog"
# Commits between two checkpoints. With more, a start replays more files; with fewer, the whole state is written
# more often: 0.23 s for a state with 100,000 runs.
CHECKPOINT_EVERY: Final = 50
# Old versions stay this long for readers that began with an older listing; a reader that is slower starts over.
TRIM_GRACE_MS: Final = 300_000
# Versions that far below the second newest checkpoint go whatever their age: commits may follow one another in ms,
# and each of them lists the folder.
TRIM_KEEP: Final = 100

RESTORE: Final = (
    "See whether storage.location is mounted and complete; if it is, restore the connector's folder from a backup, or "
    "start over: keyfold delete CONNECTOR.json --outputs, and the next run begins anew."
)
UPGRADE: Final = "Run a keyfold that is at least as new as the one that wrote it."
STOP: Final = (
    "Leave this connector to that owner: stop this worker if it has no other connector, and do not start it with this "
    "one again while the other runs."
)


class Head(Struct, frozen=True, kw_only=True):
    """What every file of a catalog begins with; `at_ms` is the committer's clock.

    `catalog`: the id of the catalog that it is of; None in files of earlier versions.
    """

    format: int
    version: int
    epoch: int
    at_ms: int
    commit_id: str
    catalog: str | None = None


class Commit(Head, frozen=True, kw_only=True):
    """One version: `actions` applied to the state after `previous`, which is the id of version - 1."""

    previous: str
    actions: tuple[AnyAction, ...]


class _Link(Head, frozen=True, kw_only=True):
    """A commit without its actions; `previous` is empty if it was read from a checkpoint."""

    previous: str = ""


class Checkpoint(Head, frozen=True, kw_only=True):
    """The state after a version; its other fields are those of that version's commit."""

    state: CatalogState


class View(Struct, frozen=True, kw_only=True):
    """A catalog as far as it was read: `state` after `version`, the commit `commit_id` of `at_ms`."""

    version: int = 0
    commit_id: str = ""
    at_ms: int = 0
    state: CatalogState = CatalogState()


class Listing(Struct, frozen=True):
    """The versions of which a catalog's folder holds files, rising."""

    commits: tuple[int, ...]
    checkpoints: tuple[int, ...]

    @property
    def newest(self) -> int:
        """The highest version of all; 0 if there is no catalog."""
        return max(self.commits[-1:] + self.checkpoints[-1:], default=0)

    @property
    def is_lost(self) -> bool:
        """Whether all that is there are commits that follow nothing: trimming leaves checkpoints below commits."""
        is_alone = all(version - 1 not in self.commits for version in self.commits)
        return bool(self.commits) and not self.checkpoints and self.commits[0] > 1 and is_alone

    def above(self, version: int) -> list[int]:
        """Returns the versions above `version`, the newest first."""
        return sorted({number for number in (*self.commits, *self.checkpoints) if number > version}, reverse=True)

    def holds(self, version: int) -> bool:
        """Returns whether a file of this version is there; version 0 is the empty state before all."""
        return version == 0 or version in self.commits or version in self.checkpoints


def commit_path(version: int) -> str:
    """Returns the path of the commit of `version`."""
    return f"{FOLDER}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """Returns the path of the checkpoint of `version`."""
    return f"{FOLDER}/{version:020d}.checkpoint.json"


_COMMIT: Final = ".json"
_CHECKPOINT: Final = ".checkpoint.json"


def version_of(name: str) -> tuple[int, bool] | None:
    """Parses a file's name: its version, and whether it is a checkpoint; None for any other file."""
    name = name.rpartition("/")[2]
    number, kind = name[:20], name[20:]
    if kind not in (_COMMIT, _CHECKPOINT) or not _is_number(number):
        return None
    return int(number), kind == _CHECKPOINT


def trimmable(files: Sequence[FileInfo], now_ms: int, newest: int) -> list[str]:
    """Returns the catalog files that may go: below the second newest checkpoint, and past a grace or far below it.

    `newest`: the catalog's newest version. A checkpoint above it is of a catalog that is gone (`catalog.catalog`).
    A reader that still wants one starts over; the grace keeps that rare, and the second newest
    checkpoint is there for the day on which the newest turns out to be damaged.
    """
    named = [(info, parsed) for info in files if (parsed := version_of(info.path))]
    checkpoints = sorted(version for _, (version, checkpoint) in named if checkpoint and version <= newest)
    if len(checkpoints) < 2:
        return []
    keep = checkpoints[-2]
    return [
        info.path
        for info, (version, _) in named
        if version < keep and (now_ms - info.modified_ms > TRIM_GRACE_MS or version < keep - TRIM_KEEP)
    ]


def list_versions(storage: Storage) -> Listing:
    """Lists the versions that the catalog's folder holds now. Raises StorageError."""
    names = storage.list(FOLDER)
    return Listing(_versions(names, _COMMIT), _versions(names, _CHECKPOINT))


def _versions(names: Sequence[str], kind: str) -> tuple[int, ...]:
    """Returns the versions of the files of one `kind` among `names`, some hundred: every commit asks for them."""
    numbers = [name[:20] for name in names if name[20:] == kind]
    if not _is_number("".join(numbers)):
        numbers = [number for number in numbers if _is_number(number)]
    return tuple(map(int, numbers))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def format_of(actions: Iterable[AnyAction]) -> int:
    """Returns the format of a commit of `actions`: the oldest that a reader has to know."""
    kinds = BeginGeneration | RenewTopic | Reorder | Reidentify | Refill | Rescope | RestoreLog | SetFence | Skip
    later = any(isinstance(action, kinds) for action in actions)
    return FORMAT_OF_GENERATIONS if later else FORMAT


def encode(value: Commit | Checkpoint) -> bytes:
    """Encodes a file of the catalog; the same value gives the same bytes. Raises CatalogError if it is too large."""
    data = msgspec.json.encode(value) + b"\n"
    if len(data) > MOST_BYTES:
        raise CatalogError(
            f"Version {value.version} of the catalog would have {len(data):,} bytes; {MOST_BYTES:,} can be read again.",
            "Give some of the connector's topics to another one.",
        )
    return data


class _Format(Struct):
    format: int


_FORMAT_DECODER: Final = msgspec.json.Decoder(_Format)

Kind = TypeVar("Kind", bound=Head)

_DECODERS: Final[dict[type, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(kind) for kind in (Head, _Link, Commit, Checkpoint)
}


def read(storage: Storage, path: str, kind: type[Kind]) -> Kind:
    """Reads the file at `path` as a `kind`.

    Raises MissingFileError, StorageError; DamagedError; CatalogError if it is of another format.
    """
    return decoded(storage, path, content(storage, path), kind)


def content(storage: Storage, path: str) -> bytes:
    """Reads the file of a catalog at `path`. Raises MissingFileError, StorageError; DamagedError if it is too large."""
    try:
        return storage.read(path, MOST_BYTES)
    except ForeignContentError as error:
        raise DamagedError(error.message, RESTORE) from error


def decoded(storage: Storage, path: str, data: bytes, kind: type[Kind]) -> Kind:
    """Decodes the content `data` of the file at `path` as a `kind`. Raises as `read`."""
    try:
        file_format = _FORMAT_DECODER.decode(data).format
        if file_format not in (FORMAT, FORMAT_OF_GENERATIONS):
            known = f"{FORMAT} and {FORMAT_OF_GENERATIONS}"
            raise CatalogError(
                f"{storage.location}/{path} has format {file_format}; this keyfold knows {known}.", UPGRADE
            )
        value: Kind = _DECODERS[kind].decode(data)
    except UNDECODABLE as error:
        raise _damaged(storage, path, why(error)) from None
    named = version_of(path)
    if named is None or named[0] != value.version:
        raise _damaged(storage, path, f"it says that it is version {value.version}")
    return value


def _damaged(storage: Storage, path: str, why: str) -> DamagedError:
    return DamagedError(f"{storage.location}/{path} is damaged: {why}.", RESTORE)


def unlisted(storage: Storage, version: int) -> StorageError:
    """Returns the error of a version that is there by its name, and not in the list of the folder."""
    return StorageError(
        f"{storage.location}/{commit_path(version)} exists, but is not listed.",
        "See whether storage.location is a file system, or a store, that shows every file at once.",
    )


def lost_below(storage: Storage, version: int) -> CatalogError:
    """Returns the error of a folder in which `version` is the lowest commit, and no checkpoint says what it follows.

    The storage was lost, and an owner that ended before it noticed has made this one commit after that.
    """
    path = f"{storage.location}/{commit_path(version)}"
    return CatalogError(
        f"Catalog {storage.location} has a hole: {path} follows a commit that is gone, and so is all before it.",
        "See whether storage.location is mounted and complete, or restore the connector's folder from a backup. If it "
        "is lost, stop its workers, and make the catalog again from the output with keyfold rebuild CONNECTOR.json.",
    )


def newest_damaged(error: DamagedError, version: int) -> DamagedError:
    """Returns `error` of the newest commit, `version`, with everything that can be done about it.

    It is the only commit that can be given up: nothing was decided on it, and what it says is found again.
    """
    return DamagedError(
        error.message,
        f"It is the newest commit. Either restore that file from a backup; or stop every worker of this connector and "
        f"move that one file away: the catalog then stands at version {version - 1}, and what the commit said is made "
        "up for (records are read again from the source, how far they were published is told by the committed "
        "positions and the output, a fold or a snapshot is made again; of a fold older than an hour the files before "
        "it may be gone: then its partitions are quarantined by name); or start under a new connector name and a new "
        "output topic, which publishes everything anew.",
    )


def head_of(storage: Storage, listing: Listing, version: int) -> Head:
    """Reads the head of a version that `listing` has, from its commit or, if that is gone or damaged, its checkpoint.

    Raises as `read`.
    """
    return _link(storage, listing, version)


def _link(storage: Storage, listing: Listing, version: int) -> _Link:
    if version not in listing.commits:
        return read(storage, checkpoint_path(version), _Link)
    try:
        return read(storage, commit_path(version), _Link)
    except DamagedError as error:
        if version in listing.checkpoints:
            return read(storage, checkpoint_path(version), _Link)
        raise (newest_damaged(error, version) if version == listing.newest else error) from error


def is_of_another(head: Head, catalog_id: str | None) -> bool:
    """Returns whether a file names another catalog than `catalog_id`. One of an earlier version names none."""
    return catalog_id is not None and head.catalog not in (None, catalog_id)


class _Named(Struct):
    catalog: str | None = None


_DECODER: Final = msgspec.json.Decoder(_Named)


def is_of(catalog_id: str, data: bytes) -> bool:
    """Returns whether a catalog's file with the content `data` names no other catalog than `catalog_id`.

    What cannot be read names none, as files of earlier versions do not.
    """
    try:
        return _DECODER.decode(data).catalog in (None, catalog_id)
    except UNDECODABLE:
        return True


def newest_head(storage: Storage, listing: Listing) -> Head | None:
    """Reads the head of the newest version in `listing`, None if that is empty: it says which catalog the folder holds.

    A file does not count if it follows nothing and names another catalog than the newest that does follow: an owner
    that slept while its catalog was deleted, or lost, and made again has made it. Two small files are read, if there
    is no such one. Raises as `read`.
    """
    unlinked: list[Head] = []
    for version in listing.above(0):
        link = _link(storage, listing, version)
        if _follows(storage, listing, link):
            return next((head for head in unlinked if not is_of_another(head, link.catalog)), link)
        unlinked.append(link)
    return unlinked[0] if unlinked else None


def _follows(storage: Storage, listing: Listing, link: _Link) -> bool:
    """Returns whether the commit before `link` is there, or a checkpoint of its own has taken the place of that.

    A checkpoint alone says nothing of what it follows: an owner that slept may have made it.
    """
    before = link.version - 1
    if before == 0:
        return True
    if before not in listing.commits:
        return link.version in listing.checkpoints and link.version in listing.commits and _is_kept(storage, link)
    try:
        return head_of(storage, listing, before).commit_id == link.previous
    except DamagedError:  # it tells nothing against it
        return True


def _is_kept(storage: Storage, link: _Link) -> bool:
    """Returns whether the checkpoint of the version of `link` is that commit's."""
    try:
        return read(storage, checkpoint_path(link.version), Head).commit_id == link.commit_id
    except DamagedError:
        return True


def follow(view: View, commit: Commit) -> View:
    """Applies the next commit to `view`. Raises BrokenChainError if it is not the next, CatalogError if it is wrong."""
    if (commit.version, commit.previous) != (view.version + 1, view.commit_id):
        raise BrokenChainError(f"Version {commit.version} does not follow version {view.version}.", RESTORE)
    try:
        state = apply(view.state, commit.actions)
    except KeyfoldError as error:
        raise CatalogError(f"Version {commit.version} of the catalog cannot be: {error.message}", RESTORE) from error
    if state.epoch != commit.epoch:
        raise CatalogError(
            f"Version {commit.version} of the catalog is of epoch {commit.epoch}, but {state.epoch} owned it.", RESTORE
        )
    return after(commit, state)


def after(commit: Commit, state: CatalogState) -> View:
    """Returns the view after `commit`, which made `state`."""
    return View(version=commit.version, commit_id=commit.commit_id, at_ms=commit.at_ms, state=state)


def checkpoint_of(view: View) -> Checkpoint:
    """Returns the checkpoint of a version: every instance that writes it writes the same bytes."""
    later = any(log.generation is not None for log in view.state.logs)
    return Checkpoint(
        format=FORMAT_OF_GENERATIONS if later else FORMAT,
        version=view.version,
        epoch=view.state.epoch,
        at_ms=view.at_ms,
        commit_id=view.commit_id,
        catalog=view.state.catalog_id,
        state=view.state,
    )


def view_of(checkpoint: Checkpoint) -> View:
    """Returns the view that a checkpoint holds."""
    return View(
        version=checkpoint.version, commit_id=checkpoint.commit_id, at_ms=checkpoint.at_ms, state=checkpoint.state
    )
