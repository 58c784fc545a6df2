"""Gives the changes of a table: what its output topic has from a position on, each record once."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self

import structlog
from msgspec.structs import replace

from connectors.bootstrap.freshness import ReadTime
from connectors.bootstrap.output_log import Clients, OutputLog
from connectors.bootstrap.position import ReaderPosition, RepeatVerdict, verdict
from connectors.bootstrap.records import Change, change_of
from connectors.clock import SYSTEM_CLOCK, Clock
from connectors.errors import UnreachableError
from connectors.kafka.consumers import headers_of_all

_log = structlog.get_logger(__name__)

_POLL_S: Final = 0.5
# Between two tries (s) to decode what came, at most; a poll may take less.
_AGAIN_S: Final = 1.0


class ChangeDecoder(Protocol):
    """Gives changes the keys and fields of a typed snapshot's records (`typed_changes.TypedChanges`)."""

    def decoded(self, changes: Sequence[Change]) -> list[Change]:
        """Returns the changes with typed keys and fields. Raises UnreachableError if a registry does not answer."""

    def close(self) -> None:
        """Closes connections."""


class Changes:
    """The changes from a position on, without end: an iterator, or by `poll`. For one thread.

    `position` is that after what was handed out so far. Stored together with what was made of it, it lets a reader go
    on with the very next change (`resume`). Raises ResumeError once changes may be missing, or if an earlier poll
    failed. Raises UnreachableError at the start only: later on brokers that are away are waited for.
    """

    def __init__(
        self,
        clients: Clients,
        position: ReaderPosition,
        clock: Clock = SYSTEM_CLOCK,
        decoder: ChangeDecoder | None = None,
    ) -> None:
        self._log = OutputLog(clients, position, clock)
        # What gives changes typed keys and fields; None: they stay as the output has them.
        self._decoder = decoder
        self._begun = replace(position, typed=decoder is not None)
        self._repeats = Repeats(position)
        # The next offset of each partition after what was handed out.
        self._offsets = position.numbers
        # Since when (ms) all is known to be handed out.
        self._since_ms = position.since_ms
        # Polled, and not handed out yet.
        self._waiting: Iterator[Change] = iter(())
        # Polled, and not decoded yet: the schema registry did not answer.
        self._undecoded: Left | None = None
        # The latest moment of which all was decoded that the output had.
        self._decoded: ReadTime | None = None
        self._closed = threading.Event()
        self._clock = clock

    @property
    def position(self) -> ReaderPosition:
        """The position after what was handed out."""
        return self._begun.at(self._offsets, self._since_ms)

    @property
    def current(self) -> ReadTime | None:
        """The latest moment of which all was polled that the output had; None before the first."""
        return self._decoded

    def poll(self, timeout_s: float = _POLL_S) -> list[Change]:
        """Returns the changes that come within `timeout_s`, as soon as there are some; about 10,000 at most."""
        return list(self._waiting) or list(self._poll(timeout_s))

    def __iter__(self) -> Iterator[Change]:
        """Yields the changes as they come, and waits for more, until `close`."""
        while not self._closed.is_set():
            yield from self._waiting
            self._waiting = self._poll(_POLL_S)

    def ask_soon(self) -> None:
        """Has the next poll ask how far the output is. Threads may call it."""
        self._log.ask_soon()

    def close(self) -> None:
        """Closes the connections."""
        if not self._closed.is_set():
            self._closed.set()
            self._log.close()
            if self._decoder is not None:
                self._decoder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _poll(self, timeout_s: float) -> Iterator[Change]:
        """Polls now, and returns what came; the position moves while that is handed out.

        While a schema registry does not answer, nothing more is polled, and what came is tried again with the next one.
        """
        is_again = self._undecoded is not None
        if self._undecoded is None:
            messages = self._log.poll(timeout_s)
            changes = map(change_of, messages, (headers or () for headers in headers_of_all(messages)[0]))
            self._undecoded = self._repeats.left(changes)
        left = self._undecoded
        if self._decoder is not None:
            try:
                left = left._replace(changes=self._decoder.decoded(left.changes))
            except UnreachableError as outage:
                if not is_again:
                    _log.warning("changes cannot be decoded, they are tried again", reason=str(outage))
                self._clock.wait_ms(int(min(timeout_s, _AGAIN_S) * 1000), self._closed)
                return iter(())
        self._undecoded, self._decoded = None, self._log.freshness.current
        return self._handed_out(left, self._decoded)

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
