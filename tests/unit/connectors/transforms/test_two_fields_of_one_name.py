"""Two fields of one name are refused wherever a struct's schema is made; without a schema the last one stays."""

from __future__ import annotations

from typing import Any

import pytest

from connectors.chain.spec import ClassSpec, chain_faults, made
from connectors.converters.json.converter import JsonConverter
from connectors.data.record import ConnectRecord
from connectors.data.schema import INT32, STRING, Field, Schema, Type
from connectors.errors import DataError
from connectors.options import read
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Transform

INNER = Schema(type=Type.STRUCT, fields=(Field("b", INT32),))
ROW = Schema(type=Type.STRUCT, fields=(Field("id", INT32), Field("uid", INT32), Field("a", INNER), Field("a_b", INT32)))
EVENT = Schema(
    type=Type.STRUCT,
    name="s.t.Envelope",
    fields=(
        Field("before", ROW.as_optional()),
        Field("after", Schema(type=Type.STRUCT, fields=(Field("op", STRING), Field("__deleted", STRING)))),
        Field("op", STRING),
    ),
)
VALUE = {"id": 1, "uid": 2, "a": {"b": 3}, "a_b": 4}
CHANGED = {"before": None, "after": {"op": "mine", "__deleted": "mine"}, "op": "u"}


def transformed(name: str, options: dict[str, str], schema: Schema | None, value: Any) -> ConnectRecord | None:
    transform = made(ClassSpec(name, options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    return transform.apply(ConnectRecord("t", 0, 0, 7, None, None, schema, value))


@pytest.mark.parametrize(
    ("name", "options", "schema", "value", "double"),
    [
        ("ReplaceField$Value", {"renames": "id:uid"}, ROW, VALUE, "uid"),
        ("ReplaceField$Value", {"renames": "id:x,uid:x"}, ROW, VALUE, "x"),
        ("Flatten$Value", {"delimiter": "_"}, ROW, VALUE, "a_b"),
        ("InsertField$Value", {"topic.field": "id"}, ROW, VALUE, "id"),
        ("InsertField$Value", {"topic.field": "x", "offset.field": "x"}, ROW, VALUE, "x"),
        ("ValueToKey", {"fields": "id,uid,id"}, ROW, VALUE, "id"),
        ("ExtractNewRecordState", {"add.fields": "op", "add.fields.prefix": ""}, EVENT, CHANGED, "op"),
        ("ExtractNewRecordState", {"add.fields": "op:x,op:x"}, EVENT, CHANGED, "__x"),
        ("ExtractNewRecordState", {"delete.tombstone.handling.mode": "rewrite"}, EVENT, CHANGED, "__deleted"),
    ],
)
def test_with_a_schema_the_record_is_rejected(
    name: str, options: dict[str, str], schema: Schema, value: Any, double: str
) -> None:
    """No value is overwritten in silence: Kafka's SchemaBuilder refuses the second field."""
    with pytest.raises(DataError, match=f"field name duplication {double}\\."):
        transformed(name, options, schema, value)


@pytest.mark.parametrize(
    ("name", "options", "became"),
    [
        ("ReplaceField$Value", {"renames": "id:uid"}, {"uid": 2, "a": {"b": 3}, "a_b": 4}),
        ("Flatten$Value", {"delimiter": "_"}, {"id": 1, "uid": 2, "a_b": 4}),
        ("InsertField$Value", {"topic.field": "id"}, {**VALUE, "id": "t"}),
    ],
)
def test_without_a_schema_the_last_one_stays(name: str, options: dict[str, str], became: Any) -> None:
    """A map is put into, as Kafka's classes do."""
    record = transformed(name, options, None, VALUE)
    assert record is not None
    assert record.value == became


FIELD = '{"field": "a", "type": "int32"}'
DOUBLED = f'{{"type": "struct", "fields": [{FIELD}, {FIELD}]}}'


def test_a_schema_in_a_message_is_refused() -> None:
    """JsonConverter reads schemas that anyone can write."""
    converter = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    with pytest.raises(DataError, match="duplication a"):
        converter.to_connect_data("t", [], f'{{"schema": {DOUBLED}, "payload": {{"a": 1}}}}'.encode())


def test_a_schema_in_a_setting_is_a_fault() -> None:
    """It is said when the connector is checked, and names the setting."""
    settings = {"value.converter": "JsonConverter", "value.converter.schema.content": DOUBLED}
    ((key, text),) = chain_faults(settings, str)
    assert key == "value.converter.schema.content"
    assert "duplication a" in text
