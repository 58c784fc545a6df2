"""Decides when a warning of what goes on happening is due, and for how many records it stands.

The first of a kind is due at once, the next ones after growing pauses. Pauses are of time, not of records: at the 1st,
10th and 100th record a backlog would write all of its warnings in a second, and a source that has sent bad records
for days would write none.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.clock import Clock

PAUSES_MS: Final = (60_000, 600_000, 3_600_000)
"""The pauses after the warnings of a kind; the last one repeats. A minute: it is soon seen whether it goes on. An hour:
a day's log has 26 lines of a kind, and none of an earlier day is needed to see that it still does."""
MOST_KINDS: Final = 1_000
"""How many kinds a process remembers. A kind takes some 300 bytes; a topic has one for each class that refuses."""
OTHERS: Final = "others"
"""The kind of everything beyond MOST_KINDS: it is warned of as one."""


class Warned(Struct, frozen=True):
    """What is known of one kind: when (monotonic ms) its next warning is due, and how many were given.

    `waiting` counts the records that have come since the last of them.
    """

    due_ms: int
    warnings: int = 0
    waiting: int = 0


def after_records(
    before: Warned | None, records: int, now_ms: int, pauses_ms: Sequence[int] = PAUSES_MS
) -> tuple[Warned, int | None]:
    """Returns what is known of a kind after `records` more, and for how many a warning stands that is due now.

    None: no warning is due. Without `before`, these are its first records. The last of `pauses_ms` repeats.
    """
    known = before or Warned(due_ms=now_ms)
    waiting = known.waiting + records
    if now_ms < known.due_ms:
        return replace(known, waiting=waiting), None
    pause_ms = pauses_ms[min(known.warnings, len(pauses_ms) - 1)]
    return Warned(due_ms=now_ms + pause_ms, warnings=known.warnings + 1), waiting


class RareWarnings:
    """Remembers of each kind what was warned of, of at most `most` kinds. Safe to call from any thread."""

    def __init__(self, clock: Clock, most: int = MOST_KINDS) -> None:
        self._clock = clock
        self._most = most
        # By kind; at most `most`, and OTHERS. Changed under `_lock`.
        self._warned: dict[Hashable, Warned] = {}
        self._lock = threading.Lock()

    def due(self, kind: Hashable, records: int) -> int | None:
        """Takes `records` more of `kind`; returns for how many a warning stands, None if none is due.

        Beyond `most` kinds, a new kind shares its warnings with all others that are too many.
        """
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if kind not in self._warned and len(self._warned) >= self._most:
                self._forget_old(now_ms)
                kind = kind if len(self._warned) < self._most else OTHERS
            self._warned[kind], stands_for = after_records(self._warned.get(kind), records, now_ms)
            return stands_for

    def _forget_old(self, now_ms: int) -> None:
        """Forgets the kinds of which nothing has come for at least an hour after their next warning was due."""
        limit_ms = now_ms - PAUSES_MS[-1]
        self._warned = {kind: warned for kind, warned in self._warned.items() if warned.due_ms > limit_ms}
