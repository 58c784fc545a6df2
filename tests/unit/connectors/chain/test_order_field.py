"""What a record is ordered by if that is a field of its value: numbers and texts, as bytes that sort as they do."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.model.record import ORDER_VALUE
from connectors.chain.chain import Chain
from connectors.chain.order_field import MOST, OrderField, path_of, shown, sortable
from connectors.chain.spec import chain_faults, chain_spec, is_plain
from connectors.chain.task_growth import TaskGrowth
from connectors.data.schema import DECIMAL, INT64, SCALE, Field, Schema, Type
from tests.unit.connectors.chain.test_chain import batch

ENVELOPE = {
    "type": "struct",
    "name": "db.t.Envelope",
    "fields": [
        {"field": "before", "optional": True, "type": "struct", "fields": [{"field": "id", "type": "int64"}]},
        {"field": "after", "optional": True, "type": "struct", "fields": [{"field": "id", "type": "int64"}]},
        {"field": "source", "type": "struct", "fields": [{"field": "lsn", "type": "int64", "optional": True}]},
        {"field": "op", "type": "string"},
    ],
}
JSON = {"value.converter": "keyfold.Json", "value.converter.schemas.enable": "false", "compaction.order": "field:a.b"}
UNWRAP = {
    "value.converter": "keyfold.Json",
    "transforms": "row",
    "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
    "compaction.order": "field:source.lsn",
}
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-(10**30), 10**30)


def exact(number: float | Decimal) -> Decimal:
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


@given(numbers, numbers)
def test_numbers_sort_as_they_are(one: Any, other: Any) -> None:
    """Of whatever type, signed or not, equal ones alike: a float counts as the digits that it is written with."""
    first, second = sortable(one), sortable(other)
    assert first is not None
    assert second is not None
    assert (first > second) - (first < second) == (exact(one) > exact(other)) - (exact(one) < exact(other))


@given(numbers)
def test_a_number_is_shown_with_all_of_its_digits(number: Any) -> None:
    """So that the value of a truncate can be held against the database's."""
    value = sortable(number)
    assert value is not None
    assert Decimal(shown(value)) == exact(number)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (sortable(25_000_020), "25000020"),
        (sortable(Decimal("1e499998")), "1E+499998"),
        (sortable("0000002a:00000d58"), "0000002a:00000d58"),
        (b"n2", "6e32"),
        (b"n2x", "6e3278"),
        (b"\xff", "ff"),
    ],
)
def test_a_value_is_shown_as_it_came(value: bytes, text: str) -> None:
    """One that the storage has instead in hexadecimal digits."""
    assert shown(value) == text


@given(st.text(max_size=20), st.text(max_size=20), numbers)
def test_texts_sort_by_their_characters_and_after_numbers(one: str, other: str, number: Any) -> None:
    """By code points; a text of digits is a text."""
    first, second, third = sortable(one), sortable(other), sortable(number)
    assert first is not None
    assert second is not None
    assert third is not None
    assert (first > second, first < second) == (one > other, one < other)
    assert third < first


