"""Snapshots with a column for each field: what is in them, and what of a record that fits none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from compactor.errors import SnapshotError
from compactor.model.record import HEADERS
from compactor.ports import ColumnLayout, Decoded
from compactor.snapshot import manifest
from compactor.snapshot.manifest import TypedInputs
from connectors.chain.spec import chain_spec
from connectors.placeholders import resolve
from connectors.typed.column_types import ValueTypes
from connectors.typed.decoder import TypeDecoder
from tests.support.engine import row
from tests.support.served_registry import Registry, served_registry
from tests.support.typed_snapshots import TypedConnector

PLAIN = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false"}
ENVELOPED = {"value.converter": "keyfold.Json"}
registry = pytest.fixture(served_registry)
NAMES = ["_key", "_partition", "_offset", "_timestamp", "_headers", "_rest"]


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _order(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def _enveloped(payload: Any, *fields: tuple[str, str]) -> bytes:
    parts = [{"field": name, "type": kind, "optional": True} for name, kind in fields]
    return json.dumps({"schema": {"type": "struct", "fields": parts}, "payload": payload}).encode()


def _rows(values: Sequence[bytes | None]) -> list[Any]:
    return [row(0, offset, b"k%d" % offset, value) for offset, value in enumerate(values)]


def test_fields_of_plain_json_are_columns(tmp_path: Path) -> None:
    """Each field has a column of its type, nested ones too; metadata columns follow, and rows are by key."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(
        [
            row(0, 0, b"b", _json(status="new", total=1.5, tags=["x"], at={"city": "Bern"})),
            row(0, 1, b"a", _json(status="paid", total=2, n=None)),
            row(0, 2, b"gone", None),
        ]
    )
    taken = connector.take()
    assert taken.table.schema.names == ["status", "total", "tags", "at", *NAMES]
    assert taken.table.select(["_key", "status", "total", "tags", "at"]).to_pylist() == [
        {"_key": b"a", "status": "paid", "total": 2.0, "tags": None, "at": None},
        {"_key": b"b", "status": "new", "total": 1.5, "tags": ["x"], "at": {"city": "Bern"}},
    ]
    assert (taken.manifest.format_version, taken.manifest.records, taken.manifest.tombstones_excluded) == (2, 2, 1)
    typed = taken.manifest.typed
    assert isinstance(typed, manifest.Typed)
    assert (typed.value_format, typed.key_format, typed.unplaced) == ("typed", "bytes", {})


def test_schemas_that_evolve_become_one_table(tmp_path: Path, registry: Registry) -> None:
    """Columns of all schemas are united by name, with the wider types; logical types are Arrow's."""
    cents = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
    first = _order(("id", "int"), ("total", ["null", cents]))
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    second = _order(("id", "long"), ("total", ["null", {**cents, "precision": 12}]), ("at", moment))
    connector = TypedConnector(tmp_path, registry.settings())
    connector.fold(
        _rows(
            [
                registry.avro(first, {"id": 1, "total": b"\x01\x00"}),
                registry.avro(second, {"id": 2**40, "total": None, "at": 1_000_001}),
            ]
        )
    )
    table = connector.take().table
    assert [str(table.schema.field(name).type) for name in ("id", "total", "at")] == [
        "int64", "decimal128(12, 2)", "timestamp[us, tz=UTC]",
    ]  # fmt: skip
    assert [(each["id"], str(each["total"]), each["at"] is None) for each in table.to_pylist()] == [
        (1, "2.56", True), (2**40, "None", False),
    ]  # fmt: skip


