"""Change events of Debezium's MongoDB connector, as its own page shows them, become documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from connectors.chain.spec import ClassSpec, made
from connectors.data.record import ConnectRecord
from connectors.data.schema import STRING, Field, Schema, Type
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Transform
from tests.support.debezium_events import chain_of, events_of, sent

UNWRAP: Final = "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState"
EVENTS: Final = events_of("mongodb")
KEY: Final = EVENTS["key"]
IDS: Final[dict[str, str]] = json.loads(
    (Path(__file__).parents[3] / "data" / "debezium-events" / "mongodb.json").read_text(encoding="utf-8")
)["ids"]
DOCUMENT: Final = {"_id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
CHANGED: Final = {**DOCUMENT, "first_name": "Anne Marie"}


def update(**changes: Any) -> dict[str, Any]:
    """Returns the page's update with other members of its payload."""
    return {**EVENTS["update"], "payload": {**EVENTS["update"]["payload"], **changes}}


@pytest.mark.parametrize(("name", "document"), [("create", DOCUMENT), ("update", CHANGED), ("delete", None)])
def test_an_event_becomes_the_document_after_it(name: str, document: dict[str, Any] | None) -> None:
    """Its key is the document's id as it is, not as a text of JSON, and a delete is a tombstone."""
    assert sent(chain_of(UNWRAP), (KEY, EVENTS[name])) == [({"id": 1004}, document, "")]


def test_the_tombstone_after_a_delete_is_not_sent_twice() -> None:
    """The delete is one already."""
    assert sent(chain_of(UNWRAP), (KEY, EVENTS["delete"]), (KEY, None)) == [({"id": 1004}, None, "")]


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("Integer", 1234),
        ("Float", 12.34),
        ("String", "1234"),
        ("Document", {"hi": "kafka", "nums": [10.0, 100.0, 1000.0]}),
        ("ObjectId", "596e275826f08b2730779e1f"),
        ("Binary", "a2Fma2E="),
    ],
)
def test_each_id_of_the_page_is_a_key(kind: str, key: Any) -> None:
    """Of each type that the page lists; bytes are Base64 in JSON."""
    event = {**KEY, "payload": {"id": IDS[kind]}}
    assert sent(chain_of(UNWRAP), (event, EVENTS["create"])) == [({"id": key}, DOCUMENT, "")]


def test_an_update_without_its_document_is_the_fields_that_changed() -> None:
    """As Debezium's class makes it; the log warns once, as they take the place of the document."""
    chain = chain_of(UNWRAP)
    with capture_logs() as logs:
        results = sent(chain, *[(KEY, update(after=None))] * 2)
    assert results == [({"id": 1004}, {"first_name": "Anne Marie", "_id": 1004}, "")] * 2
    (warning,) = [line for line in logs if "the changed fields alone" in line["event"]]
    assert "change_streams_update_full" in warning["action"]


def test_fields_that_an_update_removes_are_gone() -> None:
    """Those in `removedFields`; names with dots lead into documents, which flattening joins by its delimiter."""
    description = {"removedFields": ["email"], "updatedFields": '{"email": 1, "address.city": "Ulm"}'}
    event = update(after=None, updateDescription=description)
    chain = chain_of(UNWRAP, flatten_struct="true")
    assert sent(chain, (KEY, event)) == [({"id": 1004}, {"address_city": "Ulm", "_id": 1004}, "")]


def test_fields_of_the_event_can_be_added() -> None:
    """Those of `source` by their names, and those of the event itself."""
    chain = chain_of(UNWRAP, add_fields="op,rs,collection,source.ts_ms")
    added = {"__op": "u", "__rs": "rs0", "__collection": "customers", "__source_ts_ms": 1558965508000}
    assert sent(chain, (KEY, EVENTS["update"])) == [({"id": 1004}, {**CHANGED, **added}, "")]


