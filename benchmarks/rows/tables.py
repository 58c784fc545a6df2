"""What a table costs (`snapshot.table`), without a broker: all rows, and one in a hundred that have changed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.harness.datasets import scale
from benchmarks.harness.row import Measurement
from compactor.ports import TableVersion
from compactor.storage.local import LocalStorage
from connectors.config.connector import ConnectorConfig
from connectors.runtime.open_tables import tables_of
from connectors.tables.topic_tables import TopicTables

ROWS: Final = 5_000_000
FILE_ROWS: Final = 2_500_000
GROUP_ROWS: Final = 500_000
_STATES: Final = np.array(["new", "paid", "sent"])


def table_commits(_bootstrap: str = "", rows: int = ROWS, kind: str = "delta") -> dict[str, float]:
    """Measures commits of all rows, of neighbouring keys, and of keys at random, and `COPY … TO` of DuckDB."""
    count, chance = max(1_000, round(rows * scale())), np.random.default_rng(1)
    changed = count // 100
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        offsets, totals = chance.permutation(count), chance.random(count)
        whole, tables = _written(folder, "whole", offsets, totals), _tables(folder, kind)
        values = {
            **_timed("COPY", partial(_copy, folder, "whole")),
            **_timed("whole", partial(tables.commit, whole)),
        }
        chosen = {
            "neighbouring keys": np.arange(count // 3, count // 3 + changed),
            "keys at random": chance.choice(count, changed, replace=False),
        }
        for number, (name, own) in enumerate(chosen.items(), start=1):
            offsets[own], totals[own] = count * number + np.arange(changed), -1.0
            version = _written(folder, name, offsets, totals)
            values |= _timed(f"1 % of {name}", partial(tables.commit, version))
        return {**values, "whole over COPY": values["whole, s"] / values["COPY, s"]}


def _timed(name: str, work: Callable[[], object]) -> dict[str, float]:
    began, used = time.monotonic(), time.process_time()
    work()
    return {
        f"{name}, s": time.monotonic() - began,
        f"{name}, processor time, s": time.process_time() - used,
    }


def _copy(folder: Path, name: str) -> None:
    files, target = f"{folder}/c/t/{name}/*.parquet", f"{folder}/copy.parquet"
    duckdb.execute(f"COPY (SELECT * FROM '{files}') TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


def _tables(folder: Path, kind: str) -> TopicTables:
    given = {
        "name": "c",
        "connector.class": "keyfold.CompactedTopic",
        "topics": "t",
        "snapshot.location": str(folder),
        "snapshot.table": kind,
    }
    tables = tables_of(ConnectorConfig.model_validate(given), LocalStorage(str(folder)), lambda: False, "")
    assert tables is not None
    return tables


def _written(folder: Path, name: str, offsets: NDArray[np.int64], totals: NDArray[np.float64]) -> TableVersion:
    """Writes the files of a snapshot, sorted by key."""
    count = len(offsets)
    ids = np.arange(count)
    rows = pa.table(
        {
            "status": pa.array(_STATES[ids % 3]),
            "total": pa.array(totals),
            "customer": pa.array(ids * 7919 % 100_003),
            "_key": pa.array(np.char.zfill(ids.astype(str), 12)).cast(pa.binary()),
            "_partition": pa.array(np.zeros(count, np.int32)),
            "_offset": pa.array(offsets),
        }
    )
    place = folder / "c" / "t" / name
    place.mkdir(parents=True)
    starts = range(0, count, FILE_ROWS)
    for number, start in enumerate(starts):
        part = rows.slice(start, FILE_ROWS)
        pq.write_table(part, place / f"{number}.parquet", row_group_size=GROUP_ROWS, compression="zstd")
    return TableVersion(
        connector="c",
        catalog_id="bench",
        epoch=1,
        topic="t",
        snapshot=name,
        appends=False,
        settings="",
        source_offsets={"0": int(offsets.max()) + 1},
        output_offsets={},
        generations={},
        folder=LocalStorage(str(place)),
        files=[f"{number}.parquet" for number in range(len(starts))],
    )


_BARS: Final = {
    "whole over COPY": (1.5, 1.2),
    "1 % of neighbouring keys, s": (3, 2),
    "1 % of keys at random, s": (3, 2),
}
TABLE: Final = Measurement(
    "table",
    f"commits of a Delta table of {ROWS:,} rows, and `COPY … TO` of DuckDB of the same files",
    _BARS,
    table_commits,
    broker=False,
)
TABLE_ICEBERG: Final = Measurement(
    "table-iceberg",
    f"commits of an Iceberg table of {ROWS:,} rows, and `COPY … TO` of DuckDB of the same files",
    _BARS,
    partial(table_commits, kind="iceberg"),
    broker=False,
)
