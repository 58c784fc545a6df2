"""Every error that the engine raises on purpose.

KeyfoldError                      base: a message and a next action
├── StorageError                  the store did not answer or refused; retriable
│   ├── MissingFileError          a file that should be read is not there
│   ├── DamagedFileError          a file of a run is not what was written
│   ├── UnreadableFileError       a file of a run is there, and the disk cannot read it (EIO)
│   ├── ForeignContentError       the store holds what keyfold does not write there; not retriable
│   ├── HiddenCatalogError        the store lists no catalog, or did so, though there is one
│   ├── StorageRefusedError       the store lets this account not do it (EACCES, 403); retriable, as it may be granted
│   ├── SnapshotStorageError      the snapshot location did not answer or refused: only snapshots wait
│   └── UnsupportedStorageError   the location names a store that keyfold does not know; not retriable
├── OutcomeUnknownError           an answer was lost: read back before deciding; retriable
├── FencedError                   a newer owner exists: stop, do not restart (exit code 5)
│   └── ReplacedCatalogError      another catalog is in the place of the one that was read
├── PublishInterruptedError       a publish ended early: read positions again, plan again; retriable
│   └── PositionMovedError        the group does not hold the position that was planned from
├── PositionError                 committed position missing, lower or not ours: an operator decides
│   └── NoCatalogError            a catalog has committed or published, and the folder lists none; retriable
├── CatalogError                  the catalog is damaged, or is not the one that was expected
│   ├── BrokenChainError          a commit does not follow the one that was read before it
│   └── DamagedError              a file of the catalog is not what was written
├── OffsetChangeError             a change of offsets cannot be carried out, and nothing was changed
├── RebuildError                  a lost catalog cannot be rebuilt from the output
├── IngestError                   a batch does not continue the log
│   ├── TopicGoneError            what a batch was read from is gone or another topic since; retriable
│   ├── GapError                  records between the log's end and the batch are missing; retriable
│   ├── PortionTooLargeError      a portion needs more memory than it may have; fewer records at a time do not
│   ├── TruncatedError            tables of the source were emptied; retriable
│   └── RejectedRecordError       a record that cannot be folded, and errors.tolerance is none
├── FoldError                     a fold or a snapshot could not be made from its runs
│   └── FoldFailedError           a fold on command failed, and may succeed later; retriable
├── SnapshotError                 a snapshot cannot be taken; everything else goes on
│   └── SnapshotHiddenError       readers of the output do not see yet what it would hold; retriable
├── OutOfRoomError                a task had no memory or disk left; retriable
├── NotVisibleError               readers do not see all records of an output yet; retriable
├── QuarantinedError              partitions are quarantined, so that not everything was done
├── StoppedError                  a stop came before all files were read; retriable
└── FailpointError                raised at a failpoint that a test has set to `error`; retriable
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

DEFECT: Final = "This is a defect of keyfold; only what was committed counts."
"""The next action if the code broke its own rule."""

TAKE_UP: Final = "keyfold restart CONNECTOR.json, or any other start of it, reads the topic on from where it stands."
"""The next action once a record that has set its topic aside is corrected or allowed (errors.scope=topic)."""

OLDER_COPY: Final = "Restore the newest copy of the catalog; or have this topic published anew, with keyfold resync."
"""The next action if the catalog is older than the position or the output that was read."""


class KeyfoldError(Exception):
    """Base of every error that keyfold raises on purpose.

    `message` says what happened and in which connector, topic, partition, offset; `action` says in one sentence what
    the operator can do next. `retriable` is True if the same call may succeed later although no one has changed
    anything. `is_of_record`: a record of the topic is bad, and errors.tolerance lets none go; nothing else is wrong.
    `topic` is the source topic concerned if that decides what is done next; otherwise None. `aborted` is
    how many transactions were aborted by a publish that ended with this error. `silent_ms`: for how long (ms) the
    broker or store that did not answer had been silent by then, as far as that is known.
    """

    retriable: ClassVar[bool] = False
    is_of_record: ClassVar[bool] = False
    aborted: int = 0
    silent_ms: int = 0

    def __init__(self, message: str, action: str = "", *, topic: str | None = None) -> None:
        super().__init__(message, action)
        self.message = message
        self.action = action
        self.topic = topic

    def __str__(self) -> str:
        return f"{self.message} {self.action}".rstrip()


class StorageError(KeyfoldError):
    """The store did not answer, refused, or is full."""

    retriable = True


class MissingFileError(StorageError):
    """A file that should be read is not there."""


class DamagedFileError(StorageError):
    """A file of a run is there, and is not what was written."""


class UnreadableFileError(StorageError):
    """A file of a run is there, and the disk cannot read all of it (EIO)."""


class ForeignContentError(StorageError):
    """The store holds what keyfold does not write: a file that is too large, a folder for a file, too many files."""

    retriable = False


class HiddenCatalogError(StorageError):
    """The store lists no catalog in a connector's folder, or did so, though there is one, or was."""


