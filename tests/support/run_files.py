"""Writes runs of plain rows to files, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from compactor.model import record
from compactor.model.log import Run, RunFile
from compactor.storage.base import Storage

Row = dict[str, Any]


def run_rows(topic: str, partition: int, first: int, records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Returns `records` as rows of a run, at offsets from `first` on; those without a key are rejected."""
    plain = {"topic": topic, "partition": partition, "timestamp": 1, "timestamp_type": 0, "headers": []}
    return [
        {
            **plain,
            "delete_horizon": None,
            "offset": at,
            "rejected": None if one["key"] is not None else "null key",
            **one,
        }
        for at, one in enumerate(records, start=first)
    ]


def write_run(storage: Storage, rows: Sequence[Row], *, arrived_ms: int = 0, level: int = 0) -> Run:
    """Writes `rows` to a file; returns its run with the counts that the engine would have given it."""
    table = pa.Table.from_pylist(list(rows), schema=record.RUN)
    first, last, size = rows[0]["offset"], rows[-1]["offset"], record.measure(table)
    path = f"runs/1-{rows[0]['topic']}-{rows[0]['partition']}-{first}.parquet"
    with storage.open_output(path) as out:
        pq.write_table(table, out, write_page_checksum=True)
    file = RunFile(path=path, first=first, last=last, records=len(rows), bytes=size, file_bytes=1, sha256="")
    horizons = table["delete_horizon"]
    return Run(
        start=first,
        end=last + 1,
        level=level,
        files=(file,),
        records=len(rows),
        bytes=size,
        tombstones=sum(one["value"] is None for one in rows),
        rejected=sum(one["rejected"] is not None for one in rows),
        max_timestamp=pc.max(table["timestamp"]).as_py(),
        arrived_ms=arrived_ms,
        horizons=len(horizons) - horizons.null_count,
        next_horizon_ms=pc.min(horizons).as_py(),
    )
