"""Matches texts against patterns that users wrote, in bounded time (`JavaPattern`).

A pattern such as `(a|aa)+b` takes exponential time to find that a text does not match. So nothing outside of this file
gets a compiled pattern that could match without a limit. Nearly every match ends within microseconds; one that does not
goes on without the GIL, so that other threads work meanwhile, and counts against what its pattern may take in all.
Quick ones count in what the work that they are part of may take (`match_time`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from itertools import islice
from sys import getsizeof
from typing import TYPE_CHECKING, Final

from compactor.remembered import Remembered
from connectors.errors import PatternError
from connectors.java_regex import MEMBER_BYTES, translate
from connectors.match_time import counted

if TYPE_CHECKING:
    import regex

Groups = tuple[str | None, ...]
"""What a match found: the whole text, then each group; None for a group that took no part."""

LONGEST_TEXT: Final = 1_000
"""Characters of a text that is matched: four times what a topic's name may have, so routers may make longer ones."""
_QUICK_S: Final = 0.001
"""A match takes 2 µs as a rule. Up to here the GIL is kept: to release it for each match would cost more."""
_LIMIT_S: Final = 0.1
"""One match may take so long: far more than any pattern that is meant for names needs, and no pause that is felt."""
_OWN_S: Final = _LIMIT_S / 2
"""`regex` ends a match by the time that all threads of the process have worked. Only a match of which this thread has
worked so long is slow; another one is made again: of 105 connectors on a busy machine 7 FAILED by patterns that take
3 µs, and stayed so, as the result is remembered."""
_TRIES: Final = 20
"""How often it is made: a slow one is ended then at the latest, also if 40 other threads work all the time."""
_SAVED_S: Final = 1.0
_SHARE: Final = 0.02
"""Matches over _QUICK_S may take 2 % of the time in the long run, and at most a second at once.

So ten thousand topics, each of which takes just under the limit, delay a connector by a second and not by a quarter of
an hour; what is beyond fails as a match over the limit does.
"""
_REMEMBERED: Final = 1_000
"""Slow matches of which the result is kept, so that a record after the other of one topic waits only once."""
_LARGE: Final = 8 * LONGEST_TEXT
"""Characters of its groups, and groups, from which on a slow match is not remembered: 1,000 take 16 MB at most."""
_HEAVIEST: Final = 192 << 20
"""Bytes of all patterns that are kept: those of any connector, a hundred with counts or 256 Ki characters, and so many
thousands of usual ones. With less, a connector with the largest would compile each of them for every topic."""
_OWN_MEMBERS: Final = 10
"""Members that a pattern counts as in addition, for what it takes however short it is."""
_ACTION: Final = (
    "Write the pattern so that each text can match in one way only: without a repeated group that repeats itself, as "
    "in (a+)+, and with possessive quantifiers, as in a++."
)


