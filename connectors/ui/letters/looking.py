"""Looks at the newest dead letters of a connector: counts them by what they say, and lists the last ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Final, TypeVar

from msgspec import Struct

from compactor.errors import KeyfoldError
from connectors.config.secrets import logged_text
from connectors.errors import CHECK_BROKERS, UnreachableError
from connectors.operations.redrive.counts import LetterCount, counts
from connectors.operations.redrive.letters import Letter, LetterFilter
from connectors.operations.redrive.run import DeadLetters, LetterFates
from connectors.ui.letters.limits import SHOWN_KINDS, CutShortError, ReadBounds
from connectors.ui.letters.shown import ListedLetter, listed

T = TypeVar("T")

NEWEST: Final = 10_000
"""Offsets from the end on that a look covers, of all partitions together: some 0.5 s. Below are letters that a person
who looks at a page has seen before, or has long given up."""
LOOK: Final = ReadBounds(letters=2 * NEWEST, size=64 << 20, seconds=5.0)
"""What a look reads at most: mostly NEWEST ends it before."""
PAST: Final = ReadBounds(letters=2 * NEWEST, size=32 << 20, seconds=3.0)
"""What is read before of letters that have gone, to know their records: without that they are counted all the same."""
LISTED: Final = 25
"""Letters in the list of a page."""

_FIRST_STEP: Final = 256
_GROWTH: Final = 4
"""The newest letters are read first, in growing steps: what a bound cuts off are the oldest. Each step takes a consumer
of its own, some ms, so there are few."""


class Look(Struct, frozen=True, kw_only=True):
    """What a look has met in `topic`: `kinds` of letters, and the newest of those that are asked for, the newest first.

    `absent` says why there is no topic. `letters` were looked at, of `offsets` that the topic has (transactions take
    some of their own). `cut` says why no more were, None if it is all of the newest. `unknown` says why it cannot be
    told which letters were sent back.
    """

    topic: str
    absent: str | None = None
    kinds: tuple[LetterCount, ...] = ()
    more_kinds: int = 0
    listed: tuple[ListedLetter, ...] = ()
    letters: int = 0
    offsets: int = 0
    cut: str | None = None
    unknown: str | None = None


def look(dead: DeadLetters, past: DeadLetters, connector: str, wanted: LetterFilter) -> Look:
    """Looks at the newest letters of `dead`; those that `wanted` matches are listed.

    `past` is the same topic, of which it is read which letters have gone. Raises UnreachableError, NotAllowedError.
    """
    bounds = _bounds(dead)
    if not bounds:
        return Look(topic=dead.topic, absent=dead.absent() or f"Topic {dead.topic} has no partitions.")
    share = max(1, NEWEST // len(bounds))
    starts = {number: max(low, end - share) for number, (low, end) in bounds.items()}
    fates, unknown = known_fates(past, starts)
    newest = _Newest(dead, starts, bounds, wanted)
    kinds = counts(newest.letters(), fates)
    rows = [listed(letter, connector, fates) for letter in newest.kept]
    return Look(
        topic=dead.topic,
        kinds=tuple(kinds[:SHOWN_KINDS]),
        more_kinds=max(0, len(kinds) - SHOWN_KINDS),
        listed=tuple(sorted(rows, key=lambda row: -row.came_ms)[:LISTED]),
        letters=newest.count,
        offsets=sum(end - low for low, end in bounds.values()),
        cut=newest.cut,
        unknown=unknown,
    )


def letter_at(
    dead: DeadLetters, past: DeadLetters, partition: int, offset: int
) -> tuple[Letter, LetterFates | None] | None:
    """Returns the letter at an offset, and what is known of letters that have gone (`past`); None if there is none.

    Raises UnreachableError, NotAllowedError.
    """
    low, end = _bounds(dead, partition).get(partition, (0, 0))
    if not low <= offset < end:
        return None
    try:
        letter = next(iter(dead.letters_in(partition, offset, offset + 1)), None)
    except CutShortError as error:
        raise _unread(dead, error) from None
    return None if letter is None else (letter, known_fates(past, {partition: max(low, end - NEWEST)})[0])


def _bounds(dead: DeadLetters, partition: int | None = None) -> dict[int, tuple[int, int]]:
    try:
        return dead.bounds(partition)
    except CutShortError as error:
        raise _unread(dead, error) from None


def _unread(dead: DeadLetters, error: CutShortError) -> UnreachableError:
    return UnreachableError(f"The letters in {dead.topic} were not read: {error}.", CHECK_BROKERS)


def known_fates(dead: DeadLetters, starts: Mapping[int, int]) -> tuple[LetterFates | None, str | None]:
    """Returns which letters have gone, or why that cannot be told: letters are shown all the same."""
    try:
        return dead.fates(starts), None
    except CutShortError as error:
        return None, str(error)
    except KeyfoldError as error:
        return None, logged_text(error.message)


def steps(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges in which [start, end) is read: the last one first, and each longer than the one before."""
    step = _FIRST_STEP
    while end > start:
        first = max(start, end - step)
        yield first, end
        end, step = first, step * _GROWTH


def in_turn(ranges: Mapping[int, Iterable[T]]) -> Iterator[tuple[int, T]]:
    """Yields the first of each number's, then the second, and so on: what a bound cuts off is old in all of them."""
    for row in zip_longest(*ranges.values()):
        yield from ((number, each) for number, each in zip(ranges, row, strict=True) if each is not None)


class _Newest:
    """Reads the newest letters of each partition: counts them, and keeps the last ones that are asked for."""

    def __init__(
        self,
        dead: DeadLetters,
        starts: Mapping[int, int],
        bounds: Mapping[int, tuple[int, int]],
        wanted: LetterFilter,
    ) -> None:
        self.kept: list[Letter] = []
        self.count = 0
        self.cut: str | None = None
        self._dead = dead
        self._starts = starts
        self._bounds = bounds
        self._wanted = wanted

    def letters(self) -> Iterator[Letter]:
        """Yields the letters, until a bound is reached."""
        try:
            room = dict.fromkeys(self._bounds, LISTED)
            ranges = {number: steps(self._starts[number], end) for number, (_, end) in self._bounds.items()}
            for number, (first, stop) in in_turn(ranges):
                before = len(self.kept)
                yield from self._step(number, first, stop, room[number])
                room[number] -= len(self.kept) - before
        except CutShortError as error:
            self.cut = str(error)

    def _step(self, number: int, first: int, stop: int, room: int) -> Iterator[Letter]:
        newest = deque[Letter](maxlen=room)
        try:
            for letter in self._dead.letters_in(number, first, stop):
                self.count += 1
                if self._wanted.matches(letter):
                    newest.append(letter)
                yield letter
        finally:
            self.kept += newest
