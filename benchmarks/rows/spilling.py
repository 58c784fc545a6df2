"""The last row of every key where keys do not fit into memory: the engine's offset map against libraries' aggregates.

    python -m benchmarks.rows.spilling write FOLDER [--records 50000000] [--keys N] [--mixed]
    python -m benchmarks.rows.spilling run FOLDER {engine,duckdb,polars,arrow} [--limit 384MB] [--threads 1]

`write` makes a data set once, `run` prints what one engine took in a process of its own, as JSON; `rows` is a checksum
of the answer, and the same for all. All but `polars`, which has no such way in, are given the same verified batches.
docs/decisions/0001-keys-that-do-not-fit.md has what came out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from compactor.fold.memory_budget import KEYS
from compactor.fold.offset_map import last_of_keys
from compactor.runs.scan import LOG

_BATCH: Final = 200_000
_FILES: Final = 5
_LENGTHS: Final = (16,) * 16 + (36,) * 3 + (120,)
"""How long keys are with `--mixed`; else as the first."""
_ODD: Final = 1_000
"""Of so many records one is rejected and one has no key."""
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_SCHEMA: Final = pa.schema(
    [pa.field("offset", pa.int64()), pa.field("key", pa.binary()), pa.field("rejected", pa.string())]
)
_NUMBERED: Final = pa.schema([pa.field("key", pa.binary()), pa.field("row", pa.int64())])


def write(folder: Path, records: int, keys: int, lengths: tuple[int, ...]) -> None:
    """Some files of `records` records, of `keys` keys by chance; as many keys as records: each of its own."""
    folder.mkdir(parents=True)
    each = -(-records // _FILES)
    for first in range(0, records, each):
        with pq.ParquetWriter(
            folder / f"{first:012d}.parquet", _SCHEMA, compression="zstd", compression_level=1, write_page_checksum=True
        ) as file:
            for at in range(first, min(first + each, records), _BATCH):
                file.write_batch(
                    _records(np.arange(at, min(at + _BATCH, first + each, records)), records, keys, lengths)
                )


def _records(offsets: NDArray[np.int64], records: int, keys: int, lengths: tuple[int, ...]) -> pa.RecordBatch:
    chance = _mixed(offsets + records)
    which = offsets if keys == records else (chance >> np.uint64(8)).astype(np.int64) % keys
    rejected = chance % _ODD == 1
    keyless = rejected | (chance % _ODD == 2)
    found = _keys(which, ~keyless, lengths)
    odd = pc.if_else(pa.array(rejected), "odd", pa.scalar(None, pa.string()))
    return pa.RecordBatch.from_arrays([pa.array(offsets), found, odd], schema=_SCHEMA)


def _keys(which: NDArray[np.int64], there: NDArray[np.bool_], lengths: tuple[int, ...]) -> pa.Array:
    """Keys that end in 16 digits, which look like chance."""
    ends = np.cumsum(np.where(there, np.array(lengths)[which % len(lengths)], 0), dtype=np.int32)
    data = np.full(ends[-1], ord("-"), np.uint8)
    of_words = _mixed(which[there] + 1).byteswap().view(np.uint8).reshape(-1, 8)
    digits = _HEX[np.stack((of_words >> 4, of_words & 15), axis=2).reshape(-1, 16)]
    data[ends[there][:, None] + np.arange(-16, 0)] = digits
    buffers = (np.packbits(there, bitorder="little"), np.append(np.int32(0), ends), data)
    return pa.Array.from_buffers(pa.binary(), len(which), [pa.py_buffer(one) for one in buffers])


def _mixed(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """What splitmix64 makes of `numbers`: different ones stay different."""
    found = numbers.astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    return found ^ (found >> np.uint64(31))


class _Source:
    """The batches of a data set, checked page by page as the engine does; `rejected` are the offsets of those."""

    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.parquet"))
        self.rejected: list[NDArray[np.int64]] = []

    def batches(self) -> Iterator[pa.RecordBatch]:
        for path in self.files:
            with pq.ParquetFile(path, page_checksum_verification=True) as opened:
                for group in range(opened.num_row_groups):
                    yield from opened.read_row_group(group).to_batches()

    def keyed(self) -> Iterator[pa.RecordBatch]:
        """Key and row of all that were not rejected. Offsets are rows here."""
        for batch in self.batches():
            odd = pc.is_valid(batch["rejected"])
            self.rejected.append(batch["offset"].filter(odd).to_numpy())
            kept = batch.filter(pc.invert(odd))
            yield pa.RecordBatch.from_arrays([kept["key"], kept["offset"]], schema=_NUMBERED)


def _engine(source: _Source, _args: argparse.Namespace) -> pa.Array:
    logs = (batch.append_column(LOG, pa.array(np.zeros(len(batch), np.int32))) for batch in source.batches())
    found = last_of_keys(logs, KEYS)
    if found is None:
        raise MemoryError
    return found


def _duckdb(source: _Source, args: argparse.Namespace) -> pa.Array:
    import duckdb

    limits: dict[str, Any] = {"memory_limit": args.limit, "threads": args.threads, "preserve_insertion_order": "false"}
    with tempfile.TemporaryDirectory() as place, duckdb.connect(config={**limits, "temp_directory": place}) as own:
        own.execute("SET enable_progress_bar = false")
        own.register("source", pa.RecordBatchReader.from_batches(_NUMBERED, source.keyed()))
        found = own.sql("SELECT max(row) FROM source GROUP BY key").to_arrow_reader(_BATCH)
        return _bits((batch[0].to_numpy() for batch in found), source)


def _polars(source: _Source, _args: argparse.Namespace) -> pa.Array:
    import polars as pl

    scan = pl.scan_parquet(source.files)
    last = scan.filter(pl.col("rejected").is_null()).group_by("key").agg(pl.col("offset").max()).select("offset")
    odd = scan.filter(pl.col("rejected").is_not_null()).select("offset")
    return _bits((one.collect(engine="streaming")["offset"].to_numpy() for one in (last, odd)), source)


def _arrow(source: _Source, _args: argparse.Namespace) -> pa.Array:
    table = pa.Table.from_batches(source.keyed(), _NUMBERED)
    last = table.group_by("key", use_threads=False).aggregate([("row", "max")])["row_max"]
    return _bits([last.to_numpy()], source)


def _bits(rows: Iterable[NDArray[np.int64]], source: _Source) -> pa.Array:
    """A bit of every record: of `rows`, and of the rejected, which are known once the first of them are."""
    found = np.zeros(sum(pq.read_metadata(path).num_rows for path in source.files), np.bool_)
    for some in rows:
        found[some] = True
    for some in source.rejected:
        found[some] = True
    return pa.array(found)


_ENGINES: Final[dict[str, Callable[[_Source, argparse.Namespace], pa.Array]]] = {
    "engine": _engine,
    "duckdb": _duckdb,
    "polars": _polars,
    "arrow": _arrow,
}


def run(args: argparse.Namespace) -> dict[str, Any]:
    """What one engine took: seconds, of the processor too, the most memory, bytes written."""
    began = time.monotonic()
    found = _ENGINES[args.engine](_Source(args.folder), args)
    used = resource.getrusage(resource.RUSAGE_SELF)
    written = dict(line.split(": ") for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines())["wchar"]
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processor": round(used.ru_utime + used.ru_stime, 1),
        "MiB": used.ru_maxrss >> 10,
        "written MB": int(written) // 1_000_000,
        "kept": found.true_count,
        "rows": zlib.crc32(np.packbits(found.to_numpy(zero_copy_only=False)).tobytes()),
    }


def main() -> None:
    """Writes or runs, as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("engine", nargs="?", choices=_ENGINES, default="engine")
    parser.add_argument("--records", type=int, default=50_000_000)
    parser.add_argument("--keys", type=int, help="as many as records, if it is not given")
    parser.add_argument("--mixed", action="store_true", help="keys of up to 120 bytes")
    parser.add_argument("--limit", default="384MB", help="DuckDB's memory_limit")
    parser.add_argument("--threads", type=int, default=1, help="DuckDB's")
    args = parser.parse_args()
    if args.what == "write":
        write(args.folder, args.records, args.keys or args.records, _LENGTHS if args.mixed else _LENGTHS[:1])
    else:
        print(json.dumps({"engine": args.engine, **run(args)}), flush=True)
        os._exit(0)  # what libraries tidy up at the end is not measured


if __name__ == "__main__":
    main()
