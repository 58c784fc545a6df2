"""Columns of plain JSON that a file gives (`snapshot.schema.file`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compactor.snapshot.manifest import Typed
from connectors.config.connector import ConnectorConfig
from connectors.errors import ConfigError, DataError
from connectors.runtime.components import typed_of
from connectors.typed.given_columns import LONGEST, columns_of, columns_text
from connectors.typed.written_again import TypedRowWriter
from tests.support.engine import row
from tests.support.typed_snapshots import Taken, TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
CONFIG = {
    **PLAIN,
    "name": "c",
    "connector.class": "CompactedTopic",
    "topics": "t",
    "snapshot.location": "s",
}


def _record(**fields: Any) -> bytes:
    named = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": named}).encode()


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


ORDERS = _record(
    id="int",
    total=_logical("bytes", "decimal", precision=8, scale=2),
    day=["null", _logical("int", "date")],
    at=_logical("long", "timestamp-micros"),
    wall=_logical("long", "local-timestamp-millis"),
    time=_logical("int", "time-millis"),
    rate="float",
    tags={"type": "map", "values": {"type": "array", "items": "string"}},
)


def _file(folder: Path, text: bytes) -> Path:
    path = folder / "orders.avsc"
    path.write_bytes(text)
    return path


def _taken(folder: Path, schema: bytes, values: Sequence[Any]) -> Taken:
    connector = TypedConnector(folder, PLAIN, metadata=["_key", "_partition", "_offset", "_timestamp"])
    connector.set(PLAIN, given=columns_text(_file(folder, schema)))
    connector.fold([row(0, n, b"k%02d" % n, json.dumps(value).encode()) for n, value in enumerate(values)])
    return connector.take()


def test_a_given_schema_says_the_columns(tmp_path: Path) -> None:
    """Each field has the column of its type: texts of ISO 8601 and Avro's numbers are times, texts are decimals."""
    taken = _taken(
        tmp_path,
        ORDERS,
        [
            {"id": 1, "total": "12.50", "day": "2026-11-27", "at": "2026-11-27T10:00:00+02:00", "time": "01:02:03.004"},
            {"id": 2, "total": 3, "day": 20_000, "at": 1_000_001, "wall": "2026-11-27 10:00", "time": 1},
            {"id": 3, "total": 0.1, "rate": 2, "tags": {"a": ["x"], "b": []}},
        ],
    )
    shown = taken.table.select(["id", "total", "day", "at", "wall", "time", "rate"]).to_pylist()
    assert [str(kind) for kind in taken.table.schema.types[:7]] == [
        "int32", "decimal128(8, 2)", "date32[day]", "timestamp[us, tz=UTC]", "timestamp[ms]", "time32[ms]", "float",
    ]  # fmt: skip
    assert [" ".join(map(str, each.values())) for each in shown] == [
        "1 12.50 2026-11-27 2026-11-27 08:00:00+00:00 None 01:02:03.004000 None",
        "2 3.00 2024-10-04 1970-01-01 00:00:01.000001+00:00 2026-11-27 10:00:00 00:00:00.001000 None",
        "3 0.10 None None None None 2.0",
    ]
    assert taken.table["tags"].to_pylist()[2] == [("a", ["x"]), ("b", [])]


def test_what_does_not_fit_is_in_rest(tmp_path: Path) -> None:
    """A number beyond its column, a text that is no time, a field without a column: the record is whole in `_rest`."""
    misfits: list[Any] = [
        {"id": 2**31}, {"id": 1.5}, {"id": True}, {"total": "1.234"}, {"total": "1e-999999999"}, {"total": "NaN"},
        {"total": "1234567.00"}, {"day": "27.11.2026"}, {"day": ""}, {"day": True}, {"at": "2026-11-27T10:00:00"},
        {"at": "2" * 5_000}, {"time": "25:00"}, {"time": 86_400_000}, {"rate": 1e39}, {"tags": [1]}, {"other": 1}, [1],
    ]  # fmt: skip
    taken = _taken(tmp_path, ORDERS, [{"id": 7}, *misfits])
    assert taken.table["id"].to_pylist() == [7, *[None] * len(misfits)]
    assert taken.table["_rest"].to_pylist() == [None, *(json.dumps(value).encode() for value in misfits)]
    assert isinstance(taken.manifest.typed, Typed)
    assert taken.manifest.typed.unplaced == {"_rest": len(misfits)}


