from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc

from benchmarks.rows.brokerless import BrokerlessConnector
from benchmarks.rows.steady_load import MINUTE_MS, SteadyLoad
from benchmarks.rows.write_amplification import by_origin
from compactor.model.record import measure
from compactor.storage.base import FileInfo

LOAD = SteadyLoad(records=20, keys=6)


def test_level_0_and_rewritten_files_are_distinguished(tmp_path: Path) -> None:
    """Files that a micro-batch wrote count as level 0, by their names; every other run file as rewritten."""
    connector = BrokerlessConnector(tmp_path, LOAD.partitions, 0)
    for tables in LOAD.tables(1):
        connector.write(tables, 1 << 20, 0)
    found = connector.storage.walk("runs")
    other = FileInfo(path="runs/1-0a1b2c3d-0123456789abcdef.parquet", bytes=7, modified_ms=0)
    assert by_origin([*found, other]) == {"level 0": sum(one.bytes for one in found), "rewritten": 7}


def test_ingested_bytes_are_uncompressed_keys_and_values(tmp_path: Path) -> None:
    """The bytes of the parts are key and value of every record, uncompressed."""
    tables = next(LOAD.tables(1))
    parts = BrokerlessConnector(tmp_path, LOAD.partitions, 0).write(tables, 1 << 20, 0)
    assert sum(part.file.bytes for part in parts) == sum(map(measure, tables)) == LOAD.records * (12 + 100)


def test_a_steady_load_continues_offsets_and_time_and_partitions_by_key() -> None:
    """Each minute continues the offsets of both partitions, within its own minute; no key is in two partitions."""
    minutes = list(LOAD.tables(3))
    for partition in range(LOAD.partitions):
        tables = [tables[partition] for tables in minutes]
        assert [one for table in tables for one in table["offset"].to_pylist()] == list(
            range(3 * LOAD.partition_records)
        )
        assert all(one.startswith(b"%d-" % partition) for table in tables for one in table["key"].to_pylist())
        assert [pc.max(table["timestamp"]).as_py() // MINUTE_MS for table in tables] == [0, 1, 2]


def test_a_micro_batch_is_appended_and_published(tmp_path: Path) -> None:
    """After a micro-batch and its publish each log ends, and is published, at the given end."""
    connector = BrokerlessConnector(tmp_path, LOAD.partitions, 0)
    for number, tables in enumerate(LOAD.tables(2), 1):
        connector.append(
            connector.write(tables, 1 << 20, 0),
            dict.fromkeys(range(LOAD.partitions), number * LOAD.partition_records),
            0,
        )
    connector.publish(0)
    assert [(log.end, log.published, len(log.runs)) for log in connector.catalog.state.logs] == [(20, 20, 2)] * 2