def test_what_fits_no_column_is_whole_in_rest(tmp_path: Path, registry: Registry) -> None:
    """A type in conflict, bytes that are none, a schema that does not exist, a decimal beyond its precision."""
    good, other = _order(("total", "long")), _order(("total", "string"))
    money = _order(("money", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}))
    values = [
        registry.avro(good, {"total": 1}),
        registry.avro(good, {"total": 2}),
        registry.avro(other, {"total": "x"}),
        b"no avro",
        b"\0\0\0\x03\xe7data",
        registry.head(good) + b"\xff",
        registry.avro(money, {"money": b"\x7f\xff\xff"}),
    ]
    connector = TypedConnector(tmp_path, registry.settings())
    connector.fold(_rows(values))
    with capture_logs() as logs:
        taken = connector.take()
    rows = {each["_offset"]: each for each in taken.table.to_pylist()}
    assert [rows[offset]["total"] for offset in range(7)] == [1, 2, *[None] * 5]
    assert [rows[offset]["_rest"] for offset in range(7)] == [None, None, *values[2:]]
    typed = taken.manifest.typed
    assert isinstance(typed, manifest.Typed)
    assert typed.unplaced == {"_rest": 5}
    reasons = {each.offset: each.reason for each in typed.first}
    assert reasons[2] == "total: string does not fit a column of int64."
    assert "keyfold.Avro cannot read the value: " in reasons[3]
    assert sorted(reasons) == [2, 3, 4, 5, 6]
    (warned,) = [each for each in logs if each["log_level"] == "warning"]
    assert (warned["topic"], warned["column"], warned["records"], warned["of"]) == ("t", "_rest", 5, 7)
    assert warned["first"] == f"partition 0, offset 2: {reasons[2]}"


def test_json_with_schemas(tmp_path: Path) -> None:
    """The schema of each message says its columns; one that is no envelope is whole in `_rest`."""
    values = [
        _enveloped({"id": 1, "name": "a"}, ("id", "int32"), ("name", "string")),
        _enveloped({"id": 2, "ok": True}, ("id", "int64"), ("ok", "boolean")),
        b'{"id": 3}',
    ]
    connector = TypedConnector(tmp_path, ENVELOPED, metadata=["_offset"])
    connector.fold(_rows(values))
    assert connector.take().table.to_pylist() == [
        {"id": 1, "name": "a", "ok": None, "_offset": 0, "_rest": None},
        {"id": 2, "name": None, "ok": True, "_offset": 1, "_rest": None},
        {"id": None, "name": None, "ok": None, "_offset": 2, "_rest": b'{"id": 3}'},
    ]


def test_json_schema_and_protobuf(tmp_path: Path, registry: Registry) -> None:
    """Both formats of a registry have the same columns."""
    connector = TypedConnector(tmp_path / "json", registry.settings("JsonSchema"), metadata=[])
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
    connector.fold(_rows([registry.head(schema, schemaType="JSON") + b'{"id":1,"name":"a"}']))
    assert connector.take().table.drop_columns("_rest").to_pylist() == [{"id": 1, "name": "a"}]
    proto = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'
    other = TypedConnector(tmp_path / "proto", registry.settings("Protobuf"), metadata=[])
    other.fold(_rows([registry.head(proto, schemaType="PROTOBUF") + b"\0\x08\x01\x12\x01a"]))
    assert other.take().table.drop_columns("_rest").to_pylist() == [{"id": 1, "name": "a"}]


def test_keys_have_their_own_type(tmp_path: Path) -> None:
    """A key with fields is a struct, another one a plain column; what is no such key is whole in `_rest_key`."""
    settings = {**PLAIN, "key.converter": "keyfold.Json", "key.converter.schemas.enable": "false"}
    connector = TypedConnector(tmp_path, settings, key=True, metadata=["_key", "_offset"])
    keys = [b'{"id":10,"s":"x"}', b'{"id":9,"s":"y"}', b"{"]
    connector.fold([row(0, offset, key, _json(n=offset)) for offset, key in enumerate(keys)])
    taken = connector.take()
    assert [(each["_key"], each["_rest_key"], each["n"]) for each in taken.table.to_pylist()] == [
        ({"id": 9, "s": "y"}, None, 1), ({"id": 10, "s": "x"}, None, 0), (None, b"{", 2),
    ]  # fmt: skip
    typed = taken.manifest.typed
    assert isinstance(typed, manifest.Typed)
    assert typed.unplaced == {"_rest_key": 1}
    text = TypedConnector(
        tmp_path / "text", {"value.converter": "keyfold.String", "key.converter": "keyfold.Long"}, key=True
    )
    text.fold([row(0, offset, number.to_bytes(8, "big", signed=True), b"v") for offset, number in enumerate((5, -1))])
    table = text.take().table
    assert (table["_key"].to_pylist(), table["value"].to_pylist()) == ([-1, 5], ["v", "v"])


