"""Bounds what all matches of a piece of work take together, however quick each of them is.

A check of a config, a look at all topics, or a portion runs in a block of `matches_within`. Each match of this thread
in the block counts, whichever pattern it is of: 10,000 matches that each take just under a millisecond are as long as
a hundred slow ones.

    with matches_within(CHECK_S):           a comparison of a config with all others
        with matches_within(OTHER_S):       with one of them: counts in both
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from connectors.errors import PatternError

Result = TypeVar("Result")

CHECK_S: Final = 2.0
"""A check of a config: the most that one may ask for (`routing.MOST_MATCHES`) takes 0.6 s with patterns that are meant
for names."""
COMPARE_S: Final = 5.0
"""A comparison of a config with all others of the worker, of which there may be a thousand with patterns."""
OTHER_S: Final = 1.0
"""The part of that for one of the others, so that a slow pattern of it leaves time to look at the next ones."""
LOOK_S: Final = 2.0
"""A look at the topics of a cluster, on a thread that looks for other connectors too: 100,000 take 0.6 s."""
START_S: Final = 10.0
"""What a connector's start makes of its topics: 100,000 of them with ten routers take 6 s."""
PORTION_S: Final = 30.0
"""The chain of a portion, which matches a topic once as a rule: 5 million records of which each is matched take as
long. In a micro-batch of several connectors it has less time, for all that it does (`Patience`)."""
_ACTION: Final = "Name fewer topics, use fewer patterns, or write them so that a text can match in one way only."


class _Budget:
    """The time that is left of a block, and of the one around it; used by one thread."""

    def __init__(self, seconds: float, outer: _Budget | None, worked: Callable[[], float]) -> None:
        self._seconds = seconds
        self._worked = worked
        # Those in which a match counts, the outermost first.
        self._counting: tuple[_Budget, ...] = (*(outer._counting if outer else ()), self)
        # Seconds that may still be used; below 0 once the last match took longer than was left.
        self._left_s = seconds

    def is_left(self) -> bool:
        return self._left_s > 0

    def run(self, match: Callable[[str], Result], text: str) -> Result:
        """Returns what `match` makes of `text`, and counts the time here and in each block around.

        The time of a thread is asked for twice, however many blocks there are: each takes 1 µs, and a match 3.
        Raises PatternError if no time is left in one of them.
        """
        for budget in self._counting:
            if budget._left_s <= 0:
                why = f'"{text:.250}" was not matched: all matches of this work took {budget._seconds:g} s already.'
                raise PatternError(why, _ACTION)
        began = self._worked()
        try:
            return match(text)
        finally:
            took_s = self._worked() - began
            for budget in self._counting:
                budget._left_s -= took_s


class _Current(threading.local):
    # The budget of the innermost block that this thread is in; None: its matches are not counted together.
    budget: _Budget | None = None


_current: Final = _Current()


@contextmanager
def matches_within(seconds: float, worked: Callable[[], float] = time.thread_time) -> Iterator[Callable[[], bool]]:
    """Lets all matches of this thread in the block take `seconds` of work together; they count in blocks around it too.

    Yields what tells whether any time is left of these. `worked` returns the seconds that this thread has worked: a
    busy machine makes no match slow.
    """
    outer = _current.budget
    _current.budget = budget = _Budget(seconds, outer, worked)
    try:
        yield budget.is_left
    finally:
        _current.budget = outer


def counted(match: Callable[[str], Result], text: str) -> Result:
    """Returns what `match` makes of `text`, and counts the time that it takes.

    Raises PatternError if the blocks around have no time left.
    """
    budget = _current.budget
    return match(text) if budget is None else budget.run(match, text)