class JavaPattern:
    """A compiled pattern that must match a whole text. Threads may share it.

    `clock` returns monotonic seconds, `worked` the seconds that this thread has worked: a busy machine makes no match
    slow.
    """

    def __init__(
        self,
        pattern: str,
        compiled: regex.Pattern[str],
        clock: Callable[[], float] = time.monotonic,
        worked: Callable[[], float] = time.thread_time,
    ) -> None:
        self._pattern = pattern
        self._compiled = compiled
        self._clock = clock
        self._worked = worked
        self._left_s = _SAVED_S
        """How many seconds slow matches might take at `_counted_at`."""
        # When (monotonic s) `_left_s` was counted last; time since then earns _SHARE of it.
        self._counted_at = clock()
        self._slow: dict[str, Groups | str | None] = {}
        """By text, what a slow match found; the error's message if it was ended. The oldest are let go."""

    @property
    def group_count(self) -> int:
        """How many groups it has, named ones among them."""
        return self._compiled.groups

    @property
    def group_names(self) -> Mapping[str, int]:
        """The numbers of named groups."""
        return self._compiled.groupindex

    def matches(self, text: str) -> bool:
        """Returns whether the whole of `text` matches. Raises PatternError if that takes too long."""
        return self.groups(text) is not None

    def groups(self, text: str) -> Groups | None:
        """Returns the groups of a match of the whole of `text`, None without one.

        Raises PatternError if that takes too long, if all matches of this work do, or if the text has more than
        LONGEST_TEXT characters.
        """
        if len(text) > LONGEST_TEXT:
            raise PatternError(
                f'"{text[:100]}…" is a name of {len(text)} characters; a pattern is matched against at most '
                f"{LONGEST_TEXT}.",
                "Give topics shorter names: Kafka's have up to 249 characters.",
            )
        return counted(self._groups_of, text)

    def _groups_of(self, text: str) -> Groups | None:
        slow = self._slow  # one and the same: other threads replace it
        if text in slow:
            groups = slow[text]
        else:
            try:
                return _groups(self._compiled.fullmatch(text, timeout=_QUICK_S))
            except TimeoutError:
                groups = self._within_limit(text)
                if isinstance(groups, str) or _size(groups) <= _LARGE:
                    newest = islice(slow.items(), max(0, len(slow) - _REMEMBERED + 1), None)
                    self._slow = {**dict(newest), text: groups}
        if isinstance(groups, str):
            raise PatternError(groups, _ACTION)
        return groups

    def _within_limit(self, text: str) -> Groups | str | None:
        """Returns what a match finds, or says that it took too long; the time that it takes is counted.

        Raises PatternError if no time is left: a later match of the same text may be given some.
        """
        now = self._clock()
        left, self._counted_at = min(_SAVED_S, self._left_s + (now - self._counted_at) * _SHARE), now
        self._left_s = left
        if left <= 0:
            why = f"matches of it took {_SAVED_S:.0f} s already, and it may take {_SHARE:.0%} of the time"
            raise PatternError(self._not_matched(text, why), _ACTION)
        began = self._worked()
        try:
            for _ in range(_TRIES):
                try:
                    return _groups(self._compiled.fullmatch(text, timeout=_LIMIT_S, concurrent=True))
                except TimeoutError:
                    if self._worked() - began >= _OWN_S:
                        break
            return self._not_matched(text, f"it takes more than {_LIMIT_S * 1000:.0f} ms")
        finally:
            self._left_s = left - (self._worked() - began)

    def _not_matched(self, text: str, why: str) -> str:
        return f'The pattern "{self._pattern:.200}" was not matched against "{text:.250}" to the end: {why}.'


def _size(groups: Groups | None) -> int:
    """Returns how many characters groups have, and how many there are."""
    return sum(1 + len(group or "") for group in groups or ())


def _groups(match: regex.Match[str] | None) -> Groups | None:
    return None if match is None else (match[0], *match.groups())


class JavaPatterns:
    """Compiles patterns, and keeps those that were asked for last, within `heaviest` bytes in all; threads share it.

    Only here are compiled patterns kept for long: who matches asks again, so that this bounds all that there are.
    """

    def __init__(self, heaviest: int = _HEAVIEST) -> None:
        self._kept = Remembered[JavaPattern](heaviest)

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, pattern: str) -> JavaPattern:
        """Returns a pattern, compiled if it is not kept. Raises ValueError naming the position of what is refused."""
        if (kept := self._kept.get(pattern)) is not None:
            return kept
        compiled, weight = _compiled(pattern)
        return self._kept.put(pattern, compiled, weight)  # of two threads' that of the first: it counts its matches

    def clear(self) -> None:
        """Lets all of them go."""
        self._kept.clear()


def _compiled(pattern: str) -> tuple[JavaPattern, int]:
    """Compiles a pattern; returns it with about how many bytes it takes."""
    import regex  # takes a while, and only patterns need it

    text, members = translate(pattern)
    try:
        compiled = regex.compile(text, regex.ASCII | regex.VERSION1, cache_pattern=False)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a usable regular expression: {error}") from None
    finally:
        regex.purge()  # it keeps the text of each pattern that it was ever given
    return JavaPattern(pattern, compiled), MEMBER_BYTES * (members + _OWN_MEMBERS) + getsizeof(pattern) + getsizeof(
        text
    )


java_pattern: Final = JavaPatterns()
"""Those of this process."""


def check_pattern(pattern: str) -> str | None:
    """Returns what is wrong with a pattern of a setting, or None (`Option.check`)."""
    try:
        java_pattern(pattern)
    except ValueError as error:
        return str(error)
    return None if pattern else "a pattern is needed."
