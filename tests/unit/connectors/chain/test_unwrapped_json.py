"""Rows that are taken out of change events in JSON at once are those that the chain gives record by record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.converters.json.converter import JsonConverter
from connectors.converters.json.unwrapper import ends_with_payload
from connectors.data.schema import DECIMAL, FLOAT32, INT32, STRING, Field, Schema, Type
from connectors.options import read
from tests.support.connect_classes.records import plain_values, structs, values_of
from tests.unit.connectors.chain.test_unwrapped import (
    ADDED,
    MODES,
    Record,
    assert_same,
    assert_same_by_columns,
    batch,
    chains,
    damaged,
)

UNWRAP: Final = {
    "transforms": "row",
    "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
}
JSON: Final = {"key.converter": "keyfold.Json", "value.converter": "keyfold.Json"}
WRITTEN: Final = st.sampled_from((
    {},
    {"output.value.converter": "keyfold.Json", "output.value.converter.schemas.enable": "false"},
    {"output.value.converter": "keyfold.Json", "output.value.converter.schemas.enable": "false",
     "output.value.converter.decimal.format": "NUMERIC"},
    {"output.value.converter": "keyfold.Json", "output.value.converter.decimal.format": "NUMERIC",
     "output.value.converter.replace.null.with.default": "false"},
))  # fmt: skip
"""Settings of the converter of the output's values."""
ODD: Final = (
    "null", "5.0", "1e3", "-0", "-0.0", "1e400", "1e-400", "1e-99999999999999999999", "true", '"x"', '"NaN"', '"AA=="',
    '"AB=="', '"A"', "[]", "{}", "[null]", '{"a":1}', str(1 << 63), str(1 << 70), "9007199254740993.0", "3.5e38", "127",
    '"\\ud800"', "\x01",
)  # fmt: skip


def json_envelope(row: Schema) -> Schema:
    """Returns the schema of change events of rows."""
    own = Schema(**{**{name: getattr(row, name) for name in Schema.__struct_fields__}, "optional": True, "name": "Row"})
    source = Schema(type=Type.STRUCT, fields=(
        Field("table", STRING), Field("kind", Schema(type=Type.STRING, default="A")), Field("real", FLOAT32),
        Field("lsn", Schema(type=Type.INT64, optional=True)), Field("flag", Schema(type=Type.BOOLEAN, default=True)),
    ))  # fmt: skip
    block = Schema(type=Type.STRUCT, optional=True, fields=(Field("id", STRING), Field("no", INT32)))
    fields = (
        Field("before", own), Field("after", own), Field("source", source), Field("op", STRING),
        Field("transaction", block),
    )  # fmt: skip
    return Schema(type=Type.STRUCT, name="a.Envelope", version=1, fields=fields)


def edited(text: str) -> st.SearchStrategy[str]:
    """Returns what puts anything in place of a value of JSON, leaves a member out, or doubles or renames one."""
    tree = json.loads(text)

    def edit(pick: Callable[[Any], Any], node: Any) -> str:
        if isinstance(node, dict) and node and pick(st.integers(0, 3)):
            name = pick(st.sampled_from(sorted(node)))
            pairs = [(key, json.dumps(member)) for key, member in node.items() if key != name]
            inner = edit(pick, node[name])
            changed = ((name, inner),)
            pairs += pick(st.sampled_from(((), changed, changed, ((name, "1"), *changed), (("no", "1"), *changed))))
            return "{" + ",".join(f"{json.dumps(key)}:{member}" for key, member in pairs) + "}"
        if isinstance(node, list) and node:
            return "[" + ",".join([edit(pick, node[0]), *map(json.dumps, node[1:])]) + "]"
        return pick(st.sampled_from(ODD))

    return st.composite(lambda draw: edit(draw, tree))()


