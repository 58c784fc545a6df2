"""What the key index costs and answers, without a broker: its bytes, 10,000 keys among 50 million, `keyfold get`."""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.harness.call import call
from benchmarks.harness.datasets import scale
from benchmarks.harness.row import Measurement
from benchmarks.peers.keyfold import write_connector
from benchmarks.rows.brokerless import TOPIC, BrokerlessConnector
from compactor.catalog.catalog import Catalog
from compactor.index.reader import NO_OFFSET
from compactor.index.section import from_text
from compactor.lookup.latest import indexed_offsets, latest_records
from compactor.lookup.records_at import FileOutlines
from compactor.model.record import RUN
from compactor.runs import writer
from compactor.runs.scan import whole
from compactor.runs.writer import RunTarget
from compactor.storage.local import LocalStorage

KEPT: Final = 50_000_000
ASKED: Final = 10_000
"""Keys that are looked up together, half of them kept."""
GET_KEPT: Final = 5_000_000
GETS: Final = 5
"""Runs of `keyfold get`, of which the median counts; one more comes first."""
VALUE_BYTES: Final = 20
FILE_BYTES: Final = 128 << 20
_AT_ONCE: Final = 200_000
_ODD: Final = 0x9E3779B97F4A7C15
"""Numbers times it are other ones each, in no order."""
_DIGITS: Final = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), "S2")
_NAME: Final = "bench"


def keys_of(numbers: NDArray[np.int64]) -> pa.Array:
    """Returns a key of 16 hexadecimal digits for each of `numbers`."""
    mixed = numbers.astype(np.uint64) * np.uint64(_ODD)
    text = _DIGITS[mixed.view(np.uint8)].tobytes()
    ends = np.arange(0, 16 * len(numbers) + 16, 16, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(text)])


def key_index(_bootstrap: str = "") -> dict[str, float]:
    """Measures bytes a key, look-ups of ASKED keys among KEPT, and `keyfold get` of one among GET_KEPT."""
    kept, asked = max(ASKED, round(KEPT * scale())), min(ASKED, round(KEPT * scale()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        built = call("index", build, folder / _NAME, kept)
        _forget(folder)
        by_index = call("offsets by index", look_up, folder / _NAME, kept, asked, with_records=False)
        _forget(folder)
        records = call("records", look_up, folder / _NAME, kept, asked, with_records=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        call("index", build, folder / "storage" / _NAME, max(1, round(GET_KEPT * scale())))
        get = call("keyfold get", get_one, folder)
    names = (("", by_index), ("with records, ", records), ("get, ", get))
    return {**built, **{f"{what}{name}": value for what, values in names for name, value in values.items()}}


def build(folder: Path, kept: int) -> dict[str, float]:
    """Makes a connector in `folder` that keeps `kept` records of a key each, as a full fold writes them."""
    now_ms = time.time_ns() // 1_000_000
    connector, began = BrokerlessConnector(folder, 1, now_ms), time.process_time()
    target = RunTarget(
        storage=connector.storage, prefix=f"{connector.catalog.epoch}-j", max_bytes=FILE_BYTES, is_indexed=True
    )
    parts = list(writer.write(_batches(kept), target, "clean.write"))
    connector.append(parts, {0: kept}, now_ms)
    connector.publish(now_ms)
    (index,) = {from_text(part.file.index or "") for part in parts}
    return {"bytes a key": index.bytes / kept, "written, µs of processor time": _micros(began, kept)}


def _batches(kept: int) -> Iterator[pa.RecordBatch]:
    chance = np.random.default_rng(1)
    for first in range(0, kept, _AT_ONCE):
        numbers = np.arange(first, min(kept, first + _AT_ONCE))
        size = len(numbers)
        ends = np.arange(0, VALUE_BYTES * size + VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
        value = [None, pa.py_buffer(ends), pa.py_buffer(chance.bytes(VALUE_BYTES * size))]
        columns = {
            "topic": pa.repeat(TOPIC, size),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), size),
            "offset": pa.array(numbers),
            "timestamp": pa.array(numbers),
            "timestamp_type": pa.repeat(pa.scalar(0, pa.int32()), size),
            "key": keys_of(numbers),
            "value": pa.Array.from_buffers(pa.binary(), size, value),
        }
        every = [columns.get(field.name, pa.nulls(size, field.type)).cast(field.type) for field in RUN]
        yield pa.RecordBatch.from_arrays(every, schema=RUN)


def look_up(folder: Path, kept: int, asked: int, *, with_records: bool) -> dict[str, float]:
    """Looks up `asked` keys twice, the second time other ones, in a process that has read nothing of `folder`."""
    storage, chance = LocalStorage(str(folder)), np.random.default_rng(2)
    (log,) = Catalog.open(storage, _NAME).state.logs
    outlines, half = FileOutlines(), asked // 2

    def once() -> int:
        keys = keys_of(np.concatenate((chance.integers(0, kept, half), chance.integers(kept, 2 * kept, asked - half))))
        if with_records:
            return int(latest_records(storage, log, keys, outlines).num_rows)
        return int((indexed_offsets(storage, whole(log), keys) != NO_OFFSET).sum())

    values = {**_timed("cold", once, half), **_timed("warm", once, half)}
    return {**values, "MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _timed(name: str, once: Callable[[], int], expected: int) -> dict[str, float]:
    """Returns the seconds and the processor time of `once`. Raises RuntimeError if it does not give most keys."""
    began, used = time.monotonic(), time.process_time()
    given = once()
    seconds, used = time.monotonic() - began, time.process_time() - used
    if not 0.99 * expected <= given <= expected:  # a few keys are asked for twice
        raise RuntimeError(f"{given} of {expected} keys were there")
    return {f"{name}, s": seconds, f"{name}, processor time, s": used}


def get_one(folder: Path) -> dict[str, float]:
    """Runs `keyfold get` on one key of the connector in `folder`, from its start to its end."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "storage.location": str(folder / "storage")}
    (folder / "worker.json").write_text(json.dumps(settings), encoding="utf-8")
    connector, key = write_connector(folder, _NAME, TOPIC), keys_of(np.array([7]))[0].as_py().decode()
    command = [sys.executable, "-m", "connectors.cli.entry", "get", str(connector), key]
    command += ["--worker", str(folder / "worker.json")]
    took, used = [], []
    for _ in range(1 + GETS):
        began, before = time.monotonic(), _children_s()
        answer = subprocess.run(command, capture_output=True, check=True)
        took.append(time.monotonic() - began)
        used.append(_children_s() - before)
        if json.loads(answer.stdout)["offset"] != 7:
            raise RuntimeError(f"the look-up of {key} was answered with {answer.stdout[:200]!r}")
    return {"s": statistics.median(took[1:]), "processor time, s": statistics.median(used[1:])}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _micros(began: float, count: int) -> float:
    return (time.process_time() - began) / count * 1e6


def _forget(folder: Path) -> None:
    """Has the system forget what it holds in memory of the files below `folder`, which are on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


KEY_INDEX: Final = Measurement(
    "key-index",
    f"{ASKED:,} keys, half of them kept, by the index of {KEPT // 1_000_000} million; `keyfold get` of 5 million",
    {
        "bytes a key": (24, 12),
        "cold, s": (3, 1),
        "warm, s": (0.5, 0.25),
        "MiB": (256, 128),
        "get, s": (1, 0.7),
    },
    key_index,
    broker=False,
)