def test_names_of_metadata_columns_are_told(tmp_path: Path) -> None:
    """A field of such a name, or of one that differs in case alone, has another column; the manifest says which."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_rows([_json(_key=1, id=2, ID=3, at={"x": 1, "X": 2})]))
    taken = connector.take()
    assert taken.table.schema.names == ["_key_2", "id", "ID_2", "at", *NAMES]
    (record,) = taken.table.to_pylist()
    assert (record["_key_2"], record["id"], record["ID_2"], record["at"]) == (1, 2, 3, {"x": 1, "X_2": 2})
    typed = taken.manifest.typed
    assert isinstance(typed, manifest.Typed)
    assert typed.renamed == {"_key_2": "_key", "ID_2": "ID", "at.X_2": "X"}


def test_inferred_types_are_kept(tmp_path: Path) -> None:
    """The next snapshot begins with the columns of the last one, although its own records say something else."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_rows([_json(a=1, b="x")]))
    assert connector.take().table.schema.names[:2] == ["a", "b"]
    connector.fold([row(0, 1, b"k0", _json(c=True, a="text")), row(0, 2, b"k1", _json(a=1.5))])
    table = connector.take().table
    assert [str(table.schema.field(name).type) for name in ("a", "b", "c")] == ["double", "string", "bool"]
    assert [(each["a"], each["_rest"]) for each in table.to_pylist()] == [(None, _json(c=True, a="text")), (1.5, None)]


def test_a_registry_that_does_not_answer_makes_no_rest(tmp_path: Path, registry: Registry) -> None:
    """Nothing is known of the records then: no snapshot is taken, and the one before stays."""
    connector = TypedConnector(tmp_path, registry.settings())
    connector.fold(_rows([registry.avro(_order(("id", "int")), {"id": 1})]))
    registry.memory.always = httpx.Response(503)
    with pytest.raises(SnapshotError, match="for now"):
        connector.take()
    assert connector.connector.catalog.state.snapshots == ()
    registry.memory.always = None
    assert connector.take().table["id"].to_pylist() == [1]


def test_files_are_sorted_with_statistics_and_bloom_filters(tmp_path: Path) -> None:
    """Keys rise within a file, all columns have statistics, and a file ends by `snapshot.file.bytes`."""
    connector = TypedConnector(tmp_path, PLAIN)
    count = 20_000
    connector.fold([row(0, at, b"%05d" % (at * 7919 % count), _json(n=at, s=f"{at * at:030d}")) for at in range(count)])
    taken = connector.take()
    keys = taken.table["_key"].to_pylist()
    assert keys == sorted(keys)
    group = pq.ParquetFile(taken.files[0]).metadata.row_group(0)
    by_path = {group.column(at).path_in_schema: group.column(at) for at in range(group.num_columns)}
    assert (by_path["n"].statistics.min, by_path["n"].compression) == (0, "ZSTD")
    assert by_path["_key"].statistics.max == b"19999"
    probed = duckdb.execute(
        "SELECT bloom_filter_excludes FROM parquet_bloom_probe(?, '_key', '19999x'::BLOB)", [str(taken.files[0])]
    )
    assert probed.fetchall() == [(True,)]


def test_all_files_are_sorted_as_a_whole(tmp_path: Path) -> None:
    """Keys rise from file to file over all partitions, though no more than a section of rows is sorted at once."""
    connector = TypedConnector(tmp_path, {**PLAIN, "key.converter": "keyfold.Long"}, key=True, partitions=2)
    count = 40_000
    keys = [at * 7919 % count - 100 for at in range(count)]
    parts: list[list[Any]] = [[], []]
    for at, key in enumerate(keys):
        part = parts[at % 2]
        part.append(row(at % 2, len(part), key.to_bytes(8, "big", signed=True), _json(n=key, s=f"{at * at:030d}")))
    connector.set(
        {**PLAIN, "key.converter": "keyfold.Long"},
        engine=replace(connector.connector.settings, snapshot_file_bytes=300_000),
    )
    connector.fold([*parts[0], *parts[1]])
    taken = connector.take()
    assert taken.table["_key"].to_pylist() == sorted(keys) == taken.table["n"].to_pylist()
    assert len(taken.files) > 2
    assert {path.name for path in taken.files[0].parent.iterdir()} == {path.name for path in taken.files}
    assert taken.manifest.records == count


