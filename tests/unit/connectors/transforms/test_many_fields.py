"""A transform of many fields takes time for the fields and for its settings, not for their product."""

from __future__ import annotations

import json
import time
from typing import Any, Final

import pytest
from msgspec.structs import replace

from connectors.chain.spec import ClassSpec, made
from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import INT32, STRING, TIMESTAMP_SCHEMA, Field, Schema, Type
from connectors.kept_values import HEAVIEST
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Transform
from tests.unit.connectors.test_amplifying_records import little_room

NAMES: Final = [f"f{number}" for number in range(25_000)]
SOON_S: Final = 2.5
"""CPU time that a transform may take: 8 times what the slowest does. To look for each name in a list takes more."""
LISTED: Final = ",".join(reversed(NAMES))
"""All of them, the last first."""
VALUE: Final = {**dict.fromkeys(NAMES, 1), "at": None}
ROW: Final = Schema(type=Type.STRUCT, fields=(*(Field(name, INT32) for name in NAMES), Field("at", TIMESTAMP_SCHEMA)))
SOURCE: Final = Schema(type=Type.STRUCT, optional=True, fields=ROW.fields)
EVENT: Final = Schema(
    type=Type.STRUCT,
    name="t.Envelope",
    fields=(Field("before", SOURCE), Field("after", SOURCE), Field("source", SOURCE)),
)
CHANGED: Final = {"before": None, "after": VALUE, "source": VALUE}

PLAIN: Final[dict[str, dict[str, str]]] = {
    "Cast$Value": {"spec": ",".join(f"{name}:int64" for name in NAMES)},
    "DropHeaders": {"headers": LISTED},
    "ExtractField$Value": {"field": NAMES[-1]},
    "Flatten$Value": {},
    "HoistField$Value": {"field": "h"},
    "InsertField$Value": {"topic.field": "t"},
    "InsertHeader": {"header": "h", "value.literal": "1"},
    "MaskField$Value": {"fields": LISTED},
    "ReplaceField$Value": {"renames": ",".join(f"{name}:x{name}" for name in NAMES), "include": LISTED},
    "TimestampConverter$Value": {"field": "at", "target.type": "unix"},
    "ValueToKey": {"fields": LISTED},
}
MOVES: Final = {"fields": LISTED, "headers": LISTED}
MOVED: Final = [{"fields": LISTED, "headers": LISTED, "operation": operation} for operation in ("move", "copy")]
ADDED: Final = [{key: ",".join(f"source.{name}" for name in NAMES)} for key in ("add.fields", "add.headers")]
WITH_SCHEMA: Final = [
    *((name, options, ROW, VALUE) for name, options in PLAIN.items()),
    *(("HeaderFrom$Value", options, ROW, VALUE) for options in MOVED),
    *(("ExtractNewRecordState", options, EVENT, CHANGED) for options in ADDED),
    ("SetSchemaMetadata$Value", {"schema.name": "n"}, ROW, VALUE),
]
CASES: Final = [
    *WITH_SCHEMA,
    *((name, options, None, VALUE) for name, options, schema, _ in WITH_SCHEMA if schema is ROW and "S" not in name[0]),
]
UNCHANGED: Final = {"Filter", "RegexRouter", "TombstoneHandler"}
"""Transforms that look at no field and at no header."""
DOCUMENTS: Final = "ExtractNewDocumentState"
OF_DOCUMENT: Final = Schema(
    type=Type.STRUCT,
    name="t.Envelope",
    fields=(Field("after", STRING), Field("updateDescription", STRING.as_optional()), Field("source", SOURCE)),
)
KEY: Final = Schema(type=Type.STRUCT, name="t.Key", fields=(Field("id", STRING),))


@pytest.mark.parametrize(
    ("name", "options", "schema", "value"),
    CASES,
    ids=[
        f"{name}, {', '.join(options)[:20]}, {'a schema' if schema else 'none'}" for name, options, schema, _ in CASES
    ],
)
def test_time_is_for_the_fields_alone(
    name: str, options: dict[str, str], schema: Schema | None, value: dict[str, Any]
) -> None:
    """Of 25,000 fields and as many names in a setting, with a schema that no record had before."""
    transform = made(ClassSpec(name, options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    headers = tuple(Header(name, 1, INT32) for name in NAMES)
    record = ConnectRecord("t", 0, 0, 7, None, None, schema, value, headers)
    began = time.thread_time()
    assert transform.apply(record) is not None
    assert time.thread_time() - began < SOON_S


@pytest.mark.parametrize("options", [*ADDED, {"flatten.struct": "true"}, {"array.encoding": "document"}])
def test_time_of_a_document_is_for_its_fields_alone(options: dict[str, str]) -> None:
    """Of 15,000 fields, with lists of which the documents have all fields between them, and as many added fields."""
    transform = made(ClassSpec(DOCUMENTS, options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    parts = [{name: number} for number, name in enumerate(NAMES[:4_000])]
    text = json.dumps({**dict.fromkeys(NAMES[:15_000], 1), "parts": parts if "array.encoding" not in options else []})
    value = {"after": text, "updateDescription": None, "source": VALUE}
    began = time.thread_time()
    assert transform.apply(ConnectRecord("t", 0, 0, 7, KEY, {"id": "1"}, OF_DOCUMENT, value)) is not None
    assert time.thread_time() - began < SOON_S


def test_every_transform_is_tried() -> None:
    """A transform that is added stands in one of the lists."""
    tried = {name.partition("$")[0] for name, *_ in CASES}
    assert tried | UNCHANGED | {DOCUMENTS} == {each.simple for each in TRANSFORMS.known}


@pytest.mark.long  # it takes 10 s
def test_what_settings_add_to_each_schema_has_a_bound() -> None:
    """Each record may come with a schema of its own, of which 1,000 are kept if they are small."""
    transform = made(
        ClassSpec("ExtractNewRecordState", {"add.headers": ",".join(["source.a"] * 8_000)}), TRANSFORMS, str
    )
    assert isinstance(transform, Transform)
    parts = tuple(Field(part, replace(SOURCE, fields=(Field("a", INT32),))) for part in ("after", "source"))
    value = {part: {"a": 1} for part in ("after", "source")}
    with little_room(HEAVIEST):
        for number in range(22):
            schema = Schema(type=Type.STRUCT, name=f"s{number}.Envelope", fields=parts)
            assert transform.apply(ConnectRecord("t", 0, 0, 7, None, None, schema, value)) is not None
