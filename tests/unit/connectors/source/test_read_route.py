"""Where a portion is read, as a table."""

from __future__ import annotations

import pytest

from connectors.source import read_route
from connectors.source.read_route import (
    APART_IN_DRIVER_MAX,
    APART_MAX,
    DRIVER_READ_MAX,
    SHARED_MAX,
    TURN_S,
    Route,
    Trouble,
)

SOUND = Trouble()
UNREAD = Trouble(unread=True)
STALLED = Trouble(unread=True, stalled=True)
SUSPECT = Trouble(suspect=True)
SLOW = Trouble(unread=True, most=700)
STALLED_SUSPECT = Trouble(unread=True, stalled=True, suspect=True)
SMALL, LARGE = APART_IN_DRIVER_MAX, APART_IN_DRIVER_MAX + 1


@pytest.mark.parametrize(
    ("size", "trouble", "shared", "late", "route"),
    [
        (1, SOUND, True, False, Route.MICRO_BATCH),
        (SHARED_MAX, SOUND, True, False, Route.MICRO_BATCH),
        (SHARED_MAX + 1, SOUND, True, False, Route.LARGE_JOB),
        (SHARED_MAX + 1, SOUND, False, False, Route.MICRO_BATCH),
        (SMALL, SOUND, True, True, Route.DRIVER),
        (LARGE, SOUND, True, True, Route.LARGE_JOB),
        (SMALL, UNREAD, True, False, Route.DRIVER),
        (LARGE, UNREAD, True, False, Route.LARGE_JOB),
        (LARGE, UNREAD, False, False, Route.LARGE_JOB),
        (SMALL, SLOW, True, False, Route.LARGE_JOB),
        (SMALL, Trouble(most=700), False, False, Route.LARGE_JOB),
        (SMALL, STALLED, True, False, Route.DRIVER),
        (LARGE, STALLED, True, False, Route.DRIVER),
        (SMALL, SUSPECT, True, False, Route.JOB),
        (SMALL, SUSPECT, False, False, Route.JOB),
        (LARGE, SUSPECT, True, False, Route.LARGE_JOB),
        (SMALL, STALLED_SUSPECT, True, False, Route.JOB),
        (LARGE, STALLED_SUSPECT, True, False, Route.JOB),
    ],
)
def test_the_route_of_a_portion(size: int, trouble: Trouble, shared: bool, late: bool, route: Route) -> None:
    """Others wait for a micro-batch: what is large or late, or follows trouble, is no part of it."""
    assert read_route.of_portion(size, trouble, shared=shared, late=late) is route


@pytest.mark.parametrize(
    ("size", "trouble", "shared", "route"),
    [
        (1, SOUND, False, Route.DRIVER),
        (DRIVER_READ_MAX, SOUND, False, Route.DRIVER),
        (DRIVER_READ_MAX + 1, SOUND, False, Route.MICRO_BATCH),
        (1, SOUND, True, Route.MICRO_BATCH),
        (1, SUSPECT, False, Route.JOB),
    ],
)
def test_what_is_small_does_not_wait_for_the_first_micro_batch(
    size: int, trouble: Trouble, shared: bool, route: Route
) -> None:
    """The driver reads it apart, for the only connector; after trouble the route is the one that trouble asks for."""
    assert read_route.of_portion(size, trouble, shared=shared, late=False, starts=True) is route


@pytest.mark.parametrize(("offsets", "in_driver"), [(1, True), (DRIVER_READ_MAX, True), (DRIVER_READ_MAX + 1, False)])
def test_a_small_micro_batch_is_read_in_the_driver(offsets: int, in_driver: bool) -> None:
    """By the offsets of all of its portions together: a Spark job costs more than to read so few."""
    assert read_route.is_read_in_driver(offsets) is in_driver


@pytest.mark.parametrize(
    ("max_offsets", "trouble", "shared", "most"),
    [
        (None, SOUND, False, None),
        (None, SOUND, True, APART_MAX),
        (None, UNREAD, False, APART_MAX),
        (None, SUSPECT, False, APART_MAX),
        (None, STALLED, False, APART_IN_DRIVER_MAX),
        (None, STALLED_SUSPECT, True, APART_IN_DRIVER_MAX),
        (None, SLOW, False, 700),
        (7, SLOW, True, 7),
        (7, SOUND, False, 7),
        (7, SOUND, True, 7),
        (7, STALLED, True, 7),
        (2 * APART_MAX, SOUND, False, 2 * APART_MAX),
        (2 * APART_MAX, SOUND, True, APART_MAX),
        (2 * APART_MAX, STALLED, True, APART_IN_DRIVER_MAX),
    ],
)
def test_the_most_offsets_of_a_portion(max_offsets: int | None, trouble: Trouble, shared: bool, most: int) -> None:
    """`max.offsets.per.trigger` is never exceeded; a turn that others wait for is bounded, and a search is small."""
    assert read_route.most_offsets(max_offsets, trouble, shared=shared) == most


@pytest.mark.parametrize(
    ("before", "read", "seconds", "is_left", "most"),
    [
        (None, 700, TURN_S, True, 700),  # its time was over
        (9_000, 700, 2 * TURN_S, True, 700),
        (None, 0, TURN_S, True, None),  # nothing is known of its speed
        (9_000, 0, TURN_S, True, 9_000),
        (None, 700, 1.0, True, None),  # it has ended early for another reason
        (9_000, 700, 1.0, True, 9_000),
        (None, 700, 1.0, False, None),
        (700, 700, 1.0, False, 1_400),
        (700, 701, TURN_S / 2, False, 1_400),  # a partition of a portion has at least one offset
        (700, 700, TURN_S / 2 + 1, False, 700),  # twice as many would be too many
        (700, 699, 1.0, False, None),  # nothing is left
    ],
)
def test_what_a_turn_suffices_for(before: int | None, read: int, seconds: float, is_left: bool, most: int) -> None:
    """A slow connector's next job ends within its turn; a quick one's has all that there is again, step by step."""
    assert read_route.most_of_a_turn(before, read, seconds, is_left=is_left) == most