# each turn has other examples
@pytest.mark.parametrize("_turn", [1, *(pytest.param(turn, marks=pytest.mark.long) for turn in (2, 3))])
@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_events_in_json_become_what_they_become_one_by_one(_turn: int, data: st.DataObject) -> None:
    """Rows of any schema, with members that are missing, doubled, too large or of another type, and damaged texts."""
    form = {
        "value.converter.decimal.format": data.draw(st.sampled_from(("BASE64", "NUMERIC"))),
        "value.converter.replace.null.with.default": data.draw(st.sampled_from(("true", "false"))),
        "transforms.row.delete.tombstone.handling.mode": data.draw(MODES),
        "transforms.row.add.fields": data.draw(ADDED),
        "transforms.row.add.headers": data.draw(ADDED),
        "transforms.row.replace.null.with.default": data.draw(st.sampled_from(("true", "false"))),
        **data.draw(WRITTEN),
    }
    columns, records = chains({**JSON, **UNWRAP, **form})
    row = data.draw(structs(maps=data.draw(st.booleans())))
    schema = json_envelope(row)
    rows = values_of(schema.fields[1].schema)
    source = {"table": data.draw(st.text()), "kind": None, "real": 1.5, "lsn": data.draw(st.none() | st.integers(0, 9))}
    block = data.draw(st.sampled_from((None, {"id": "é", "no": 7})))
    decimals = {"decimal.format": form["value.converter.decimal.format"]}
    writer = JsonConverter(read(JsonConverter.OPTIONS, decimals), is_key=False)
    whole = []
    for names in (("after",), ("before", "after"), ("before",)):
        event = {"before": None, "after": None, "source": source, "op": "u", "transaction": block} | {
            name: data.draw(rows) for name in names
        }
        text = writer.from_connect_data("t", [], schema, event)
        assert text is not None
        whole.append(text)
    head = whole[0][: whole[0].index(b',"payload":')]
    payload = st.sampled_from([text[len(head) + 11 : -1].decode() for text in whole])
    ways = st.sampled_from((
        ',"payload":%s}', ', "payload" : %s }', ',"payload":%s} ', ',"payload":%s,"payload":1}', ',"payload":%s}}',
    ))  # fmt: skip
    texts = st.sampled_from(whole) | st.none()
    texts |= payload.flatmap(edited).map(lambda text: head + b',"payload":' + text.encode() + b"}")
    texts |= st.tuples(payload, ways).map(lambda pair: head + (pair[1] % pair[0]).encode())
    texts |= payload.map(lambda text: b'{"payload":' + text.encode() + b"," + head[1:] + b"}")
    texts |= st.sampled_from(whole).flatmap(damaged)
    some: list[Record] = [(b"1", each, ()) for each in whole]
    assert_same(columns, records, batch(some))
    for _ in range(2):
        some += [(b"1", each, ()) for each in data.draw(st.lists(texts, max_size=8))]
        assert_same(columns, records, batch(data.draw(st.permutations(some))))


PAID: Final = Schema(type=Type.STRUCT, fields=(
    Field("id", INT32), Field("city", Schema(type=Type.STRING, default="none", optional=True)),
    Field("price", Schema(type=Type.BYTES, name=DECIMAL, parameters={"scale": "2"})), Field("weight", FLOAT32),
    Field("tags", Schema(type=Type.ARRAY, value_schema=STRING)), Field("size", Schema(type=Type.FLOAT64)),
))  # fmt: skip


def paid(count: int) -> list[Record]:
    """Returns change events in JSON: of ten, one is a delete, one has a whole number as 1.0, one lacks a default."""
    writer = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    made: list[Record] = []
    for number in range(count):
        row = {"id": 1, "city": "é", "price": b"\x07", "weight": 0.5, "tags": ["a"], "size": 2.5}
        sides = {"before": row} if number % 10 == 1 else {"after": row}
        event = {"source": {"table": "t", "real": 1.5}, "op": "u", **sides}
        text = writer.from_connect_data("t", [], json_envelope(PAID), event)
        assert text is not None
        if number % 10 == 2:
            text = text.replace(b'"id":1', b'"id":1.0')
        if number % 10 == 3:
            text = text.replace('"city":"é",'.encode(), b"")
        made.append((b"1", text, ()))
    return made


def test_usual_events_in_json_are_done_by_columns() -> None:
    """All but those that Java's converter does not write so, such as a whole number with a point."""
    columns, records = chains({**JSON, **UNWRAP, "compaction.key.identity": "json"})
    made, rest = assert_same_by_columns(columns, records, batch(paid(100)))
    assert rest == [number for number in range(100) if number % 10 == 2]
    assert (made["rejected"].null_count, made["value"].null_count) == (100, 10)


@pytest.mark.parametrize("mode", ["tombstone", "drop", "rewrite", "rewrite-with-tombstone"])
@pytest.mark.parametrize("fields", ["", "op,lsn", "transaction.id,real,flag"])
def test_rows_in_json_with_added_fields_are_done_by_columns(mode: str, fields: str) -> None:
    """Those of deletions, too; a null in the event stands for its default."""
    settings_ = {"transforms.row.add.fields": fields, "transforms.row.delete.tombstone.handling.mode": mode}
    columns, records = chains({**JSON, **UNWRAP, **settings_})
    _, rest = assert_same_by_columns(columns, records, batch([*paid(100), (b"k", None, ())]))
    assert rest == [number for number in range(100) if number % 10 == 2]


