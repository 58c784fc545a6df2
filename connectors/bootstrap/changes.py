"""Gives the changes of a table: what its output topic has from a position on, each record once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Final, NamedTuple, Self

from connectors.bootstrap.freshness import ReadTime
from connectors.bootstrap.output_log import Clients, OutputLog
from connectors.bootstrap.position import ReaderPosition, RepeatVerdict, verdict
from connectors.bootstrap.records import Change, change_of
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.kafka.consumers import headers_of_all

_POLL_S: Final = 0.5


class Changes:
    """The changes from a position on, without end: an iterator, or by `poll`. For one thread.

    `position` is that after what was handed out so far. Stored together with what was made of it, it lets a reader go
    on with the very next change (`resume`). Raises ResumeError once changes may be missing, or if an earlier poll
    failed. Raises UnreachableError at the start only: later on brokers that are away are waited for.
    """

    def __init__(self, clients: Clients, position: ReaderPosition, clock: Clock = SYSTEM_CLOCK) -> None:
        self._log = OutputLog(clients, position, clock)
        self._begun = position
        self._repeats = Repeats(position)
        # The next offset of each partition after what was handed out.
        self._offsets = position.numbers
        # Since when (ms) all is known to be handed out.
        self._since_ms = position.since_ms
        # Polled, and not handed out yet.
        self._waiting: Iterator[Change] = iter(())
        self._is_closed = False

    @property
    def position(self) -> ReaderPosition:
        """The position after what was handed out."""
        return self._begun.at(self._offsets, self._since_ms)

    @property
    def current(self) -> ReadTime | None:
        """The latest moment of which all was polled that the output had; None before the first."""
        return self._log.freshness.current

    def poll(self, timeout_s: float = _POLL_S) -> list[Change]:
        """Returns the changes that come within `timeout_s`, as soon as there are some; about 10,000 at most."""
        return list(self._waiting) or list(self._poll(timeout_s))

    def __iter__(self) -> Iterator[Change]:
        """Yields the changes as they come, and waits for more, until `close`."""
        while not self._is_closed:
            yield from self._waiting
            self._waiting = self._poll(_POLL_S)

    def ask_soon(self) -> None:
        """Has the next poll ask how far the output is. Threads may call it."""
        self._log.ask_soon()

    def close(self) -> None:
        """Closes the connections."""
        if not self._is_closed:
            self._is_closed = True
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poll(self, timeout_s: float) -> Iterator[Change]:
        """Polls now, and returns what came; the position moves while that is handed out."""
        messages = self._log.poll(timeout_s)
        changes = map(change_of, messages, (headers or () for headers in headers_of_all(messages)[0]))
        return self._handed_out(self._repeats.left(changes), self._log.freshness.current)

    def _handed_out(self, left: Left, current: ReadTime | None) -> Iterator[Change]:
        for change in left.changes:
            self._offsets[change.partition] = change.offset + 1
            yield change
        self._offsets |= left.ends
        if current is not None:
            self._since_ms = current.wall_ms


class Left(NamedTuple):
    """The changes that a reader has not got yet, and the offsets up to which partitions are decided."""

    changes: list[Change]
    ends: dict[int, int]


class Repeats:
    """Leaves out what the snapshot stands for that the reader of a position began with."""

    def __init__(self, position: ReaderPosition) -> None:
        self._position = position
        # By partition: tombstones with which is done what is done with the record that follows.
        self._undecided: dict[int, list[Change]] = {}

    def left(self, changes: Iterable[Change]) -> Left:
        """Returns those of the next `changes` that the snapshot does not stand for."""
        taken: list[Change] = []
        ends: dict[int, int] = {}
        for change in changes:
            match verdict(self._position, change.partition, change.headers):
                case RepeatVerdict.AS_NEXT:
                    self._undecided.setdefault(change.partition, []).append(change)
                    continue
                case RepeatVerdict.TAKE:
                    taken += [*self._undecided.pop(change.partition, ()), change]
                case RepeatVerdict.SKIP:
                    self._undecided.pop(change.partition, None)
            ends[change.partition] = change.offset + 1
        return Left(taken, ends)
