"""What full folds keep, count and stamp, in each way in which they are done, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from compactor.fold import offset_map
from compactor.runs.reader import read
from compactor.runs.scan import whole
from compactor.settings import CompactionPolicy
from tests.support.brokerless import BrokerlessConnector
from tests.support.engine import row
from tests.support.local_spark import LocalSpark
from tests.support.oracle import fold_methods
from tests.support.oracle.histories import WAYS
from tests.support.oracle.steps import FoldMethod

NewKept = Callable[..., BrokerlessConnector]


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def way(request: pytest.FixtureRequest) -> FoldMethod:
    """How tasks fold; each test is done in every way."""
    return FoldMethod(request.param)


@pytest.fixture
def new_kept(way: FoldMethod, tmp_path: Path) -> Iterator[NewKept]:
    """Makes the kept side of a connector whose folds go this way."""
    with fold_methods.forced(way, local=True):
        yield lambda **settings: BrokerlessConnector(cast("SparkSession", LocalSpark()), tmp_path / "store", **settings)


def horizons(connector: BrokerlessConnector) -> dict[int, int]:
    """The delete horizons of a log's records, by offset."""
    rows = [one for batch in read(connector.storage, whole(connector.log())) for one in batch.to_pylist()]
    return {one["offset"]: one["delete_horizon"] for one in rows if one["delete_horizon"] is not None}


@pytest.mark.parametrize("later", [0, 5_000])
def test_a_changed_retention_moves_no_horizon(new_kept: NewKept, later: int) -> None:
    """Rule 45: a tombstone that is stamped goes at its time, whatever delete.retention.ms is by then."""
    connector = new_kept(policy=CompactionPolicy(delete_retention_ms=100))
    connector.ingest([row(0, 0, b"a", b"1"), row(0, 1, b"a", None)])
    connector.publish()
    connector.cleaner.clean(1_000)
    assert horizons(connector) == {1: 1_100}
    connector.configure(CompactionPolicy(delete_retention_ms=later))
    connector.ingest([row(0, 2, b"b", b"1"), row(0, 3, b"c", None)])
    connector.publish()
    connector.cleaner.clean(1_099)
    assert horizons(connector) == {1: 1_100, 3: 1_099 + later}
    connector.ingest([row(0, 4, b"b", b"2")])
    connector.publish()
    connector.cleaner.clean(1_100)
    assert [offset for offset, _, _ in connector.rows()] == ([4] if later == 0 else [3, 4])


def test_what_a_fold_says_is_exact_to_the_byte(new_kept: NewKept) -> None:
    """Records and bytes below the fold's end before and after it, tombstones left; to the record inside a file."""
    connector = new_kept(policy=CompactionPolicy(delete_retention_ms=0))
    connector.ingest([row(0, 0, b"a", b"12345"), row(0, 1, b"bb", b"1", headers=[{"key": "né", "value": b"xyz"}])])
    connector.ingest(
        [row(0, 2, b"a", None), row(0, 3, b"", b""), row(0, 4, b"bb", b"22"), row(0, 5, b"a", b"a lot of it")]
    )
    connector.publish({0: 4})
    (first,) = connector.cleaner.clean(1_000)
    assert (first.end, first.records_before, first.bytes_before) == (4, 4, 6 + 9 + 1 + 0)
    assert (first.records, first.bytes, first.tombstones) == (3, 9 + 1 + 0, 1)
    connector.publish()
    (second,) = connector.cleaner.clean(2_000)
    assert (second.end, second.records_before, second.bytes_before) == (6, 5, 9 + 1 + 0 + 4 + 12)
    assert (second.records, second.bytes, second.tombstones) == (3, 0 + 4 + 12, 0)


def test_keys_with_one_hash_stay_apart(new_kept: NewKept, way: FoldMethod, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are found by the hashes of their keys, those with one hash are compared byte by byte."""
    keys = [b"", b"\x00", b"\x00\x00", b"a", b"A", b"ab", b"a\x00", b"\xff\xfe"]
    hashed: list[bytes] = []

    def four(found: pa.Array, _logs: pa.Array) -> NDArray[np.uint64]:
        hashed.extend(found.to_pylist())
        return np.array([keys.index(key) % 4 for key in found.to_pylist()], np.uint64)

    monkeypatch.setattr(offset_map, "hashes_of", four)
    connector = new_kept()
    connector.ingest([row(0, at, keys[at % 8], b"%d" % at) for at in range(20)])
    connector.publish()
    connector.cleaner.clean(0)
    assert connector.rows() == [(at, keys[at % 8], b"%d" % at) for at in range(12, 20)]
    assert bool(hashed) is (way is FoldMethod.SPILLED)
