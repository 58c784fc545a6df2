"""Rows that are taken out of change events by columns are those that the chain gives record by record."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Sequence
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from compactor.model.record import SOURCE, TopicPartition
from connectors.chain.chain import Chain
from connectors.chain.spec import chain_faults, chain_spec
from connectors.chain.task_growth import TaskGrowth
from connectors.converters.avro.converter import without_logical_types
from connectors.converters.avro.schemas import ToAvro
from connectors.data.schema import Schema
from tests.support.connect_classes.records import structs, values_of
from tests.support.memory.schema_registry import MemoryRegistry
from tests.unit.connectors.chain.test_change_events import memory
from tests.unit.connectors.converters.test_avro import _is_avro

__all__ = ["memory"]  # a fixture

AVRO: Final = {
    f"{side}.converter{more}": text
    for side in ("key", "value")
    for more, text in (("", "keyfold.Avro"), (".schema.registry.url", "http://a:1"))
}
UNWRAP: Final = {
    "transforms": "row",
    "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
    "value.converter.enhanced.avro.schema.support": "true",
}
MODES: Final = st.sampled_from(("tombstone", "drop", "delete-to-tombstone", "rewrite", "rewrite-with-tombstone"))
KEY: Final = {"type": "record", "name": "Key", "namespace": "k", "fields": [{"name": "id", "type": "string"}]}
Record = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]


PARTS: Final = ("before", "after", "source", "op", "transaction")
ADDED: Final = st.sampled_from((
    "", "op", "op,lsn", "lsn:when,source.table:t,op", "kind", "real,flag,number", "transaction.id:a,op",
    "transaction.no:b", "source", "transaction", "source.no,op", "op,source.op:again", "id", ".after:more",
    "table:__op,op",
))  # fmt: skip
"""What `add.fields` may be."""


def envelope(row: Any, order: Sequence[str] = PARTS) -> dict[str, Any]:
    """Returns the schema of change events of rows, with its fields in this order."""
    name = f"{row['namespace']}.{row['name']}" if "namespace" in row else row["name"]
    rows = [type_ for type_ in order if type_ in ("before", "after")]
    source = {"type": "record", "name": "Source", "namespace": "io.d", "fields": [
        {"name": "table", "type": "string"}, {"name": "lsn", "type": ["null", "long"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "real", "type": "float"}, {"name": "flag", "type": "boolean"}, {"name": "number", "type": "int"},
    ]}  # fmt: skip
    transaction = {"type": "record", "name": "Block", "namespace": "event", "fields": [
        {"name": "id", "type": "string"}, {"name": "no", "type": "long"},
    ]}  # fmt: skip
    types = {
        "source": source, "op": "string", "transaction": ["null", transaction], rows[0]: ["null", row],
        **{other: ["null", name] for other in rows[1:]}
    }  # fmt: skip
    space = row.get("namespace", "")
    fields = [{"name": field, "type": types[field]} for field in order]
    return {"type": "record", "name": "Envelope", "namespace": space, "connect.name": "a.Envelope", "fields": fields}


def encoded(schema: Any, value: Any, number: int) -> bytes:
    """Returns a message in the registry's wire format."""
    buffer = io.BytesIO()
    buffer.write(struct.pack(">bI", 0, number))
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(without_logical_types(schema)), value)
    return buffer.getvalue()


