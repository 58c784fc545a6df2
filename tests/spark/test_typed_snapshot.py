"""Typed snapshots that Spark's tasks write, with a schema registry, and after a process was killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from compactor.clean import compaction
from compactor.clean.rewriter import Rewriter
from compactor.errors import SnapshotError
from compactor.failpoints import VARIABLE
from compactor.model.state import CatalogState, apply
from compactor.settings import CompactionPolicy
from compactor.snapshot import manifest
from compactor.snapshot.manifest import Manifest, SnapshotInputs, Typed, TypedInputs
from compactor.snapshot.partitions import parsed
from compactor.snapshot.write import write_snapshot
from compactor.storage.local import LocalStorage
from connectors.chain.spec import chain_spec
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from tests.support.engine import Row, ingested, log_of, new_state, published, row, target, with_range_reports
from tests.support.served_registry import Registry, served_registry
from tests.support.typed_snapshots import TypedConnector

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]  # test_snapshot.py: typed columns are written by tasks
registry = pytest.fixture(served_registry)
POLICY = CompactionPolicy()
COUNT = 60_000
PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}


def _order(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def _folded(spark: SparkSession, storage: LocalStorage, rows: list[Row]) -> CatalogState:
    ends = {partition: sum(each["partition"] == partition for each in rows) for partition in (0, 1)}
    reports = with_range_reports(rows, {partition: (0, end) for partition, end in ends.items()})
    state = published(ingested(storage, new_state(dict.fromkeys(ends, 0)), [reports]), ends)
    logs = [log_of(state, partition) for partition in ends]
    return apply(state, compaction.clean(Rewriter(spark, storage), logs, target(storage, "1-c"), POLICY, 0))


def _rows(values: list[bytes]) -> list[Row]:
    """Returns a record of each value, in two partitions, by keys in no order."""
    keyed = [row(n % 2, n // 2, b"k%05d" % (n * 7919 % len(values)), value) for n, value in enumerate(values)]
    return sorted(keyed, key=lambda each: each["partition"])


def _read(shelf: LocalStorage, path: str) -> tuple[Manifest, pa.Table]:
    said = manifest.read(shelf, path)
    files = [f"{shelf.location}/{path}/{file.path}" for file in said.files]
    return said, pa.concat_tables([pq.ParquetFile(file).read() for file in files])


def test_tasks_ask_a_registry(spark: SparkSession, storage: LocalStorage, tmp_path: Path, registry: Registry) -> None:
    """Records of two schemas become files that are sorted as a whole; without the registry no file stays."""
    first, second = _order(("n", "int"), ("name", "string")), _order(("n", "long"), ("country", ["null", "string"]))
    values = [
        registry.avro(first, {"n": n, "name": f"{n:040d}"})
        if n % 3
        else registry.avro(second, {"n": n, "country": f"c{n % 2}"})
        for n in range(COUNT)
    ]
    values[7] = b"no avro"
    state, shelf = _folded(spark, storage, _rows(values)), LocalStorage(str(tmp_path / "shelf"))
    types = ValueTypes(side="value", chain=chain_spec(registry.settings()), resolve=resolve)
    typed = TypedInputs(key=None, value=types, metadata=("_key", "_offset"))
    inputs = SnapshotInputs(
        output_starts={0: 0, 1: 0}, resume_safe_ms=None, policy=POLICY, file_bytes=200_000, typed=typed
    )
    taken = write_snapshot(spark, storage, shelf, state, "t", "20261121T023000Z-ab12cd", 0, inputs)
    said, table = _read(shelf, taken.path)
    assert isinstance(said.typed, Typed)
    assert said.typed.unplaced == {"_rest": 1}
    assert table["_key"].to_pylist() == [b"k%05d" % n for n in range(COUNT)]
    assert sorted(n for n in table["n"].to_pylist() if n is not None) == [n for n in range(COUNT) if n != 7]
    assert len(said.files) > 1
    by_country = replace(inputs, typed=replace(typed, partitions=parsed("country")))
    taken = write_snapshot(spark, storage, shelf, state, "t", "20261121T023001Z-ab12cd", 0, by_country)
    folders = {file.path.split("/")[1] for file in manifest.read(shelf, taken.path).files}
    assert folders == {"country=c0", "country=c1", "country=__HIVE_DEFAULT_PARTITION__"}
    registry.memory.always = httpx.Response(503)
    with pytest.raises(SnapshotError, match="for now"):
        write_snapshot(spark, storage, shelf, state, "t", "20261121T023002Z-ab12cd", 0, inputs)
    assert not shelf.exists("c/t/20261121T023002Z-ab12cd/data")


def _connector(folder: Path) -> TypedConnector:
    connector = TypedConnector(folder, PLAIN, partitions=2)
    small = replace(connector.connector.settings, snapshot_file_bytes=100_000)
    connector.set(PLAIN, engine=small, partitions="country")
    return connector


def _take(folder: str, failpoints: str) -> None:
    """Takes a snapshot, in whatever process calls it, that a failpoint kills."""
    connector = _connector(Path(folder))
    os.environ[VARIABLE] = failpoints
    connector.take()


@pytest.mark.parametrize(
    "point",
    ["section", "section@2", "file", "file@3", "write", "manifest", "before-latest"],
)
def test_a_killed_snapshot_is_taken_again(tmp_path: Path, point: str) -> None:
    """SIGKILL after a section or data file, before or after the manifest: the next has each row, and nothing stays."""
    values = [{"n": n, "country": f"c{n % 3}", "text": f"{n * n:040d}"} for n in range(COUNT // 2)]
    _connector(tmp_path).fold(_rows([json.dumps(value).encode() for value in values]))
    arguments = str(tmp_path), f"snapshot.{point}=kill"
    process = multiprocessing.get_context("spawn").Process(target=_take, args=arguments)
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    connector, topic = _connector(tmp_path), tmp_path / "snapshots" / "c" / "t"
    begun = {folder.name for folder in topic.iterdir() if folder.is_dir() and not folder.is_symlink()}
    complete = {name for name in begun if (topic / name / manifest.NAME).exists()}
    assert len(begun) == 1
    assert bool(complete) == (point in ("manifest", "before-latest"))
    taken = connector.take()
    assert sorted(taken.table["n"].to_pylist()) == [*range(len(values))]
    newest = connector.connector.catalog.state.snapshots[-1].id
    assert {path.name for path in topic.iterdir()} == {*complete, newest, "LATEST", "current"}
    assert (topic / "LATEST").read_text().strip() == newest
    assert {path.suffix for path in (topic / newest / "data").rglob("*") if path.is_file()} == {".parquet"}
