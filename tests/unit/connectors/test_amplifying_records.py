"""A text that a record, a schema or a file says once is not written a thousand times: it is refused before that."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pytest

from connectors.chain.chain import Chain
from connectors.chain.spec import chain_faults, chain_spec
from connectors.converters.names import CONVERTERS, HEADER_CONVERTERS
from connectors.transforms.names import TRANSFORMS
from tests.unit.connectors.chain.test_chain import batch

ROOM: Final = 256 << 20
"""Bytes that Python may take for a record of 300 kB or less; without bounds each case takes gigabytes."""
LONG: Final = "x" * 200_000
MANY: Final = 3_000
NAMES: Final = ",".join(f"f{number}" for number in range(MANY))
EMPTY: Final = {f"f{number}": "" for number in range(MANY)}

INSERT: Final = {"type": "InsertField$Value", "static.field": "z", "static.value": "1"}


@contextmanager
def little_room(room: int = ROOM) -> Iterator[None]:
    """Holds the most memory that Python takes in the block against `room`, in bytes."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= room, f"{peak >> 20} MiB"


def listed(**field: Any) -> dict[str, Any]:
    """Returns a record in JSON with its schema: MANY empty structs, with one field each that none of them has."""
    member = {"type": "string", "optional": True, **field}
    items = {"type": "struct", "fields": [member]}
    fields: list[dict[str, Any]] = [{"field": "a", "type": "array", "items": items}, {"field": "at", "type": "int64"}]
    envelope = {"type": "struct", "name": "a.Envelope", "fields": [{"field": "after", **_struct(fields)}]}
    return {"schema": envelope, "payload": {"after": {"a": [{}] * MANY, "at": 0}}}


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "optional": True, "fields": fields}


DEFAULTS: Final = listed(field="d", default=LONG)
"""A default of which one record has a copy for each element."""
FIELD_NAMES: Final = listed(field=LONG)
"""The same of the name of a field."""
ROW: Final = DEFAULTS["schema"]["fields"][0]

PLAIN: Final[list[tuple[dict[str, str], dict[str, Any]]]] = [
    ({"type": "Flatten$Value"}, {"y" * 300_000: {f"{number}": 1 for number in range(10_000)}}),
    ({"type": "Flatten$Value", "delimiter": "d" * 60_000}, {"y": EMPTY}),
    ({"type": "HeaderFrom$Value", "operation": "copy", "fields": ",".join(["f"] * MANY), "headers": NAMES},
     {"f": LONG}),
    ({"type": "HeaderFrom$Value", "operation": "move", "fields": ",".join(["f"] * MANY), "headers": NAMES},
     {"f": LONG}),
    ({"type": "MaskField$Value", "fields": NAMES, "replacement": "r" * 60_000}, EMPTY),
]  # fmt: skip
"""Transforms that repeat something themselves, and what they repeat it of."""
WITH_SCHEMA: Final[list[dict[str, str]]] = [
    INSERT,
    {"type": "Cast$Value", "spec": "at:string"},
    {"type": "ExtractField$Value", "field": "a"},
    {"type": "Flatten$Value"},
    {"type": "HeaderFrom$Value", "operation": "copy", "fields": "a", "headers": "a"},
    {"type": "HoistField$Value", "field": "h"},
    {"type": "MaskField$Value", "fields": "at"},
    {"type": "ReplaceField$Value", "renames": "at:to"},
    {"type": "SetSchemaMetadata$Value", "schema.name": "n"},
    {"type": "TimestampConverter$Value", "field": "at", "target.type": "Timestamp"},
    {"type": "ValueToKey", "fields": "a"},
]
"""Each transform that changes a value with a schema."""
UNCHANGED: Final = {"DropHeaders", "Filter", "InsertHeader", "RegexRouter", "TombstoneHandler"}
"""Transforms that neither look into a value nor change it."""


MONGODB_FIELDS: Final = 30_000
"""More than a schema may have types."""


def applied(
    transform: Mapping[str, str], *values: Any, key: bytes = b"{}", **converters: str
) -> Iterator[pa.RecordBatch]:
    """Yields what a chain of one transform makes of `values` of `key`, without or with a schema."""
    enable = "true" if isinstance(values[0], dict) and values[0].keys() == {"schema", "payload"} else "false"
    settings = {
        **{f"{side}.converter": "JsonConverter" for side in ("key", "value")},
        **{f"{side}.converter.schemas.enable": enable for side in ("key", "value")},
        **{name.replace("_", "."): text for name, text in converters.items()},
        "transforms": "t",
        **{f"transforms.t.{name}": text for name, text in transform.items()},
    }
    assert chain_faults(settings, str) == ()
    data = batch(*((key, json.dumps(value).encode()) for value in values))
    yield from Chain(chain_spec(settings), str).through([data])


def refused(made: Iterable[pa.RecordBatch]) -> str:
    """Returns why the one record was rejected, which keeps the bytes that it came with."""
    (why,) = next(iter(made))["rejected"].to_pylist()
    assert why is not None
    return str(why)


@pytest.mark.parametrize(("transform", "value"), PLAIN, ids=lambda case: str(case)[:30])
def test_what_a_transform_repeats_is_counted_before_it_is_written(
    transform: dict[str, str], value: dict[str, Any]
) -> None:
    """The record is rejected, with the limit that it exceeds."""
    with little_room():
        why = refused(applied(transform, value))
    assert "characters" in why


