from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compactor.fold import on_spark as fold
from compactor.runs.scan import between
from compactor.storage.local import LocalStorage
from tests.support.engine import ingested, log_of, new_state, row, with_range_reports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = (b"1001", b"1002", b"1003", b"1002", b"1001", b"1001")
"""The keys at offsets 1 to 6; 1 to 3 are the tail, 4 to 6 the head."""


@pytest.mark.parametrize(
    ("start", "offsets"),
    [(4, {b"1002": 4, b"1001": 6}), (1, {b"1003": 3, b"1002": 4, b"1001": 6})],
    ids=["head", "head and tail"],
)
def test_the_folds_offset_map(spark: SparkSession, tmp_path: Path, start: int, offsets: dict[bytes, int]) -> None:
    """The documentation's worked example: the head's offset map is {1002: 4, 1001: 6}; of all, 3, 4 and 6 remain."""
    storage = LocalStorage(str(tmp_path))
    rows = [row(0, offset, key, b"v%d" % offset) for offset, key in enumerate(KEYS, 1)]
    state = ingested(storage, new_state({0: 1}), [with_range_reports(rows, {0: (1, 7)})])
    folded = fold.survivors(fold.scan(spark, storage, [between(log_of(state), start, 7)]))
    found = folded.select("key", "offset").orderBy("offset").collect()
    assert [(bytes(one.key), one.offset) for one in found] == list(offsets.items())
