"""Histories that once broke a promise, as short as they can be."""

from __future__ import annotations

from typing import Final

from tests.support.oracle import steps
from tests.support.oracle.steps import Advance, Fold, Ingest, Rec, Restart, Round, Settings, Tick, Way

LARGE: Final = b"large enough for the rest to be counted anew"


def once_wrong(way: Way) -> dict[str, list[steps.Any]]:
    """Each by what was wrong, folded in this way."""
    return {
        "a file of two runs is read beyond its own": [
            Restart(Settings(lag=200, way=way)),
            Ingest((Rec(0, b"a", b"so large that what comes next is clean enough", time=-500),)),
            Round(),
            Ingest((Rec(0, b"b", b"1", time=-500), Rec(0, b"c", LARGE))),
            Round(),
            Fold(),
            Advance(500),
            Tick(),
            Fold(),
        ],
        "what an overlap has brought twice is counted anew, and read twice": [
            Restart(Settings(way=way)),
            Ingest((Rec(0, b"a", b"so large that what comes next is clean enough"),)),
            Fold(),
            Ingest((Rec(0, b"b", b"1"), Rec(0, b"c", b"2"))),
            Ingest((Rec(0, b"d", b"so large that it hangs on these bytes whether a fold is due"),), again=2),
            Round(),
        ],
        "an overlapping batch that was counted anew is read from its file's beginning": [
            Restart(Settings(ratio=1.0, max_lag=400, way=way)),
            Ingest(tuple(Rec(0, key, b"1") for key in (b"a", b"b", b"c", b"d"))),
            Ingest(tuple(Rec(0, key, b"2", time=-500) for key in (b"e", b"f", b"g", b"h")), again=2),
            Round(),
            Fold(),
        ],
    }


NAMES: Final = tuple(once_wrong(Way.MEMORY))
