"""Defines the worker's errors, and the exit code that each ends a command with.

KeyfoldError (compactor.errors)
├── UsageError                    2  the command line makes no sense
├── ConfigError                   3  a worker or connector file is wrong
├── NoConnectorError              2  the worker has no connector of that name
├── ConflictError                 2  what is asked for contradicts what is there
│   └── SupersededError              another process has stored a newer version of what is to be changed
├── BusyError                     4  the worker has too much to wait for, or changes the same connector; retriable
│   └── NoThreadError                this process may start no further thread
├── OffsetChangeError             2  (compactor.errors)
├── RebuildError                  2  (compactor.errors)
├── UnreachableError              4  broker did not answer in time; retriable
│   └── NoConnectionError            no broker has let a client in, and nothing was asked of it yet
│       └── LoginRefusedError        a broker answers, and refuses a user, a password or a certificate
├── ConnectorError                1  a connector FAILED; an operator decides
│   ├── SourceMissingError           a named source topic does not exist (yet); retriable
│   ├── DataLossError                source records are gone before they were read (on.data.loss)
│   ├── SourceChangedError           source topic recreated, or its log ends below our position
│   ├── SourceClosedError            a source topic cannot be read on, the others can; retriable
│   │   └── TopicSetAsideError       it was found while it was read: the connector goes on without it at once
│   ├── OutputError                  output topic missing, recreated or unfit
│   ├── NotAllowedError              the brokers refuse a right (ACL); retriable, as it may be granted
│   ├── BrokerRefusedError           the brokers take no such request or setting; retriable
│   ├── PatternError                 a pattern of the configuration takes too long to match
│   └── RecordRefusedError           the broker refuses one record for good
├── BootstrapError                1  a snapshot's table cannot be read, or not be kept current
│   ├── SnapshotGoneError            the snapshot was removed while its records were handed out
│   └── ResumeError                  changes may be missing between a position and what the output has
├── DataError                     1  a record cannot be converted or transformed
├── RegistryError                 4  the schema registry did not answer; retriable
│   ├── MachineError                 this machine lacks memory, files, threads or room
│   │   └── CompilerError                protoc could not be run on it
│   ├── RegistryRefusedError         it answers, and refuses a user, or is no schema registry; FAILED, tried again
│   └── PortionLateError             a portion's chain holds up its micro-batch; it is read apart
├── SparkClusterError             4  a Spark cluster did not take the worker, or gave it no executor that works
├── SparkGoneError                1  Spark's JVM has ended under a running worker
├── StorageError                  4  (compactor.errors)
│   ├── DamagedFileError          1  it is the same later
│   ├── MissingFileError          1
│   └── UnreadableFileError       1
├── NotVisibleError               4  (compactor.errors)
├── SnapshotHiddenError           4  (compactor.errors)
├── FencedError                   5  (compactor.errors)
└── any other KeyfoldError        1
"""

from __future__ import annotations

from typing import Final

from compactor.errors import (
    DamagedFileError,
    FencedError,
    KeyfoldError,
    MissingFileError,
    NotVisibleError,
    OffsetChangeError,
    OutcomeUnknownError,
    PositionMovedError,
    PublishInterruptedError,
    RebuildError,
    SnapshotHiddenError,
    StorageError,
    StorageRefusedError,
    UnreadableFileError,
    UnsupportedStorageError,
)

# The exit codes of commands, as docs/commands.md lists them; scripts rely on them.
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CONFIG = 3
EXIT_UNREACHABLE = 4
EXIT_FENCED = 5
EXIT_PENDING = 6
EXIT_INTERRUPTED = 130

DEFECT: Final = "keyfold has a defect here; the worker's log says more."
CHECK_BROKERS: Final = "Check that the brokers of bootstrap.servers are up and can be reached."
PUBLISH_ANEW: Final = (
    "keyfold resync CONNECTOR.json publishes everything anew from what the source holds; or use a new connector name."
)


class UsageError(KeyfoldError):
    """The command line makes no sense."""


class ConfigError(KeyfoldError):
    """A worker or connector file is wrong; the message lists every fault that was found."""


class NoConnectorError(KeyfoldError):
    """The worker has no connector of that name."""


class ConflictError(KeyfoldError):
    """What is asked of a worker contradicts what is there: a name is taken, a connector belongs to its file."""


class SupersededError(ConflictError):
    """Another process has stored a newer version of what is to be changed: this one does not own it any more."""


class BusyError(KeyfoldError):
    """The worker is at so much that waits, for a store or a broker, that it takes no more of it now."""

    retriable = True


class NoThreadError(BusyError):
    """This process may start no further thread: its account or its container has as many as it may have."""


class UnreachableError(KeyfoldError):
    """The broker did not answer in time."""

    retriable = True


class NoConnectionError(UnreachableError):
    """No broker took a client's connection, or let it log in; nothing was asked of it yet."""


class LoginRefusedError(NoConnectionError):
    """A broker answers, and does not let a client in: its user, password, mechanism or certificate is wrong."""


class ConnectorError(KeyfoldError):
    """The connector is FAILED until an operator decides."""


class SourceMissingError(ConnectorError):
    """A named source topic does not exist, and never did for this connector."""

    retriable = True