def test_every_record_is_kept_in_its_order(tmp_path: Path) -> None:
    """With snapshot.mode=append a record without a value, or without a key, has its row."""
    connector = TypedConnector(tmp_path, PLAIN)
    settings = replace(
        connector.connector.settings,
        policy=replace(connector.connector.settings.policy, cleanup_policy=("delete",)),
        snapshot_mode="append",
    )
    connector.set(PLAIN, engine=settings)
    connector.connector.ingest([row(0, 0, b"b", _json(n=1)), row(0, 1, b"a", None), row(0, 2, None, _json(n=3))])
    connector.connector.publish()
    table = connector.take().table
    assert [(each["_key"], each["n"]) for each in table.to_pylist()] == [(b"b", 1), (b"a", None), (None, 3)]


def test_a_snapshot_of_nothing_has_its_metadata_columns(tmp_path: Path) -> None:
    """If all keys are deleted no record says a column."""
    connector = TypedConnector(tmp_path, PLAIN, key=True)
    connector.fold([row(0, 0, b"gone", None)])
    taken = connector.take()
    assert (taken.table.schema.names, taken.manifest.records) == ([*NAMES, "_rest_key"], 0)


def test_what_would_repeat_is_copied_or_left_out(tmp_path: Path) -> None:
    """The columns are those of the newest snapshot, until another converter would make others."""
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_rows([_json(a=1)]))
    first = connector.take()
    assert connector.take(again=False).manifest == first.manifest
    repeated = connector.take()
    assert repeated.manifest.files == first.manifest.files
    assert repeated.manifest.typed == first.manifest.typed
    connector.set({"value.converter": "keyfold.String"})
    assert connector.take(again=False).table["value"].to_pylist() == ['{"a": 1}']
    connector.snapshots.typed = None
    assert connector.take(again=False).table["value"].to_pylist() == [b'{"a": 1}']
    connector.set(PLAIN)
    assert connector.take(again=False).table["a"].to_pylist() == [1]


def test_a_hostile_record_has_its_row(tmp_path: Path) -> None:
    """Deep, wide, long or broken: each record is in a column or whole in `_rest`, and the others in theirs."""
    deep = json.dumps({"a": json.loads("[" * 150 + "]" * 150)}).encode()
    values = [
        _json(a=1), deep, _json(a=2**60, b=2**200), b'{"a": "\\ud800"}', b"\xff", b"[1]", b'"x"', b"{" * 10_000,
        _json(**{f"k{number}": 1 for number in range(20_000)}), _json(a=10**300), _json(a=2),
    ]  # fmt: skip
    connector = TypedConnector(tmp_path, PLAIN)
    connector.fold(_rows(values))
    taken = connector.take()
    assert taken.manifest.records == len(values)
    by_offset = {each["_offset"]: each for each in taken.table.select(["a", "_offset", "_rest"]).to_pylist()}
    assert (by_offset[0]["a"], by_offset[10]["a"]) == (1, 2)
    for offset, value in enumerate(values):
        assert by_offset[offset]["_rest"] in {None, value}
    assert isinstance(taken.table.schema.field("a").type, pa.DataType)


