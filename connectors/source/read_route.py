"""Decides who reads a portion: by its size, by what became of the portion before it, and by who waits. Pure.

    Route        who reads                                   until
    DRIVER       a thread of the worker's own process        its end, or an error that says why not
    MICRO_BATCH  in the query's micro-batch: the driver if   a bound of time and bytes; the rest is read apart
                 the micro-batch is small, else Spark's tasks
    JOB          one task of a Spark job of the connector's  its end, or an error that says why not
    LARGE_JOB    several tasks of such a job                 its end, or 5 s without progress; the rest is read in small

A read that is not within bounds also ends if its records have grown too much (`TaskGrowth`); the rest is read in small.
A job of the connector's also ends after TURN_S; the next ones have only as many offsets as a turn suffices for.

While Spark starts the query of an only connector, a small portion is read apart by the driver: it is published before
the first micro-batch could begin.

A portion of a micro-batch is read with those of other connectors; `is_read_in_driver` decides for all of them
together. All other routes are *apart*: the connector's own thread has the portion read, and no other connector waits
for it.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from msgspec import Struct

DRIVER_READ_MAX: Final = 10_000
"""Offsets of a micro-batch that the driver reads. A Spark job costs more than to read so few: one connector at 500
records/s saw them after 0.24 s instead of 0.66 s (docs/decisions/speed.md). More would keep the driver's Python busy,
on which all connectors publish."""
APART_IN_DRIVER_MAX: Final = 20_000
"""Offsets that are read apart in the driver: twice those of a micro-batch, as no other connector waits for them. More
are a large job's, which may leave a part; with fewer, what a stalled job has left would take many more turns."""
SHARED_MAX: Final = 200_000
"""Offsets of a portion in a micro-batch that other connectors wait for: a task reads and writes them within its 2 s. A
larger one would be left in part each time, and all others would wait for these 2 s."""
APART_MAX: Final = 5_000_000
"""Offsets of one portion that is read apart while there are other connectors, or may be: large jobs take turns, and one
of this size takes 10 to 15 s on two cores. Fewer would pay for the start of a job more often."""

TURN_S: Final = 30.0
"""How long (s) a large job keeps its turn while other backlogs wait, or keeps one of Spark's tasks: two to three times
what APART_MAX plain records take. Converters and transforms that are slower would have it for hours. Less would cut
reads over slow networks, of which only the first task's part of each partition counts then."""


class Route(Enum):
    """Who reads a portion; the module's table says what each means."""

    DRIVER = auto()
    MICRO_BATCH = auto()
    JOB = auto()
    LARGE_JOB = auto()


class Trouble(Struct, frozen=True):
    """What went wrong with the portion before; the next one is read accordingly."""

    # It was not read to its end, or was too large to be read as it was: the next one begins there, at once.
    unread: bool = False
    # A large job has left it, or its records grow too much: the next one is small and read by one reader, to its end,
    # which finds out what is wrong, or until it has grown too much as well.
    stalled: bool = False
    # Its micro-batch failed as a whole. It may end the process that reads it, until something of it was read apart.
    suspect: bool = False
    # Offsets that the next portion may have, as a job has lately used up its time (`most_of_a_turn`); None: any number.
    most: int | None = None

    @property
    def keeps_apart(self) -> bool:
        """Whether the next portion is no part of a micro-batch."""
        return self.unread or self.suspect or self.most is not None


def of_portion(size: int, trouble: Trouble, *, shared: bool, late: bool, starts: bool = False) -> Route:
    """Returns the route of a new portion of `size` offsets.

    `shared`: other connectors read through the same query. `late`: its chain has lately held up a micro-batch.
    `starts`: the query has run no micro-batch yet.
    """
    if starts and not shared and is_read_in_driver(size):
        return apart(size, trouble)
    if late or trouble.keeps_apart or (shared and size > SHARED_MAX):
        return apart(size, trouble)
    return Route.MICRO_BATCH


def is_read_in_driver(offsets: int) -> bool:
    """Returns whether the driver reads a micro-batch of so many `offsets`, of all its portions; else Spark's tasks."""
    return offsets <= DRIVER_READ_MAX


def apart(size: int, trouble: Trouble) -> Route:
    """Returns the route of a portion that is no part of a micro-batch, or no longer."""
    if (size > APART_IN_DRIVER_MAX or trouble.most is not None) and not trouble.stalled:
        return Route.LARGE_JOB
    return Route.JOB if trouble.suspect else Route.DRIVER


def most_offsets(max_offsets: int | None, trouble: Trouble, *, shared: bool) -> int | None:
    """Returns how many offsets the next portion may have, at most `max_offsets`; None: any number."""
    bounds = [max_offsets, trouble.most]
    if trouble.stalled:
        bounds.append(APART_IN_DRIVER_MAX)
    elif shared or trouble.keeps_apart:
        bounds.append(APART_MAX)
    return min((bound for bound in bounds if bound is not None), default=None)


def most_of_a_turn(before: int | None, read: int, seconds: float, *, is_left: bool) -> int | None:
    """Returns how many offsets the next portion may have, after a job has `read` so many in `seconds`; None: any.

    `before`: how many this portion could have. `is_left`: it was not read to its end. One that uses up its time sets
    the number to what it has read; one that takes less than half of it doubles the number. One that has fewer offsets
    than it could have read all that there was, and so nothing is slow any more.
    """
    if is_left:
        return read if read and seconds >= TURN_S else before
    if before is None or read < before:
        return None
    return before if seconds > TURN_S / 2 else before * 2