class DataLossError(ConnectorError):
    """Source records are gone before they were read, and on.data.loss is `fail`."""


class SourceChangedError(ConnectorError):
    """The source topic was recreated (another topic id), or its log ends below our position."""


class SourceClosedError(ConnectorError):
    """A source topic cannot be read on: it is closed, and the connector goes on with its other topics."""

    retriable = True


class TopicSetAsideError(SourceClosedError):
    """A source topic was found to be unreadable while it was read, and is closed now: the others are read on at once.

    Each such error closes one topic more, so that it comes at most once for each topic.
    """


class OutputError(ConnectorError):
    """The output topic is missing, was recreated, or has settings keyfold cannot work with."""


class NotAllowedError(ConnectorError):
    """The brokers' ACLs refuse what a connector has to do; it is tried again, as nothing else shows a grant."""

    retriable = True


class BrokerRefusedError(ConnectorError):
    """The brokers do not do what a connector asks of them: they are too old for it, or set so that they refuse it.

    It is tried again, as nothing else shows that they were changed; without that no try succeeds.
    """

    retriable = True


class PatternError(ConnectorError):
    """A pattern takes too long on a text, or what it works on, or makes, is too long.

    A record that is being transformed is rejected for it alone; if topics are looked up, the connector fails. `setting`
    is that of the pattern, as far as it is known.
    """

    setting: str = ""


class RecordRefusedError(ConnectorError):
    """The broker, or the client as it is set, refuses one record for good, and errors.tolerance does not let it go."""

    is_of_record = True


class BootstrapError(KeyfoldError):
    """A snapshot's table cannot be read, or not be kept current with its output topic."""


class SnapshotGoneError(BootstrapError):
    """A snapshot was removed after some of its records were handed out: begin again with the newest."""


class ResumeError(BootstrapError):
    """A reader cannot go on from its position: what changed since may be missing, or is another topic's.

    Begin again with the newest snapshot; the message says if that has to be taken first.
    """


class DataError(KeyfoldError):
    """A record cannot be converted or transformed (`org.apache.kafka.connect.errors.DataException`): it alone is bad.

    The message says what is wrong with it; the chain adds the stage and the class.
    """


class RegistryError(KeyfoldError):
    """The schema registry did not answer, or refused the connector itself: nothing is known of the record."""

    retriable = True


class MachineError(RegistryError):
    """This machine lacks memory, files, threads or room: nothing is known of the record then."""


class CompilerError(MachineError):
    """Protoc could not be run on this machine, which may lack room, memory or processes: no schema is to blame."""


class RegistryRefusedError(RegistryError):
    """The schema registry answers and refuses a user or the request: the operator corrects what the action names."""


class PortionLateError(RegistryError):
    """A portion's chain takes longer than a micro-batch waits: nothing is known of its records by then.

    It fails no connector: the portion is read apart.
    """


class SparkClusterError(KeyfoldError):
    """A Spark cluster did not take the worker: it did not answer, refused it, or gave it no executor that works."""


class SparkGoneError(KeyfoldError):
    """Spark, or the way to it, is gone under a running worker, which can do nothing more in this process."""


_EXIT_CODES: tuple[tuple[type[KeyfoldError], int], ...] = (
    (UsageError, EXIT_USAGE),
    (NoConnectorError, EXIT_USAGE),
    (ConflictError, EXIT_USAGE),
    (OffsetChangeError, EXIT_USAGE),
    (RebuildError, EXIT_USAGE),
    (ConfigError, EXIT_CONFIG),
    (BusyError, EXIT_UNREACHABLE),
    (UnreachableError, EXIT_UNREACHABLE),
    (DamagedFileError, EXIT_FAILED),
    (MissingFileError, EXIT_FAILED),
    (UnreadableFileError, EXIT_FAILED),
    (StorageError, EXIT_UNREACHABLE),
    (NotVisibleError, EXIT_UNREACHABLE),
    (SnapshotHiddenError, EXIT_UNREACHABLE),
    (RegistryError, EXIT_UNREACHABLE),
    (SparkClusterError, EXIT_UNREACHABLE),
    (FencedError, EXIT_FENCED),
)
_OUTAGES: Final = (
    UnreachableError,
    RegistryError,
    StorageError,
    PublishInterruptedError,
    OutcomeUnknownError,
    NotVisibleError,
)
_REFUSALS: Final = (
    LoginRefusedError,
    RegistryRefusedError,
    StorageRefusedError,
    PositionMovedError,
    MissingFileError,
    DamagedFileError,
    UnreadableFileError,
    UnsupportedStorageError,
)


def is_outage(error: BaseException) -> bool:
    """Returns whether `error` only says that brokers, a store or a registry did not answer, or not with all yet.

    A connector that failed with it waits and is not FAILED, as nothing has to be done for the connector itself. What
    they refuse, and what is missing or damaged, is no outage though it may be tried again.
    """
    return isinstance(error, _OUTAGES) and not isinstance(error, _REFUSALS)


def exit_code(error: BaseException) -> int:
    """Returns the exit code of a command that ends with `error`."""
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), EXIT_FAILED)