@pytest.mark.parametrize("converter", ["Simple", "String", "Json"])
def test_headers_are_added_to_rows_in_json_by_columns(converter: str) -> None:
    """A null in the event stands for its default."""
    names = {"transforms.row.add.headers": "op,source.lsn,kind,transaction.no,flag"}
    columns, records = chains({**JSON, **UNWRAP, **names, "header.converter": f"keyfold.{converter}"})
    made, rest = assert_same_by_columns(columns, records, batch([*paid(100), (b"k", None, (("a", b"1"),))]))
    assert rest == [number for number in range(100) if number % 10 == 2]
    assert [header["key"] for header in made["headers"][1].as_py()][:2] == ["__op", "__source_lsn"]


@pytest.fixture(scope="module")
def events() -> list[Record]:
    return paid(10)


PLAIN_KEYS: Final = {"output.key.converter": "keyfold.Json", "output.key.converter.schemas.enable": "false"}
PLAIN_ROWS: Final = {
    "output.value.converter": "keyfold.Json",
    "output.value.converter.schemas.enable": "false",
    "output.value.converter.decimal.format": "NUMERIC",
}


@pytest.mark.parametrize("identity", ["json", "bytes"])
def test_plain_json_is_written_by_columns(identity: str) -> None:
    """Of keys and rows in JSON with schemas, as docs/cdc.md has them; a key that is none is rejected."""
    columns, records = chains({**JSON, **UNWRAP, **PLAIN_KEYS, **PLAIN_ROWS, "compaction.key.identity": identity})
    key = b'{"schema":{"type":"struct","fields":[{"field":"id","type":"int32"}]},"payload":{"id":%d}}'
    bad = (b"1", b'{"schema":null,"payload":null}', b"", key + b" ", key * 400)
    keys = [bad[number // 10 % 5] if number % 10 == 4 else key % (number % 7) for number in range(200)]
    some = [(own, value, ()) for own, (_, value, _) in zip(keys, paid(200), strict=True)]
    made, rest = assert_same_by_columns(columns, records, batch(some))
    assert rest == [number for number in range(200) if number % 10 in {2, 4}]
    assert made["key"][0].as_py() == b'{"id":0}'
    assert b'"price":0.07,' in made["value"][0].as_py()


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_keys_are_written_in_their_form_as_they_are_one_by_one(events: Sequence[Record], data: st.DataObject) -> None:
    """With or without a transform and an identity; a key that cannot be written has its record rejected."""
    steps = data.draw(st.sampled_from((UNWRAP, {})))
    identity = {"compaction.key.identity": data.draw(st.sampled_from(("json", "bytes")))}
    columns, records = chains({**JSON, **steps, **PLAIN_KEYS, **identity})
    assert columns.columns is not None
    texts = plain_values().map(lambda value: b'{"schema":null,"payload":' + json.dumps(value).encode() + b"}")
    whole = st.sampled_from([b'{"schema":{"type":"int32"},"payload":%d}' % number for number in range(3)])
    keys = (
        whole
        | texts
        | whole.flatmap(damaged)
        | st.none()
        | st.just(b'{"schema":null,"payload":"' + b"a" * 9_000 + b'"}')
    )
    values = st.none() | st.sampled_from([value for _, value, _ in events]) | st.just(b'{"schema":null,"payload":null}')
    for _ in range(2):
        assert_same(columns, records, batch(data.draw(st.lists(st.tuples(keys, values, st.just(())), max_size=12))))


PLAIN: Final = {f"{side}.converter.schemas.enable": "false" for side in ("key", "value")}


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_plain_json_passes_as_it_does_one_by_one(data: st.DataObject) -> None:
    """Whatever it holds: what is no JSON, or has a number that is too large, is rejected; a null is a tombstone."""
    unwrap = {**UNWRAP, "transforms.row.delete.tombstone.handling.mode": data.draw(MODES)}
    steps = data.draw(st.sampled_from((unwrap, {"compaction.key.identity": "json"})))
    columns, records = chains({**JSON, **PLAIN, **steps})
    whole = plain_values().map(lambda value: json.dumps(value).encode())
    nested = st.integers(195, 205).map(lambda depth: b"[" * depth + b"]" * depth)
    marked = whole.map(lambda text: b"\xef\xbb\xbf" + text)
    odd = st.sampled_from(ODD).map(str.encode) | whole.flatmap(damaged) | st.sampled_from((b"", b" ", b" null "))
    values = whole | whole.map(lambda text: b" " + text + b"\n") | nested | marked | odd | st.none()
    keys = st.just(b'{"a":1}') | st.just(b'{"a": 1.0}') | st.none() | st.binary(max_size=2)
    headers = st.just(()) | st.just((("a", b"1"),))
    some = data.draw(st.lists(st.tuples(keys, values, headers), max_size=12))
    assert_same(columns, records, batch(some, ("t", "u")))


def test_usual_plain_json_is_done_by_columns() -> None:
    """All but what may be null, has long numbers, or begins with the mark of an encoding."""
    texts = [b'{"a":1}', b"null", b'{"a":12345678901234567890}', b"\xef\xbb\xbf1", b'{"a":', *[b'{"b":"x"}'] * 20, None]
    some = batch([(b"1", text, ()) for text in texts])
    for steps in (UNWRAP, {"compaction.key.identity": "json"}):
        columns, records = chains({**JSON, **PLAIN, **steps})
        assert columns.columns is not None
        done = columns.columns.of(some)
        assert done is not None
        assert done.rest.tolist() == ([1, 2, 3, 4] if steps is UNWRAP else [])
        assert_same(columns, records, some)


def test_events_without_a_row_in_their_schema_are_left() -> None:
    """A schema may have the name of change events, and neither of their rows."""
    columns, records = chains({**JSON, **UNWRAP})
    text = b'{"schema":{"type":"struct","name":"a.Envelope","fields":[{"field":"op","type":"string"}]},"payload":%s}'
    some = batch([(b"1", text % b'{"op":"u"}', ())] * 5)
    for _ in range(2):
        assert_same(columns, records, some)


def test_a_row_with_a_default_stands_for_a_null() -> None:
    """Of the event's schema: its field `after` may have one as any other field."""
    columns, records = chains({**JSON, **UNWRAP})
    row = '{"type":"struct","optional":true,"default":{"a":1},"fields":[{"field":"a","type":"int32"}],"field":"%s"}'
    text = '{"schema":{"type":"struct","name":"a.Envelope","fields":[%s,%s]},"payload":%s}'
    parts = (row % "before", row % "after", '{"before":{"a":2},"after":null}')
    for _ in range(2):
        made = assert_same(columns, records, batch([(b"1", (text % parts).encode(), ())] * 5))
    assert made["value"].null_count == 0


@pytest.mark.parametrize("text", ["1e-99999999999999999999", "1e400", "-0", "5", '"NaN"'])
def test_numbers_in_json_are_those_that_they_are_by_themselves(text: str) -> None:
    """A schema with a Decimal has numbers read with all their digits, which an exponent may be too large for."""
    columns, records = chains({**JSON, **UNWRAP})
    some = [(key, (value or b"").replace(b"2.5", text.encode()), headers) for key, value, headers in paid(10)]
    assert_same(columns, records, batch(paid(20)))
    assert_same(columns, records, batch([*paid(20), *some]))


@pytest.mark.parametrize(
    ("old", "new"), [("}}", "}]"), ("}}", "} "), ("}}", "}} "), ('"op":"u"', '"op":"u","no":1e99999999999999999999')]
)
def test_the_end_of_a_message_counts_and_what_its_schema_has_not(old: str, new: str) -> None:
    """It is no JSON if another bracket closes it, or a member that nothing looks at is a number too large."""
    columns, records = chains({**JSON, **UNWRAP})
    (_, value, _), *_ = paid(1)
    assert value is not None
    place = value.rindex(old.encode())
    bad = value[:place] + new.encode() + value[place + len(old) :]
    assert_same(columns, records, batch(paid(20)))
    assert_same(columns, records, batch([*paid(20), (b"1", bad, ())]))


def test_a_null_within_a_row_stands_for_its_default() -> None:
    """In each struct of it, and so in the bytes that are written."""
    columns, records = chains({**JSON, **UNWRAP})
    city = Schema(type=Type.STRING, default="none", optional=True)
    address = Schema(type=Type.STRUCT, fields=(Field("city", city),))
    writer = JsonConverter(read(JsonConverter.OPTIONS, {}), is_key=False)
    for row in (Schema(type=Type.STRUCT, fields=(Field("address", address),)), address):
        event = {"after": {"address": {"city": "x"}, "city": "x"}, "source": {"table": "t", "real": 1.5}, "op": "u"}
        text = writer.from_connect_data("t", [], json_envelope(row), event)
        assert text is not None
        some = batch([(b"1", text, ()), (b"1", text.replace(b'"city":"x"', b'"city":null'), ())])
        assert_same(columns, records, some)
        made = assert_same(columns, records, some)
        assert b'"city":"none"' in made["value"][1].as_py()


@pytest.mark.parametrize(
    ("prefix", "is_so"),
    [
        (b'{"schema":{},"payload":', True),
        (b'{"schema":{}, "payload" : ', True),
        (b'{"payload":1,"schema":', False),
        (b'{"payload":"a","schema":"\\"payload\\":\\', False),
    ],
)
def test_only_what_ends_with_the_name_payload_is_what_messages_begin_with(prefix: bytes, is_so: bool) -> None:
    """A message may name its schema last, which may be as long as its payload."""
    assert ends_with_payload(prefix) is is_so