def batch(records: Sequence[Record], topics: Sequence[str] = ("t",)) -> pa.RecordBatch:
    """Makes a batch of records, which lie in the topics in turn."""
    rows = [
        {"topic": topics[at % len(topics)], "partition": at % 3, "offset": at, "timestamp": 7, "timestamp_type": 0,
         "key": key, "value": value, "headers": [{"key": name, "value": data} for name, data in headers]}
        for at, (key, value, headers) in enumerate(records)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def chains(configured: dict[str, str]) -> tuple[Chain, Chain]:
    """Returns a chain, and the same chain that does all record by record."""
    assert chain_faults(configured, str) == ()
    spec = chain_spec(configured)
    return Chain(spec, str), Chain(spec, str, is_by_columns=False)


def assert_same(columns: Chain, records: Chain, given_batch: pa.RecordBatch) -> pa.RecordBatch:
    """Asserts that both chains make the same of a batch; returns it."""
    made, expected = columns.apply(given_batch), records.apply(given_batch)
    assert made.schema == expected.schema
    assert made.to_pylist() == expected.to_pylist()
    made.validate(full=True)
    assert (columns.filtered, columns.truncated) == (records.filtered, records.truncated)
    return made


def assert_same_by_columns(columns: Chain, records: Chain, some: pa.RecordBatch) -> tuple[pa.RecordBatch, list[int]]:
    """Asserts the same of a batch whose schemas are new, and again; returns it, and the rows not done by columns."""
    assert columns.columns is not None
    assert columns.columns.of(some) is None
    assert_same(columns, records, some)
    done = columns.columns.of(some)
    assert done is not None
    return assert_same(columns, records, some), done.rest.tolist()


def damaged(data: bytes) -> st.SearchStrategy[bytes]:
    """Returns what makes `data` shorter or longer, or changes some of its bytes."""
    place = st.integers(0, len(data) - 1)
    cut = place.map(lambda end: data[:end])
    longer = st.binary(min_size=1, max_size=3).map(lambda more: data + more)
    changed = st.tuples(place, st.sampled_from((0, 1, 2, 3, 4, 0x7F, 0x80, 0xC3, 0xFF))).map(
        lambda pair: data[: pair[0]] + bytes([pair[1]]) + data[pair[0] + 1 :]
    )
    return (
        cut
        | longer
        | changed
        | changed.flatmap(
            lambda once: st.tuples(st.integers(0, len(once) - 1), st.integers(0, 255)).map(
                lambda pair: once[: pair[0]] + bytes([pair[1]]) + once[pair[0] + 1 :]
            )
        )
    )


# each turn has other examples
@pytest.mark.parametrize("_turn", [1, *(pytest.param(turn, marks=pytest.mark.long) for turn in (2, 3))])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_events_of_any_schema_become_what_they_become_one_by_one(
    memory: MemoryRegistry, _turn: int, data: st.DataObject
) -> None:
    """Whole or damaged, with nulls, headers and keys of any kind: records, rejections and counts are equal."""
    schema = data.draw(structs(maps=False).filter(_is_avro))
    schema = Schema(**{**{name: getattr(schema, name) for name in Schema.__struct_fields__}, "optional": False})
    order = data.draw(st.permutations(PARTS))
    avro = envelope(ToAvro().schema(schema), order)
    identity = data.draw(st.sampled_from(("avro", "bytes", "json")))
    mode = {
        "transforms.row.delete.tombstone.handling.mode": data.draw(MODES),
        "transforms.row.add.fields": data.draw(ADDED),
        "transforms.row.add.headers": data.draw(ADDED),
        "transforms.row.add.headers.prefix": data.draw(st.sampled_from(("__", ""))),
        "transforms.row.replace.null.with.default": data.draw(st.sampled_from(("true", "false"))),
    }
    columns, records = chains({**AVRO, **UNWRAP, **mode, "compaction.key.identity": identity})
    value_id, key_id = memory.add(avro), memory.add(KEY)
    row = values_of(schema)
    source = {
        "table": data.draw(st.text(max_size=80)),
        "lsn": data.draw(st.none() | st.integers(0, 1 << 60)),
        "kind": "B", "real": 1.5, "flag": data.draw(st.booleans()), "number": data.draw(st.integers(-1 << 31, 1 << 30)),
    }  # fmt: skip
    event = {"source": source, "op": "u", "transaction": data.draw(st.sampled_from((None, {"id": "é", "no": 7})))}
    whole = [
        encoded(avro, {"before": before, "after": after, **event}, value_id)
        for before, after in ((None, data.draw(row)), (data.draw(row), data.draw(row)), (data.draw(row), None))
    ]
    key = encoded(KEY, {"id": "a"}, key_id)
    values = st.sampled_from(whole) | st.none() | st.sampled_from(whole).flatmap(damaged)
    keys = st.just(key) | st.none() | damaged(key)
    headers = st.just(()) | st.sampled_from(((("a", b"1"),), (("__value_schema_id", whole[0][:5]),)))
    some: list[Record] = [(key, each, ()) for each in whole]
    assert_same(columns, records, batch(some))
    some += data.draw(st.lists(st.tuples(st.just(key), st.sampled_from(whole), st.just(())), max_size=10))
    some += data.draw(st.lists(st.tuples(keys, values, headers), max_size=6))
    assert_same(columns, records, batch(data.draw(st.permutations(some)), ("t", "u")))


ORDER: Final = {"type": "record", "name": "Value", "namespace": "shop", "fields": [
    {"name": "id", "type": "int"}, {"name": "city", "type": "string"}, {"name": "note", "type": ["null", "string"]},
    {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["X", "Y"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]}  # fmt: skip


def orders(memory: MemoryRegistry, count: int, longest: int = 1) -> list[Record]:
    """Returns change events of orders: of twenty, one is a delete, one has a text that is not ASCII, and one a tag.

    `longest`: the characters of a tag.
    """
    avro = envelope(ORDER)
    value_id, key_id = memory.add(avro), memory.add(KEY)
    made: list[Record] = []
    for number in range(count):
        city, tags = "Łódź" if number % 20 == 3 else "x" * (number % 150), ["a" * longest] if number % 20 == 5 else []
        row = {"id": number, "city": city, "note": None, "paid": 1 << 41, "kind": "Y", "tags": tags}
        is_delete = number % 20 == 7
        source = {"table": "orders", "lsn": number, "kind": "A", "real": 0.5, "flag": True, "number": -number}
        event = {"before": row if is_delete else None, "after": None if is_delete else row, "source": source, "op": "u"}
        event["transaction"] = {"id": f"t{number}", "no": 1} if number % 2 else None
        made.append((encoded(KEY, {"id": f"k{number % 50}"}, key_id), encoded(avro, event, value_id), ()))
    return made


def test_usual_events_are_done_by_columns(memory: MemoryRegistry) -> None:
    """All but those that hold a list; the chain has to have met their schema, and its row's, before."""
    columns, records = chains({**AVRO, **UNWRAP, "compaction.key.identity": "avro"})
    made, rest = assert_same_by_columns(columns, records, batch(orders(memory, 200)))
    assert rest == [number for number in range(200) if number % 20 == 5]
    assert made["offset"].to_pylist() == list(range(200))
    assert made["value"].null_count == 10


@pytest.mark.parametrize("fields", ["op", "lsn,op,table", "transaction.id,transaction.no", "real,flag,number", ""])
@pytest.mark.parametrize("mode", ["tombstone", "drop", "rewrite", "rewrite-with-tombstone"])
def test_rows_with_added_fields_are_done_by_columns(memory: MemoryRegistry, fields: str, mode: str) -> None:
    """Those of deletions, too; a field of a struct that is null is null."""
    settings_ = {"transforms.row.add.fields": fields, "transforms.row.delete.tombstone.handling.mode": mode}
    columns, records = chains({**AVRO, **UNWRAP, **settings_})
    some = batch([*orders(memory, 200), (b"k", None, ())], ("t", "u"))
    _, rest = assert_same_by_columns(columns, records, some)
    assert rest == [number for number in range(200) if number % 20 == 5]


@pytest.mark.parametrize("names", ["op", "op,lsn,transaction.id,flag,number,table"])
@pytest.mark.parametrize("mode", ["tombstone", "drop", "rewrite", "rewrite-with-tombstone"])
def test_headers_are_added_by_columns(memory: MemoryRegistry, names: str, mode: str) -> None:
    """After those that a record has; a deletion gets them, too, and a tombstone of the source none."""
    settings_ = {"transforms.row.add.headers": names, "transforms.row.delete.tombstone.handling.mode": mode}
    columns, records = chains({**AVRO, **UNWRAP, **settings_})
    own = orders(memory, 200)
    some = [
        (key, value, (("h", b"1"), ("h", b"2")) if number % 3 else ()) for number, (key, value, _) in enumerate(own)
    ]
    made, rest = assert_same_by_columns(columns, records, batch([*some, (b"k", None, (("a", b"1"),))], ("t", "u")))
    assert rest == [number for number in range(200) if number % 20 == 5]
    assert [header["key"] for header in made["headers"][2].as_py()][:3] == ["h", "h", "__op"]


def test_a_header_that_cannot_be_written_is_found_by_itself(memory: MemoryRegistry) -> None:
    """Its record alone is rejected."""
    bad = {"transforms.row.add.headers": "transaction.id", "header.converter": "keyfold.Bytes"}
    columns, records = chains({**AVRO, **UNWRAP, **bad})
    made, rest = assert_same_by_columns(columns, records, batch(orders(memory, 200)))
    assert made["rejected"].null_count == 100
    assert rest == [number for number in range(200) if number % 20 == 5 or number % 2]


@pytest.mark.parametrize("name", ["__value_schema_id", "__key_schema_id"])
def test_a_header_that_names_a_schema_is_not_added_by_columns(memory: MemoryRegistry, name: str) -> None:
    """The one of a value that is written is taken away."""
    named = {"transforms.row.add.headers": f"op:{name}", "transforms.row.add.headers.prefix": ""}
    columns, records = chains({**AVRO, **UNWRAP, **named})
    for _ in range(2):
        assert_same(columns, records, batch(orders(memory, 40)))


@pytest.mark.parametrize("fields", ["", "op,lsn,real,flag,number,transaction.id"])
def test_a_damaged_event_is_rejected_as_it_is_by_itself(memory: MemoryRegistry, fields: str) -> None:
    """Wherever a byte is changed, or the data ends."""
    columns, records = chains({**AVRO, **UNWRAP, "transforms.row.add.fields": fields})
    good = orders(memory, 40)
    assert_same(columns, records, batch(good))
    chance = random.Random(5)  # no secret depends on it
    rejected = 0
    for _ in range(40):
        some = []
        for key, value, headers in good:
            assert value is not None
            place, byte = chance.randrange(len(value)), chance.choice((0, 1, 2, 4, 0x7F, 0x80, 0xC3, 0xFF))
            bad = value[:place] + bytes([byte]) + value[place + 1 :] if chance.random() < 0.7 else value[:place]
            some.append((key, bad if chance.random() < 0.3 else value, headers))
        made = assert_same(columns, records, batch(some))
        rejected += len(some) - made["rejected"].null_count
    assert rejected > 100


def test_a_record_that_was_rejected_before_stays_as_it_is(memory: MemoryRegistry) -> None:
    """Its headers could not be read, for one."""
    columns, records = chains({**AVRO, **UNWRAP})
    some = batch(orders(memory, 40))
    assert_same(columns, records, some)
    rejected = pa.array(["no" if number % 4 == 0 else None for number in range(40)])
    made = assert_same(columns, records, some.set_column(SOURCE.get_field_index("rejected"), "rejected", rejected))
    assert made["value"][4] == some["value"][4]


def test_a_batch_that_is_part_of_a_larger_one_is_read_from_its_own_place(memory: MemoryRegistry) -> None:
    """Arrow's slices share the bytes of all."""
    columns, records = chains({**AVRO, **UNWRAP})
    whole = batch(orders(memory, 100))
    assert_same(columns, records, whole)
    for first in (0, 1, 50, 99):
        assert_same(columns, records, whole.slice(first, 30))
    assert_same(columns, records, whole.slice(0, 0))


def test_pieces_end_as_those_of_the_records_that_are_left(memory: MemoryRegistry) -> None:
    """What becomes of a batch is handed on in pieces, and no more of it is made once the task's growth is full."""
    columns, records = chains({**AVRO, **UNWRAP, "transforms.row.delete.tombstone.handling.mode": "drop"})
    assert_same(columns, records, batch(orders(memory, 40)))
    some = batch(orders(memory, 200, longest=5 << 20))
    pieces = list(columns.through([some]))
    assert len(pieces) == 3
    assert pa.concat_batches(pieces).to_pylist() == records.apply(some).to_pylist()
    assert columns.filtered == records.filtered
    columns.filtered.clear()
    growth = TaskGrowth(0)
    (piece,) = columns.through([some], growth)
    ended = some.num_rows - growth.unused
    assert piece["offset"].to_pylist() == [number for number in range(ended) if number % 20 != 7]
    assert columns.filtered.total() == sum(number % 20 == 7 for number in range(ended))


def test_what_an_event_is_written_as_depends_on_its_topic(memory: MemoryRegistry) -> None:
    """A schema is registered for the topic's subject, so its id may be another one's there."""
    columns, records = chains({**AVRO, **UNWRAP, "output.topic": "${topic}.rows"})
    some = batch(orders(memory, 100), ("a", "b", "c"))
    assert_same(columns, records, some)
    assert_same(columns, records, some)
    assert {f"{topic}.rows-value" for topic in "abc"} <= set(memory.subjects)


@pytest.mark.parametrize(
    "settings_of_chain",
    [
        {"transforms.row.add.fields": "op:a,op:b"},
        {"transforms.row.add.fields": "op:" + 5_000 * "a"},
        {"transforms.row.add.headers": "op,op:again"},
        {"output.key.converter": "keyfold.Json"},
        {"transforms.row.predicate": "p", "predicates": "p", "predicates.p.type": "RecordIsTombstone"},
        {"output.value.converter": "keyfold.Json"},
    ],
)
def test_a_chain_that_does_more_goes_record_by_record(
    memory: MemoryRegistry, settings_of_chain: dict[str, str]
) -> None:
    """It adds much or a header, asks a predicate, or writes values of Avro, or keys of a registry, in another form."""
    columns, _ = chains({**AVRO, **UNWRAP, **settings_of_chain})
    assert columns.columns is None


def test_partitions_of_dropped_records_are_counted(memory: MemoryRegistry) -> None:
    """Each under its own topic and partition."""
    columns, records = chains({**AVRO, **UNWRAP, "transforms.row.delete.tombstone.handling.mode": "drop"})
    some = batch(orders(memory, 60), ("a", "b"))
    assert_same(columns, records, some)
    columns.filtered.clear()
    columns.apply(some)
    assert columns.filtered == {TopicPartition("b", number): 1 for number in range(3)}


def test_a_chain_that_goes_record_by_record_compares_keys_at_once(memory: MemoryRegistry) -> None:
    """But a key of which a header names the schema, and keys that a step has changed."""
    fixed = {
        "type": "record",
        "name": "F",
        "fields": [{"name": "a", "type": {"type": "fixed", "name": "X", "size": 9}}],
    }
    named = (("apicurio.key.contentId", struct.pack(">q", memory.add(fixed))),)
    some = [(key, value, named if number == 70 else ()) for number, (key, value, _) in enumerate(orders(memory, 80))]
    two = {"transforms": "row,more", "transforms.more.type": "InsertHeader", "transforms.more.header": "h",
           "transforms.more.value.literal": "1", "compaction.key.identity": "avro"}  # fmt: skip
    chain = Chain(chain_spec({**AVRO, **UNWRAP, **two}), str)
    for _ in range(2):
        made = chain.apply(batch(some))
        texts = [f'{{"id":"k{number % 50}"}}' for number in range(80)]
        texts[70] = f'{{"a":b"{(some[70][0] or b"").hex()}"}}'
        assert [each and each.decode() for each in made["key_identity"].to_pylist()] == texts
    changed = {"transforms": "key", "transforms.key.type": "org.apache.kafka.connect.transforms.ReplaceField$Key",
               "transforms.key.renames": "id:name", "compaction.key.identity": "avro"}  # fmt: skip
    chain = Chain(chain_spec({**AVRO, **changed}), str)
    for _ in range(2):
        made = chain.apply(batch([(key, None, ()) for key, _, _ in some]))
        assert made["key_identity"].to_pylist() == [b'{"name":"k%d"}' % (number % 50) for number in range(80)]
