"""How much is taken of a store, and how long it is waited for.

Who may write to it, or answers in its place, could let a read or a list go on for ever. A small file is read with a
limit of its kind, which the module has that writes it. The files of runs are read by ranges, or whole if they have as
many bytes as the catalog says.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from compactor.errors import ForeignContentError

SMALL_BYTES: Final = 1 << 20
"""Bytes of a file that are read if the caller names no other limit: a hundred times what most have."""

LARGE_BYTES: Final = 64 << 20
"""Bytes of a file that names each partition, or each file of a snapshot: 100,000 of them take 30 MB."""

# Four renewals may be missed. Longer: commands take a worker that was killed for alive for longer. Shorter: a pause of
# its process, or of the store, frees a lock that is held.
LEASE_MS: Final = 45_000

MOST_BYTES: Final = 512 << 20
"""Bytes of the largest files that are read whole, those of the catalog: 100,000 runs take 60 MB."""

UNHEALTHY: Final = "See whether storage.location is healthy; the step can be tried again."
"""What to do if the error says nothing more exact."""

_NOT_OURS: Final = "See what has written there, and move away what keyfold did not make."


class ListLimits(Struct, frozen=True):
    """What one list may take."""

    # Five entries for each file of a large connector (100,000 runs); in memory they take up to 250 MB.
    entries: int = 500_000
    # Of an object store: so many entries take 100 s if a page of a thousand takes 0.2 s.
    seconds: float = 300.0

    def begin(self, place: str) -> ListBudget:
        """Begins a list of `place`, the folder as messages show it."""
        return ListBudget(self, place)


class StoreTimes(Struct, frozen=True):
    """How long a store is waited for."""

    # How long (s) a request is sent again: longer outages are for the restart policy of a connector.
    retry_s: float = 20
    # How long (s) a connection may take to be made.
    connect_s: float = 5
    # How long (s) a request may take with its answer: a part of PART_BYTES fits in at 140 kB/s.
    request_s: float = 60
    # The same for one of up to SMALL_BYTES, as most are: they fit in at 100 kB/s. A pause waits for the step under way,
    # and so for a store that hangs.
    small_s: float = 10
    # After how long (ms) a lock that was not renewed counts as free.
    lease_ms: int = LEASE_MS
    # What one list may take, in all its requests.
    lists: ListLimits = ListLimits()


class ListBudget:
    """Counts what one list has taken of its limits."""

    def __init__(self, limits: ListLimits, place: str) -> None:
        self._limits = limits
        self._place = place
        # Entries taken so far.
        self._taken = 0

    def take(self, entries: int) -> None:
        """Takes so many more entries. Raises ForeignContentError if they are too many."""
        self._taken += entries
        if self._taken > self._limits.entries:
            raise ForeignContentError(
                f"{self._place} holds more than {self._limits.entries:,} files: keyfold writes fewer.", _NOT_OURS
            )


def check_size(place: str, size: int, at_most: int) -> None:
    """Raises ForeignContentError if the file `place`, as messages show it, has more than `at_most` bytes."""
    if size > at_most:
        raise ForeignContentError(
            f"{place} has {size:,} bytes or more: a file of its kind has {at_most:,} at most.", _NOT_OURS
        )


def not_a_file(place: str) -> ForeignContentError:
    """Returns the error for a folder, a pipe or a device in place of the file `place`."""
    return ForeignContentError(f"{place} is no file, but a folder, a pipe or a device.", _NOT_OURS)
