"""Each table of a database is what DuckDB and Spark read from the Delta and Iceberg tables of its topic, typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.cdc.test_tables import STATED
from tests.support.cdc.encodings import Encoding
from tests.support.cdc.equality import difference
from tests.support.cdc.story import LIMIT_S, Story
from tests.support.cdc.tables import TABLES, Table
from tests.support.lake.elsewhere import run_all_elsewhere

pytestmark = pytest.mark.timeout(6 * LIMIT_S)

_KINDS: Final = ("delta", "iceberg")
_ENCODINGS: Final = ("json", "avro")
_LIMIT_S: Final = 1_800.0
"""How long all reads of an engine may take: Spark's took five minutes beside other work, and once more than ten."""
_DUCKDB: Final = """
import sqlite3, duckdb
duckdb.sql("INSTALL avro; INSTALL delta; INSTALL iceberg; LOAD delta; LOAD iceberg; SET TimeZone = 'UTC'")
newest = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"

def read(kind, connector, topic):
    if kind == "delta":
        return duckdb.sql(f"FROM delta_scan('{connector}/{topic}/delta')")
    name = (connector, topic.replace(".", "_"))
    ((path,),) = sqlite3.connect("iceberg.db").execute(newest, name)
    return duckdb.sql(f"FROM iceberg_scan('{path}')")
"""
_SPARK: Final = """
from pyspark.sql import SparkSession
jars = [
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
]
settings = {
    "spark.master": "local[2]",
    "spark.jars.packages": ",".join(jars),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalog.keyfold": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.keyfold.type": "jdbc",
    "spark.sql.catalog.keyfold.uri": "jdbc:sqlite:iceberg.db",
    "spark.sql.catalog.keyfold.jdbc.schema-version": "V1",
    "spark.sql.catalog.keyfold.warehouse": ".",
}
spark = SparkSession.builder.config(map=settings).getOrCreate()

def read(kind, connector, topic):
    if kind == "delta":
        return spark.read.format("delta").load(f"{connector}/{topic}/delta")
    return spark.table(f"keyfold.`{connector}`.`{topic.replace('.', '_')}`")
"""
_ENGINES: Final = {"DuckDB": _DUCKDB, "Spark": _SPARK}


@pytest.fixture(scope="session")
def lake(story: Story) -> Path:
    """The folder of the tables of both formats, which the end of the story was written to."""
    return story.tables({f"{encoding}-{kind}": (encoding, kind) for encoding in _ENCODINGS for kind in _KINDS})


@pytest.fixture(scope="session", params=_ENGINES)
def read(request: pytest.FixtureRequest, story: Story, lake: Path) -> Mapping[tuple[str, str], pa.Table]:
    """Every table as an engine reads it, by connector and topic; one process reads them all."""
    names = [(f"{each}-{kind}", topic) for each in _ENCODINGS for kind in _KINDS for topic in _topics(story, each)]
    reads = f"orders = {{f'{{c}} {{t}}': read(c.rpartition('-')[2], c, t) for c, t in {names!r}}}\n"
    tables = run_all_elsewhere(_ENGINES[request.param] + reads, lake, _LIMIT_S)
    return {name: tables[" ".join(name)] for name in names}


@pytest.mark.parametrize("encoding", _ENCODINGS)
@pytest.mark.parametrize("kind", _KINDS)
def test_tables_are_equal(read: Mapping[tuple[str, str], pa.Table], kind: str, encoding: str, story: Story) -> None:
    """Every row and column of `SELECT *`, read by their types, for each table that the page calls equal."""
    of = _encoding(story, encoding)
    wrong: dict[str, str] = {}
    for table in _tables(encoding):
        wanted = story.wanted(table)
        rows = list(
            _rows(
                read[f"{encoding}-{kind}", of.topic(table.name)],
                of,
                {column.name: column.type_name for column in wanted.columns},
            )
        )
        result = difference(wanted, of, rows)
        if not result.is_equal:
            wrong[table.name] = str(result)
    assert wrong == {}


def _encoding(story: Story, name: str) -> Encoding:
    (encoding,) = (each for each in story.encodings if each.name == name)
    return encoding


def _tables(encoding: str) -> list[Table]:
    return [table for table in TABLES if STATED[table.name, encoding] == "equal"]


def _topics(story: Story, encoding: str) -> list[str]:
    return [_encoding(story, encoding).topic(table.name) for table in _tables(encoding)]


def _rows(table: pa.Table, encoding: Encoding, types: Mapping[str, str]) -> Iterator[Mapping[str, Any] | None]:
    """Returns rows with the values that Debezium's fields have; a value that fits no column is in `_rest`."""
    numbers = {"date": pa.int32(), "timestamp": pa.int64(), "timestamp_ms": pa.int64(), "timestamptz": pa.int64()}
    for column, type_name in types.items():
        at = table.schema.get_field_index(encoding.field(column))
        if at >= 0 and type_name in numbers and not pa.types.is_string(table.schema.field(at).type):
            whole = table.column(at).cast(numbers[type_name])
            table = table.set_column(at, table.schema.field(at).name, whole)
    for row in table.select([name for name in table.column_names if name not in _NOT_READ]).to_pylist():
        if row.get("_rest") is not None:
            yield encoding.read(row["_rest"])
        else:
            yield {
                **row,
                **{encoding.field(name): _value(row.get(encoding.field(name)), types[name]) for name in types},
            }


_NOT_READ: Final = ("_headers", "_timestamp", "_key")


def _value(value: Any, type_name: str) -> Any:
    if value is None:
        return None
    if type_name == "timestamp_ms":
        return value // 1000
    if type_name == "timestamptz" and isinstance(value, int):
        return _zoned(value)
    if type_name == "time":
        hours, minutes, seconds = value.split(":")
        whole, _, part = seconds.partition(".")
        return (int(hours) * 3600 + int(minutes) * 60 + int(whole)) * 1_000_000 + int(part.ljust(6, "0")[:6])
    return value


def _zoned(micros: int) -> str:
    """Returns the moment as Debezium's ZonedTimestamp."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    return moment.isoformat()