def test_texts_that_a_schema_repeats_are_bounded(tmp_path: Path, registry: Registry) -> None:
    """A byte of Avro that stands for a symbol of thousands of characters, or none that stands for a default."""
    enum = {"type": "enum", "name": "E", "symbols": ["S" * 5_000, "T"]}
    connector = TypedConnector(tmp_path / "enum", registry.settings(), metadata=[])
    message = registry.avro(_order(("e", enum)), {"e": "T"})
    connector.fold(_rows([message]))
    assert connector.take().table.to_pylist() == [{"_rest": message}]
    fields = [{"field": "a", "type": "string", "optional": True, "default": "d" * 5_000}]
    enveloped = json.dumps({"schema": {"type": "struct", "fields": fields}, "payload": {}}).encode()
    defaults = TypedConnector(tmp_path / "default", ENVELOPED, metadata=[])
    defaults.fold(_rows([enveloped]))
    assert defaults.take().table.to_pylist() == [{"_rest": enveloped}]


class SmallDecoder(TypeDecoder):
    """Refuses columns of more than a section of records."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Decodes records."""
        decoded = super().decode(batch)
        assert decoded.columns.nbytes < 80 << 20
        return decoded


class SmallTypes(ValueTypes, frozen=True, kw_only=True):
    """Types of which the columns of a batch are measured."""

    def decoder(self, layout: ColumnLayout) -> TypeDecoder:
        """Returns what decodes to `layout`."""
        return SmallDecoder(self.reader(), layout.type, self.most_bytes)


def _small(folder: Path, settings: Mapping[str, str], most_bytes: int) -> TypedConnector:
    connector = TypedConnector(folder, settings, metadata=["_offset"])
    types = SmallTypes(side="value", chain=chain_spec(settings), resolve=resolve, most_bytes=most_bytes)
    connector.snapshots.typed = TypedInputs(key=None, value=types, metadata=connector.metadata)
    return connector


def test_columns_of_a_batch_are_bounded(tmp_path: Path, registry: Registry) -> None:
    """Only a record that alone is too large is whole in `_rest`, and none for what others of its batch have."""
    large, texts = "x" * 150_000, [str(number) * 30_000 for number in range(10)]
    connector = _small(tmp_path, PLAIN, 100_000)
    connector.fold(_rows([*(_json(a=text) for text in texts), _json(a=large), _json(a="z")]))
    rows = sorted(connector.take().table.to_pylist(), key=lambda each: each["_offset"])
    assert [each["a"] for each in rows] == [*texts, None, "z"]
    assert [each["_rest"] for each in rows] == [*[None] * 10, _json(a=large), None]
    at_once = _small(tmp_path / "avro", registry.settings(), 100_000)
    messages = [registry.avro(_order(("a", "string")), {"a": text}) for text in [*texts * 5, large]]
    at_once.fold(_rows(messages))
    rows = sorted(at_once.take().table.to_pylist(), key=lambda each: each["_offset"])
    assert [each["a"] for each in rows] == [*texts * 5, None]


def test_many_columns_are_decoded_a_few_records_at_a_time(tmp_path: Path) -> None:
    """What is null in thousands of columns takes memory as well."""
    connector = _small(tmp_path, PLAIN, 1 << 40)
    connector.fold(_rows([_json(**{f"f{number}": 1.5 for number in range(4_900)}), *[_json(f1=2)] * 4_000]))
    table = connector.take().table
    assert (table["f1"].to_pylist().count(2), table["_rest"].null_count) == (4_000, 4_001)


@pytest.mark.parametrize(("fields", "length", "schemas"), [(1, 200_000, 60), (100, 1_000, 60), (3_000, 8, 40)])
def test_ever_new_schemas_take_no_more_than_their_room(fields: int, length: int, schemas: int) -> None:
    """What a task sends to the worker is bounded, however long names are; the first schemas have their columns."""
    kind = [("n" * length + str(number), "int32") for number in range(fields)]
    values = [_enveloped({}, ("id", "int32"), *kind, (f"new{number}", "int32")) for number in range(schemas)]
    columns = [pa.array(values, pa.binary()), pa.nulls(schemas, HEADERS)]
    types = ValueTypes(side="value", chain=chain_spec(ENVELOPED), resolve=resolve)
    survey = types.survey()
    survey.add(pa.RecordBatch.from_arrays(columns, names=["value", "headers"]))
    kinds = survey.kinds()
    assert sum(map(len, kinds)) < 5 << 20
    assert "id" in types.layout(kinds, None, ()).type.names