def test_a_delete_can_stay_a_document() -> None:
    """With `rewrite` the document is there as it was, if the event has it, and says that it was deleted."""
    mode = {"delete_tombstone_handling_mode": "rewrite"}
    assert sent(chain_of(UNWRAP, **mode), (KEY, EVENTS["delete"])) == [
        ({"id": 1004}, {**CHANGED, "__deleted": True}, "")
    ]
    bare = {**EVENTS["delete"], "payload": {**EVENTS["delete"]["payload"], "before": None}}
    with_id = {"delete_tombstone_handling_mode_rewrite-with-id": "true"}
    assert sent(chain_of(UNWRAP, **mode, **with_id), (KEY, bare)) == [
        ({"id": 1004}, {"__deleted": True, "_id": 1004}, "")
    ]


def test_a_tombstone_that_stays_says_that_it_is_a_delete() -> None:
    """With `rewrite-with-tombstone`, in the header of `op` if that is to be added; of another kind there is none."""
    options = {"delete.tombstone.handling.mode": "rewrite-with-tombstone", "add.headers": "op,collection"}
    transform = made(ClassSpec("ExtractNewDocumentState", options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    key = Schema(type=Type.STRUCT, name="d.c.Key", fields=(Field("id", STRING),))
    tombstone = transform.apply(ConnectRecord("d.c", 0, 0, 7, key, {"id": "1004"}, None, None))
    assert tombstone is not None
    assert (tombstone.key, tombstone.value) == ({"id": 1004}, None)
    assert [(header.key, header.value) for header in tombstone.headers] == [("__op", "d")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no Extended JSON"),
        ("[1]", "is an object in JSON"),
        ('{"a": {"$oid": "1"}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$numberLong": "9223372036854775808"}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$numberLong": "' + "9" * 5_000 + '"}}', "no value of MongoDB's Extended JSON"),
        ('{"a": 99999999999999999999}', "has 64 bits"),
        ('{"a": {"$minKey": 1}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$date": "yesterday"}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$date": "2026-11-27"}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$regularExpression": {"x": 1}}}', "no value of MongoDB's Extended JSON"),
        ('{"a": {"$binary": {"base64": "?"}}}', "no value of MongoDB's Extended JSON"),
        ('{"a": [1, "a"]}', "different BSON types are not supported: int32 and string"),
        ('{"a": [{"b": 1}, {"b": "a"}]}', "different BSON types are not supported: int32 and string"),
        ('{"__op": 1}', "field name duplication __op"),
        ('{"a":' * 150 + "1" + "}" * 150, "nested deeper"),
        ('{"a":' * 5_000 + "1" + "}" * 5_000, "nested"),
        ("[" * 100_000, "no Extended JSON"),
        ('{"a": [' + ",".join(f'{{"f{number}": 1}}' for number in range(30_000)) + "]}", "more than 20000 types"),
        ('{"a": [' + ",".join(f'{{"f{number}": 1}}' for number in range(15_000)) + "]}", "would become one of more"),
    ],
    ids=lambda part: part[:40],
)
def test_a_document_that_is_none_rejects_its_record_alone(text: str, said: str) -> None:
    """Whatever its text is; the record before it and after it become documents."""
    chain = chain_of(UNWRAP, add_fields="op")
    bad = update(after=text)
    _, rejected, last = sent(chain, (KEY, EVENTS["create"]), (KEY, bad), (KEY, EVENTS["create"]))
    assert said in rejected[2]
    assert last == ({"id": 1004}, {**DOCUMENT, "__op": "c"}, "")


@pytest.mark.parametrize("key", [None, {**KEY, "payload": {"id": "{"}}, {"schema": None, "payload": {"id": "1"}}])
def test_a_key_of_another_kind_makes_no_document(key: dict[str, Any] | None) -> None:
    """A record without the key of a MongoDB event passes as it is; a key that is no JSON rejects its record."""
    ((_, value, rejected),) = sent(chain_of(UNWRAP), (key, EVENTS["create"]))
    assert rejected or "after" in value
