"""Errors of the engine.

KeyfoldError                      anything keyfold says went wrong; has a message and a next action
├── StorageError                  the store did not answer or refused; retriable
├── OutcomeUnknownError           an answer was lost: read back before deciding; retriable
├── FencedError                   a newer owner exists: stop, do not restart (exit code 5)
├── PublishInterruptedError       a publish ended early: read positions again, plan again; retriable
│   └── PositionMovedError        the group does not hold the position that was planned from
├── PositionError                 committed position missing, lower or not ours: an operator decides
├── CatalogError                  the catalog is damaged, or is not the one that was expected
├── IngestError                   a batch does not continue the log
│   ├── TopicGoneError            what a batch was read from is gone or another topic since; retriable
│   ├── GapError                  records between the log's end and the batch are missing; retriable
│   └── RejectedRecordError       a record that cannot be folded, and errors.tolerance is none
├── FoldError                     a fold or a snapshot could not be made from its runs
│   └── FoldFailedError           a fold that somebody asked for failed, and may succeed later; retriable
├── SnapshotError                 a snapshot cannot be taken; everything else goes on
└── QuarantinedError              partitions are set aside, so that not everything was done
"""

from __future__ import annotations

from typing import ClassVar, Final

DEFECT: Final = "This is a defect of keyfold; only what was committed counts."
"""What to do next where the code broke its own rule."""


class KeyfoldError(Exception):
    """Base of every error that keyfold raises on purpose.

    `message` says what happened and where (connector, topic, partition, offset); `action` says what the
    operator can do next, one sentence. `retriable` is True where the same call may succeed later without
    anybody changing anything. `topic` is the source topic that it is about, where that decides what is done next.
    """

    retriable: ClassVar[bool] = False
    topic: str | None = None

    def __init__(self, message: str, action: str = "") -> None:
        super().__init__(message, action)
        self.message = message
        self.action = action

    def __str__(self) -> str:
        return f"{self.message} {self.action}".rstrip()


class StorageError(KeyfoldError):
    """The store did not answer, refused, or has no room."""

    retriable = True


class OutcomeUnknownError(KeyfoldError):
    """The answer to a commit was lost; whether it took effect must be read back, never guessed."""

    retriable = True


class FencedError(KeyfoldError):
    """A newer epoch owns this connector; whatever this process still holds counts for nothing."""


class PublishInterruptedError(KeyfoldError):
    """A publish ended early and left nothing half done: read the positions again, then plan again."""

    retriable = True


class PositionMovedError(PublishInterruptedError):
    """The group does not hold the position that a publish was planned from; nothing was sent."""


class PositionError(KeyfoldError):
    """The committed position is missing, lower than the catalog's, or not ours; an operator decides."""


class CatalogError(KeyfoldError):
    """The catalog is damaged, of an unknown format, or belongs to another connector."""


class IngestError(KeyfoldError):
    """A micro-batch does not fit the log that it should continue."""


class GapError(IngestError):
    """Offsets between the log's end and the start of the batch are missing.

    A source that was not known for a moment may leave one; the next start reads from the log's end.
    """

    retriable = True


class TopicGoneError(IngestError):
    """The topic that a batch was read from is gone, or is another one by its id."""

    retriable = True


class RejectedRecordError(IngestError):
    """A record cannot be folded (it has no key) and `errors.tolerance` is `none`."""


class FoldError(KeyfoldError):
    """A fold or a snapshot could not be made from the runs it was given."""


class FoldFailedError(FoldError):
    """A fold that somebody asked for failed, and left everything as it was."""

    retriable = True


class SnapshotError(KeyfoldError):
    """A snapshot cannot be taken until somebody changes something; nothing but snapshots is concerned.

    `topics` are those that it concerns; None: all of the connector.
    """

    def __init__(self, message: str, action: str = "", topics: frozenset[str] | None = None) -> None:
        super().__init__(message, action)
        self.topics = topics


class QuarantinedError(KeyfoldError):
    """Partitions are set aside because of damaged files; what was asked for was done without them."""