@pytest.mark.parametrize(
    ("value", "has"),
    [
        (0, True),
        (-0.0, True),
        (Decimal("-0E+999999999"), True),
        (10**MOST - 1, True),
        (10**MOST, False),
        (1 << 5_000_000, False),
        (Decimal("1E+400000"), True),
        (Decimal("1E+999999999999"), False),
        (Decimal("-1E-999999999999"), False),
        (Decimal("1" * (MOST + 1)), False),
        (Decimal("NaN"), False),
        (Decimal("-Infinity"), False),
        (math.nan, False),
        (math.inf, False),
        ("", True),
        ("\ud800", True),
        ("é" * (MOST // 2), True),
        ("é" * (MOST // 2 + 1), False),
        ("t" * 50_000_000, False),
        (True, False),
        (None, False),
        (b"bytes", False),
        ([1], False),
        ({"a": 1}, False),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, str | Decimal) else type(value).__name__,
)
def test_what_is_no_number_or_text_or_too_long_is_no_value(value: Any, has: bool) -> None:
    """It takes no time and no memory, however large it says that it is."""
    found = sortable(value)
    assert (found is not None) == has
    assert len(found or b"") <= MOST + 10


@pytest.mark.parametrize(
    ("value", "written", "found"),
    [
        ({"a": {"b": 7}}, b"kept", sortable(7)),
        ({"a": {"b": 7}}, None, sortable(7)),
        ({"a": {"b": None}}, b"kept", None),
        ({"a": [7]}, b"kept", None),
        ({"a.b": 7}, b"kept", None),
        (7, b"kept", None),
        (None, None, b""),
        ({"a": {}}, None, b""),
    ],
)
def test_the_field_is_looked_for_from_the_outermost_on(value: Any, written: bytes | None, found: bytes | None) -> None:
    """A tombstone without it is marked; a delete event that a transform makes a tombstone of has it."""
    assert OrderField(("a", "b")).of(None, value, written) == found


def test_a_decimal_is_the_number_that_its_schema_says() -> None:
    """Bytes of another schema are no value."""
    decimal = Schema(type=Type.BYTES, name=DECIMAL, parameters={SCALE: "2"})
    for kind, expected in ((decimal, sortable(Decimal("2.56"))), (Schema(type=Type.BYTES), None), (INT64, None)):
        struct = Schema(type=Type.STRUCT, fields=(Field("b", kind),))
        of_map = Schema(type=Type.MAP, key_schema=Schema(type=Type.STRING), value_schema=struct)
        assert OrderField(("a", "b")).of(of_map, {"a": {"b": b"\x01\x00"}}, b"") == expected


def test_values_are_looked_into_and_stay_as_they_are() -> None:
    """Byte for byte; a value that cannot be read is rejected, alone."""
    spec = chain_spec(JSON)
    assert not is_plain(spec)
    values = [b'{"a": {"b": 5} }', b"{", None, b"[]"]
    found = Chain(spec, str).apply(batch(*((b"k", value) for value in values)))
    assert found["value"].to_pylist() == values
    assert found[ORDER_VALUE].to_pylist() == [sortable(5), None, b"", None]
    assert [why is None for why in found["rejected"].to_pylist()] == [True, False, True, True]


def test_a_delete_event_becomes_a_tombstone_with_its_field() -> None:
    """The field is read before the transforms, so the order of events is that of rows and tombstones."""
    rows = [
        {"before": None, "after": {"id": 1}, "source": {"lsn": 10}, "op": "c"},
        {"before": {"id": 1}, "after": None, "source": {"lsn": 11}, "op": "d"},
        {"before": None, "after": {"id": 1}, "source": {"lsn": None}, "op": "c"},
    ]
    values = [json.dumps({"schema": ENVELOPE, "payload": row}).encode() for row in rows]
    found = Chain(chain_spec(UNWRAP), str).apply(batch(*((b"1", value) for value in (*values, None))))
    assert [value is None for value in found["value"].to_pylist()] == [False, True, False]
    assert found[ORDER_VALUE].to_pylist() == [sortable(10), sortable(11), None]


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({}, None),
        ({"value.converter": "io.confluent.connect.protobuf.ProtobufConverter"}, None),
        ({"value.converter": "keyfold.String"}, "values have fields only if a converter reads them"),
        ({"compaction.order": "header:a.b", "value.converter": "keyfold.String"}, None),
    ],
)
def test_a_field_needs_a_converter_that_reads_it(changed: dict[str, str], fault: str | None) -> None:
    """In the connector's own file, as the order is fixed at the first start."""
    converter = {key: text for key, text in JSON.items() if "value.converter" not in changed or "enable" not in key}
    given = {**converter, **changed}
    if "Protobuf" in given["value.converter"]:
        given["value.converter.schema.registry.url"] = "http://127.0.0.1:1"
    found = dict(chain_faults(given, str))
    assert ("compaction.order" in found) == (fault is not None)
    assert (fault or "") in found.get("compaction.order", "")
    assert dict(chain_faults({"compaction.order": "field:a"}, str)).keys() == {"compaction.order"}


def test_the_path_is_that_of_the_setting() -> None:
    """Names from the outermost on; another order has none."""
    assert path_of({"compaction.order": " Field:source.lsn"}) == ("source", "lsn")
    assert path_of({"compaction.order": "header:source.lsn"}) == path_of({}) == ()


def test_a_task_reads_no_more_records_than_values_can_be_held_of() -> None:
    """The worker holds the values of a whole portion together: 64 MiB of a task's, however well its files compress."""
    chain, growth = Chain(chain_spec(JSON), str), TaskGrowth(16_000)
    some = batch(*[(b"k", json.dumps({"a": {"b": "x" * 99}}).encode())] * 6)
    is_full = []
    for _ in range(2):
        assert [each.num_rows for each in chain.through([some], growth)] == [6]
        is_full.append(growth.is_full)
    assert (growth.ordered, is_full) == (1_200, [False, True])
