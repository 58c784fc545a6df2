"""Shortest histories that once broke a promise."""

from __future__ import annotations

from typing import Final

from tests.support.oracle import steps
from tests.support.oracle.steps import (
    Advance,
    AnyCase,
    Fold,
    FoldMethod,
    Ingest,
    OfTopics,
    Rebuild,
    Restart,
    Round,
    Settings,
    Snapshot,
    SourceRecord,
    Tick,
)

LARGE: Final = b"large enough for the rest to be counted anew"


def regressions(fold_method: FoldMethod) -> dict[str, list[steps.AnyStep]]:
    """Returns the histories by what was wrong, with this fold method."""
    return {
        "a file of two runs is read beyond its own": [
            Restart(Settings(lag=200, fold_method=fold_method)),
            Ingest((SourceRecord(0, b"a", b"so large that what comes next is clean enough", time=-500),)),
            Round(),
            Ingest((SourceRecord(0, b"b", b"1", time=-500), SourceRecord(0, b"c", LARGE))),
            Round(),
            Fold(),
            Advance(500),
            Tick(),
            Fold(),
        ],
        "what an overlap has brought twice is counted anew, and read twice": [
            Restart(Settings(fold_method=fold_method)),
            Ingest((SourceRecord(0, b"a", b"so large that what comes next is clean enough"),)),
            Fold(),
            Ingest((SourceRecord(0, b"b", b"1"), SourceRecord(0, b"c", b"2"))),
            Ingest((SourceRecord(0, b"d", b"so large that it hangs on these bytes whether a fold is due"),), again=2),
            Round(),
        ],
        "an overlapping batch that was counted anew is read from its file's beginning": [
            Restart(Settings(ratio=1.0, max_lag=400, fold_method=fold_method)),
            Ingest(tuple(SourceRecord(0, key, b"1") for key in (b"a", b"b", b"c", b"d"))),
            Ingest(tuple(SourceRecord(0, key, b"2", time=-500) for key in (b"e", b"f", b"g", b"h")), again=2),
            Round(),
            Fold(),
        ],
        "a rebuilt log has a tombstone that the lost one had dropped, and another log's late record is held for live": [
            OfTopics(),
            Restart(Settings(delete_retention=0, fold_method=fold_method)),
            Ingest((SourceRecord(3, b"b", None),)),
            Fold(),
            Fold(),
            Rebuild(),
            Ingest((SourceRecord(4, b"b", b"2", time=-2000),)),
        ],
        "a tombstone that the lost catalog had dropped takes a key from snapshots that lives in other bytes": [
            AnyCase(),
            OfTopics(),
            Restart(Settings(delete_retention=0, fold_method=fold_method)),
            Ingest((SourceRecord(3, b"b", None),)),
            Fold(),
            Fold(),
            Ingest((SourceRecord(4, b"B", b"2", time=-2000),)),
            Rebuild(),
            Fold(),
            Snapshot(),
        ],
    }


NAMES: Final = tuple(regressions(FoldMethod.MEMORY))