def test_rows_of_a_given_schema_are_written_again(tmp_path: Path) -> None:
    """What plain JSON is written of the rows, as by `keyfold restore`, has the same rows under the same schema."""
    value = {"id": 1, "total": "-12.50", "day": "2026-11-27", "at": "2026-11-27T10:00:00.000001Z", "time": 5}
    taken = _taken(tmp_path / "a", ORDERS, [value])
    typed = taken.manifest.typed
    assert isinstance(typed, Typed)
    writer = TypedRowWriter(taken.table.schema, typed, {}, "again", appends=False)
    written = writer.records(taken.table.combine_chunks().to_batches()[0])
    again = _taken(tmp_path / "b", ORDERS, [json.loads(data) for data in written["value"].to_pylist()])
    columns = ["id", "total", "day", "at", "time", "_rest"]
    assert again.table.select(columns).to_pylist() == taken.table.select(columns).to_pylist()


def test_another_schema_makes_another_snapshot(tmp_path: Path) -> None:
    """A snapshot with other columns is no repetition; without a file the next one begins with these columns."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold([row(0, 0, b"k", b'{"id": 1}')])
    connector.take()
    connector.set(PLAIN, given=columns_text(_file(tmp_path, _record(id="int", more="string"))))
    assert connector.take(again=False).table.column_names[:2] == ["id", "more"]
    connector.set(PLAIN)
    kept = connector.take().table.schema
    assert [(name, kept.field(name).type) for name in kept.names[:2]] == [("id", pa.int32()), ("more", pa.string())]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (b"{", "no Avro schema"),
        (b'"string"', "no record"),
        (_record(), "no record"),
        (_record(a="bytes"), "a: JSON has no bytes"),
        (_record(a={"type": "array", "items": ["int", "string"]}), "a.element: JSON has no union"),
        (_record(a="Order"), "Order contains itself"),
        (_record(**{f"f{number}": "int" for number in range(5_001)}), "more than 5000 columns"),
    ],
    ids=["no-json", "text", "empty", "bytes", "union", "endless", "columns"],
)
def test_a_schema_that_gives_no_columns_is_refused(schema: bytes, why: str) -> None:
    """What is no Avro schema of a record, is too large, or has types that JSON lacks, says why."""
    with pytest.raises(DataError) as raised:
        columns_of(schema)
    assert why in str(raised.value)


def test_the_file_of_a_connector_is_read(tmp_path: Path) -> None:
    """`snapshot.schema.file` is checked with the connector file, and gives the columns of values when that starts."""
    path = _file(tmp_path, _record(id="int"))
    config = ConnectorConfig.model_validate({**CONFIG, "snapshot.schema.file": str(path)})
    typed = typed_of(config, config.chain_spec())
    assert typed is not None
    assert typed.value is not None
    assert not typed.value.needs_survey
    path.write_bytes(b"{")
    with pytest.raises(ConfigError, match="Mend the file"):
        typed_of(config, config.chain_spec())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"snapshot.value.format": "bytes"}, "no effect with snapshot.value.format=bytes"),
        ({"value.converter.schemas.enable": "true"}, "keyfold.Json with schemas.enable=false alone"),
        ({"value.converter": "keyfold.String"}, "keyfold.Json with schemas.enable=false alone"),
        ({"snapshot.location": "none"}, "no effect without snapshot.location"),
        ({"snapshot.schema.file": "/dev/zero"}, "no regular file"),
        ({"snapshot.schema.file": "/nowhere/x.avsc"}, "cannot be read: No such file"),
        ({"snapshot.partition.by": "id, day(_timestamp), ID2"}, 'names ID2, and ".*orders.avsc" has no such field'),
        ({"snapshot.partition.by": "day(id)"}, "that column is of type int32"),
    ],
)
def test_a_file_without_effect_is_refused(tmp_path: Path, change: dict[str, str], why: str) -> None:
    """The file needs plain JSON and typed snapshots, and has to be a small regular file."""
    given = {**CONFIG, "snapshot.schema.file": str(_file(tmp_path, _record(id="int"))), **change}
    if change.get("value.converter") == "keyfold.String":
        del given["value.converter.schemas.enable"]
    with pytest.raises(ConfigError, match=why):
        ConnectorConfig.model_validate(given)


def test_a_large_file_is_refused(tmp_path: Path) -> None:
    """A file is not read beyond its limit."""
    with pytest.raises(DataError, match="more than 1 MiB"):
        columns_text(_file(tmp_path, b" " * (LONGEST + 1)))