class StorageRefusedError(StorageError):
    """The store answers, and refuses a right to the account or the credentials that keyfold has."""


class SnapshotStorageError(StorageError):
    """The snapshot location did not answer, refused, or is full."""


class UnsupportedStorageError(StorageError):
    """The location names a store that keyfold does not know yet."""

    retriable = False


class OutcomeUnknownError(KeyfoldError):
    """The answer to a commit was lost; whether it took effect must be read back, never guessed."""

    retriable = True


class FencedError(KeyfoldError):
    """A newer epoch owns this connector; nothing that this process still writes is valid."""


class ReplacedCatalogError(FencedError):
    """The folder holds another catalog than the one that was read, which was lost or deleted, and made again."""


class PublishInterruptedError(KeyfoldError):
    """A publish ended early and left nothing half done: read the positions again, then plan again."""

    retriable = True


class PositionMovedError(PublishInterruptedError):
    """The group does not hold the position that a publish was planned from; nothing was sent."""


class PositionError(KeyfoldError):
    """The committed position is missing, lower than the catalog's, or not ours; an operator decides."""


class NoCatalogError(PositionError):
    """A catalog has committed positions, or published, and the connector's folder lists none, or a new one.

    The store may not tell, or be away.
    """

    retriable = True


class CatalogError(KeyfoldError):
    """The catalog is damaged, of an unknown format, or belongs to another connector."""


class BrokenChainError(CatalogError):
    """A commit does not follow the one that was read before it."""


class DamagedError(CatalogError):
    """A file of the catalog is not what was written."""


class OffsetChangeError(KeyfoldError):
    """A change of offsets that an operator has asked for cannot be carried out; nothing was changed."""


class RebuildError(KeyfoldError):
    """A lost catalog cannot be rebuilt from the output; the output and its positions are as they were."""


class IngestError(KeyfoldError):
    """A micro-batch does not fit the log that it should continue."""


class GapError(IngestError):
    """Offsets between the log's end and the start of the batch are missing.

    A source partition that the brokers did not know for a moment may leave one; the next start reads from the log's
    end.
    """

    retriable = True


class TopicGoneError(IngestError):
    """The topic that a batch was read from is gone, or is another one by its id."""

    retriable = True


class RejectedRecordError(IngestError):
    """A record cannot be folded (it has no key) and `errors.tolerance` is `none`."""

    is_of_record = True


class PortionTooLargeError(IngestError):
    """What a portion needs at once is more than it may have: nothing of it was taken, and fewer records may fit."""


class TruncatedError(IngestError):
    """Tables of the source were emptied: what is kept of their topics has to go before more of them is taken.

    `offsets`: by topic and partition, that of the last record that says so. `fences`: by topic, what such records have
    left of it by the connector's order (`model.fence`).
    """

    retriable = True

    def __init__(
        self,
        message: str,
        action: str = "",
        offsets: Mapping[Any, int] = MappingProxyType({}),
        fences: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        super().__init__(message, action)
        self.offsets = offsets
        self.fences = fences


class FoldError(KeyfoldError):
    """A fold or a snapshot could not be made from the runs it was given."""


class LookUpError(KeyfoldError):
    """What is kept of some keys is more than a look-up may read or answer with."""


class UnverifiedError(LookUpError):
    """A look-up would verify more files than it may at once. The next one goes on from those that it has verified."""

    retriable = True


class FoldFailedError(FoldError):
    """A fold on command failed, and left everything as it was."""

    retriable = True


class SnapshotError(KeyfoldError):
    """A snapshot cannot be taken until the operator acts; everything but snapshots goes on.

    `topics` are the source topics concerned; None: all topics of the connector.
    """

    def __init__(self, message: str, action: str = "", topics: frozenset[str] | None = None) -> None:
        super().__init__(message, action)
        self.topics = topics


class SnapshotHiddenError(SnapshotError):
    """A snapshot waits: read_committed readers of the output do not see yet all that it would hold."""

    retriable = True


class OutOfRoomError(KeyfoldError):
    """A task of Spark's had no memory left, or no disk for what it spills."""

    retriable = True


class NotVisibleError(KeyfoldError):
    """Read_committed readers do not see all records of an output yet: a transaction is open there."""

    retriable = True


class QuarantinedError(KeyfoldError):
    """Partitions are quarantined; the command was carried out without them."""


class StoppedError(KeyfoldError):
    """A stop came before the work was done: nothing of it counts, and files that were not read may be damaged."""

    retriable = True


class FailpointError(KeyfoldError):
    """Raised on purpose at a failpoint that is set to `error`."""

    retriable = True
