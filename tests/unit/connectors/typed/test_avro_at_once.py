"""Records of Avro that are read at once become what each of them becomes by itself."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from compactor.model.record import HEADERS
from connectors.chain.spec import chain_spec
from connectors.converters.avro.column_values import Build, column_reader
from connectors.converters.avro.columns import AvroBytes, Places
from connectors.data.schema import STRING
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from tests.support.memory.schema_registry import MemoryRegistry, served

FIXED = {"type": "fixed", "name": "F", "size": 3}
INNER = {
    "type": "record",
    "name": "Inner",
    "fields": [{"name": "x", "type": "long"}, {"name": "text", "type": ["string", "null"]}],
}
CENTS = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
KINDS: dict[str, Any] = {
    "flag": "boolean",
    "small": "int",
    "large": "long",
    "float": "float",
    "double": "double",
    "data": "bytes",
    "text": "string",
    "enum": {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]},
    "fixed": FIXED,
    "maybe": ["null", "string"],
    "last": ["long", "null"],
    "inner": INNER,
    "other": ["null", "Inner"],
    "cents": ["null", CENTS],
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "int", "logicalType": "time-millis"},
    "moment": {"type": "long", "logicalType": "timestamp-micros"},
    "ms": {"type": "long", "logicalType": "timestamp-millis"},
    "again": ["null", "F"],
}
SCHEMA = {
    "type": "record",
    "name": "Row",
    "namespace": "n",
    "fields": [{"name": name, "type": kind} for name, kind in KINDS.items()],
}
UNSCALED = {
    **SCHEMA,
    "fields": [{"name": name, "type": kind} for name, kind in {**KINDS, "cents": ["null", "bytes"]}.items()],
}
"""The same bytes, for a writer that is given unscaled values."""


@pytest.fixture
def registry() -> Iterator[tuple[MemoryRegistry, str]]:
    memory = MemoryRegistry()
    with served(memory) as url:
        yield memory, url


def _row(chance: random.Random) -> dict[str, Any]:
    def whole(bits: int) -> int:
        return chance.getrandbits(chance.randrange(bits)) * chance.choice([1, -1])

    text = chance.choice(["", "a", "äöü", "x" * 200, "€"])
    inner = {"x": whole(63), "text": chance.choice([None, text])}
    return {
        "flag": chance.random() < 0.5, "small": whole(31), "large": whole(63), "float": chance.randrange(99) / 4,
        "double": chance.random(), "data": chance.randbytes(chance.randrange(5)), "text": text,
        "enum": chance.choice("ABC"), "fixed": chance.randbytes(3), "maybe": chance.choice([None, text]),
        "last": chance.choice([None, whole(63)]), "inner": inner, "other": chance.choice([None, inner]),
        "cents": chance.choice([None, chance.randbytes(chance.randrange(1, 3))]), "day": whole(20),
        "time": chance.randrange(86_400_000), "moment": whole(60), "ms": whole(50),
        "again": chance.choice([None, b"abc"]),
    }  # fmt: skip


def _changed(chance: random.Random, data: bytes) -> bytes:
    """Returns `data` cut off, with a byte that is another, or with more after it."""
    at = chance.randrange(5, len(data))
    return chance.choice([data[:at], data + b"\x01", data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]])


def _shown(columns: pa.StructArray) -> dict[str, str]:
    """Returns each column as a text, in which NaN is NaN; times as numbers, as Python has no year 10,000."""
    names = [field.name for field in columns.type]
    arrays = [
        array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
        if pa.types.is_temporal(array.type)
        else array
        for array in columns.flatten()
    ]
    return {name: repr(array.to_pylist()) for name, array in zip(names, arrays, strict=True)}


@pytest.mark.parametrize("seed", range(3))
def test_records_at_once_are_records_by_themselves(registry: tuple[MemoryRegistry, str], seed: int) -> None:
    """Whatever their values, and however some of them are damaged: the same columns, and the same ones in none."""
    memory, url = registry
    chance = random.Random(seed)
    head = b"\0" + memory.add(SCHEMA).to_bytes(4, "big")
    values, parsed = list[bytes | None](), fastavro.parse_schema(UNSCALED)
    for _ in range(300):
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, _row(chance))
        values.append(head + written.getvalue())
    whole = len(values)
    values += [_changed(chance, chance.choice(values[:whole]) or b"") for _ in range(20)]
    values = [None, *values[:whole], b"", head, *values[whole:]]
    settings = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": url}
    types = ValueTypes(side="value", chain=chain_spec(settings), resolve=resolve)
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "headers": pa.array([[]] * len(values), HEADERS)})
    survey = types.survey()
    survey.add(batch)
    layout = types.layout(survey.kinds(), None, [])
    decoder = types.decoder(layout)
    columns, unplaced = decoder.decode(batch)
    columns.validate(full=True)
    alone = [decoder.decode(batch.slice(row, 1)) for row in range(len(values))]
    assert _shown(columns) == _shown(pa.concat_arrays([each.columns for each in alone]))
    assert unplaced == {row: each.unplaced[0] for row, each in enumerate(alone) if each.unplaced}
    reader = types.reader().converter.column_reader(head)
    assert reader is not None
    rows = np.array([row for row, value in enumerate(values) if value is not None and len(value) > len(head)])
    assert len(reader.read(batch["value"], rows).rows) >= whole


def test_what_is_read_of_a_batch_is_the_bytes_of_its_rows() -> None:
    """Chunks of a large batch would each take as long as all of it, also if records of two schemas alternate."""
    whole = column_reader({"type": "record", "name": "R", "fields": [{"name": "t", "type": "string"}]}, STRING, 0, 99)
    assert whole is not None
    scan, sizes = whole.scan, list[int]()

    def noted(data: AvroBytes, at: Places, lost: Places) -> tuple[Build, Places]:
        sizes.append(len(data.data))
        return scan(data, at, lost)

    reader = replace(whole, scan=noted)
    values = pa.array([b"\x04" + b"%02d" % row for row in range(100)], pa.binary()).slice(1)
    for rows in ([], [7], [10, 11, 12], [0, 50, 98]):
        read = reader.read(values, np.array(rows, np.intp))
        assert read.rows.tolist() == rows
        assert read.columns.field("t").to_pylist() == [f"{row + 1:02d}" for row in rows]
        assert sizes.pop() == 3 * len(rows)


def test_records_of_schemas_in_turns_keep_their_places(registry: tuple[MemoryRegistry, str]) -> None:
    """They are read schema by schema: each row has its own record's values, and its own reason if it has none."""
    memory, url = registry
    fields = [f"f{number}" for number in range(40)]
    heads = {
        name: b"\0"
        + memory.add({"type": "record", "name": "R", "fields": [{"name": name, "type": "long"}]}).to_bytes(4, "big")
        for name in fields
    }
    unknown = b"\0" + (9_999).to_bytes(4, "big") + b"\x02"
    values = [*(heads[name] + bytes([2 * turn]) for turn in range(3) for name in fields), unknown, None, b""]
    settings = {"value.converter": "keyfold.Avro", "value.converter.schema.registry.url": url}
    types = ValueTypes(side="value", chain=chain_spec(settings), resolve=resolve)
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "headers": pa.array([[]] * len(values), HEADERS)})
    survey = types.survey()
    survey.add(batch)
    survey.add(batch)
    kinds = survey.kinds()
    survey.close()
    assert sorted(kinds.values()) == [6] * len(fields)
    decoder = types.decoder(types.layout(kinds, None, []))
    decoded = decoder.decode(batch)
    decoder.close()
    rows = [
        {name: value for name, value in row.items() if value is not None} for row in decoded.columns.to_pylist()[:120]
    ]
    assert rows == [{name: turn} for turn in range(3) for name in fields]
    assert decoded.unplaced.keys() == {120, 122}