@pytest.mark.parametrize("record", [DEFAULTS, FIELD_NAMES], ids=["defaults", "names"])
@pytest.mark.parametrize("transform", WITH_SCHEMA, ids=lambda transform: transform["type"])
def test_what_a_schema_says_once_is_counted_for_each_element(transform: dict[str, str], record: dict[str, Any]) -> None:
    """Of each transform that has such a value written; without it the value passes as it came."""
    payload = {"schema": record["schema"]["fields"][0], "payload": record["payload"]["after"]}
    payload["schema"] = {name: part for name, part in payload["schema"].items() if name not in {"field", "optional"}}
    with little_room():
        why = refused(applied(transform, payload))
    assert "would become one of more than" in why


def test_a_row_of_a_change_event_is_counted_as_well() -> None:
    """As it is and under many names."""
    unwrap = {"type": "io.debezium.transforms.ExtractNewRecordState"}
    with little_room():
        assert "would become one of more than" in refused(applied(unwrap, DEFAULTS))
    source = {"field": "source", **_struct([{"field": "x", "type": "string"}])}
    after = {"field": "after", **_struct([{"field": "id", "type": "int64"}])}
    schema = {"type": "struct", "name": "a.Envelope", "fields": [after, source]}
    event = {"schema": schema, "payload": {"after": {"id": 1}, "source": {"x": LONG}}}
    for key in ("add.fields", "add.headers"):
        added = ",".join(f"source.x:n{number}" for number in range(MANY))
        with little_room():
            assert "would become one of more than" in refused(applied({**unwrap, key: added}, event))


@pytest.mark.parametrize("encoding", ["array", "document"])
def test_the_schema_of_a_document_of_mongodb_has_a_bound(encoding: str) -> None:
    """Its schema is made of its text: each name and each element of an array may come to be a field."""
    unwrap = {"type": "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState", "array.encoding": encoding}
    named = {f"n{number}": 1 for number in range(MONGODB_FIELDS)}
    document = {"_id": 1, "a": [1] * MONGODB_FIELDS} if encoding == "document" else named
    fields = [{"field": "after", "type": "string"}, {"field": "op", "type": "string"}]
    envelope = {"type": "struct", "name": "a.Envelope", "fields": fields}
    event = {"schema": envelope, "payload": {"op": "c", "after": json.dumps(document)}}
    key = {
        "schema": {"type": "struct", "name": "a.Key", "fields": [{"field": "id", "type": "string"}]},
        "payload": {"id": "1"},
    }
    with little_room():
        assert "The schema has more than" in refused(applied(unwrap, event, key=json.dumps(key).encode()))


def test_every_transform_is_tried() -> None:
    """A transform that is added stands in one of the lists."""
    tried = {case["type"].partition("$")[0] for case in (*WITH_SCHEMA, *(transform for transform, _ in PLAIN))}
    assert tried | UNCHANGED | {"ExtractNewRecordState", "ExtractNewDocumentState"} == {
        each.simple for each in TRANSFORMS.known
    }


@pytest.mark.parametrize("converter", [each.java for each in HEADER_CONVERTERS.known])
def test_headers_are_counted_whatever_writes_them(converter: str) -> None:
    """A value that a header converter does not take is refused as well."""
    copies = {"type": "HeaderFrom$Value", "operation": "copy", "fields": "a", "headers": "a"}
    payload = {"schema": {"type": "struct", "fields": ROW["fields"]}, "payload": DEFAULTS["payload"]["after"]}
    with little_room():
        assert "HEADER_CONVERTER" in refused(applied(copies, payload, header_converter=converter))


@pytest.mark.parametrize("converter", [each.java for each in CONVERTERS.known if "Schema" not in each.java])
def test_keys_are_counted_whatever_writes_them(converter: str) -> None:
    """ValueToKey puts lists of structs into a key that any converter may have to write."""
    if converter in {"keyfold.Avro", "keyfold.Protobuf"}:
        return  # they are tried below, with a registry
    payload = {"schema": {"type": "struct", "fields": ROW["fields"]}, "payload": DEFAULTS["payload"]["after"]}
    to_key = {"type": "ValueToKey", "fields": "a"}
    with little_room():
        why = refused(applied(to_key, payload, key_converter=converter, key_converter_schemas_enable="true"))
    assert "would become one of more than" in why


def test_a_batch_is_handed_on_in_pieces() -> None:
    """5,000 records of which each gets 60,000 characters are 300 MB."""
    transform = {**INSERT, "static.value": "s" * 60_000}
    total = rows = 0
    with little_room():
        for piece in applied(transform, *([{"f": 1}] * 5_000)):
            rows, total = rows + piece.num_rows, total + piece.nbytes
            assert piece.nbytes < 32 << 20
    assert (rows, total > 5_000 * 60_000) == (5_000, True)


@pytest.mark.parametrize(("setting", "length"), [("replacement", (64 << 10) + 1), ("fields", (1 << 20) + 1)])
def test_a_setting_has_a_bound(setting: str, length: int) -> None:
    """It is refused when a file is checked, and not shown: a text of each record, a list of names."""
    settings = {"transforms": "t", "transforms.t.type": "MaskField$Value", "transforms.t.fields": "f"}
    faults = dict(chain_faults({**settings, f"transforms.t.{setting}": "x" * length}, str))
    most = length - 1
    assert faults[f"transforms.t.{setting}"] == (f"a text of {length} characters is not allowed: at most {most} are.")


def test_names_with_a_long_prefix_have_a_bound() -> None:
    """A prefix of 60,000 characters before 3,000 fields would be 180 MB when the transform is made."""
    settings = {"transforms": "t", "transforms.t.type": "io.debezium.transforms.ExtractNewRecordState"}
    for key in ("add.fields", "add.headers"):
        own = {f"transforms.t.{key}": NAMES, f"transforms.t.{key}.prefix": "p" * 60_000}
        assert "would have more than" in dict(chain_faults({**settings, **own}, str))[f"transforms.t.{key}.prefix"]
