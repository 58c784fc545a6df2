"""InsertHeader's texts, casts of dates and missing timestamps are as Connect's classes have them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from connectors.chain.spec import ClassSpec, made
from connectors.converters.header_converters import SimpleHeaderConverter
from connectors.data.record import ConnectRecord
from connectors.data.schema import (
    BOOLEAN,
    DATE,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    STRING,
    TIME,
    Field,
    Schema,
    Type,
)
from connectors.data.values import Date
from connectors.options import OptionsError
from connectors.transforms.literals import parse_string
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Transform

DAYS = Schema(type=Type.INT32, name=DATE, version=1)
TIMES = Schema(type=Type.INT32, name=TIME, version=1)


def lists(schema: Schema | None) -> Schema:
    return Schema(type=Type.ARRAY, value_schema=schema)


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ('"x"', STRING, '"x"'), ('["2019-08-23"]', lists(DAYS), [18_131]),
        ("[2019-08-23, 1]", lists(DAYS), [18_131, 1]),
        ("[1, 300]", lists(INT16), [1, 300]), ('[1, "a"]', lists(None), [1, "a"]), ("[1, null]", STRING, "[1, null]"),
        ("[]", lists(None), []), ("{}", Schema(type=Type.MAP), {}), ("[a]", STRING, "[a]"), ("[1,]", lists(INT8), [1]),
        ('{"a": 1.5, "b": 2}', Schema(type=Type.MAP, key_schema=STRING, value_schema=FLOAT32), {"a": 1.5, "b": 2.0}),
        ('{"a": null}', Schema(type=Type.MAP, key_schema=STRING), {"a": None}), ("null", None, None),
        ("true", BOOLEAN, True), ("true}", STRING, "true}"), ("1.0", INT8, 1), ("0.1", FLOAT32, 0.10000000149011612),
        ("1e39", FLOAT64, 1e39), ("2019-08-23", DAYS, 18_131), ("1582-10-04", DAYS, -141_428), ("70000", INT32, 70_000),
        ("[0.5, 16777217]", lists(FLOAT32), [0.5, 16_777_216.0]),
        ('[{"a": 2019-08-23}, {}]', lists(Schema(type=Type.MAP)), [{"a": Date(18_131 * 86_400_000)}, {}]),
        ('[" 2019-08-23"]', lists(STRING), [" 2019-08-23"]), (" 2019-08-23", DAYS, 18_131),
        ("[-1, 12:30:15.250Z]", STRING, "[-1, 12:30:15.250Z]"),
        ("[128, 12:30:15.250Z]", lists(TIMES), [128, 45_015_250]),
        ("[70000, 2026-13-41]", lists(DAYS), [70_000, 20_859]), ("[2026-13-41, 70000]", STRING, "[2026-13-41, 70000]"),
        ("{1: null, 1: 2}", Schema(type=Type.MAP, key_schema=INT8, value_schema=INT8), {1: 2}),
        ("{1970-01-01: null, 00:00:00.000Z: 2}", Schema(type=Type.MAP, key_schema=TIMES, value_schema=INT8), {0: 2}),
        ("{1: 2, 1: null}", STRING, "{1: 2, 1: null}"),
        ("a:b", STRING, "a:b"), ("[" * 500, STRING, "[" * 500), ("", STRING, ""),
    ],
)  # fmt: skip
def test_literals(text: str, schema: Schema | None, value: Any) -> None:
    """A text in quotes keeps them, unless it is a member; one that is no literal as a whole is itself."""
    assert parse_string(text) == (schema, value)


@pytest.mark.parametrize("text", ["{false: 1, 00: 2}", '["a", {1: 1, "b": 2, true: 3}]', "{true: {0: 1, false: 1}}"])
def test_a_map_that_would_lose_an_entry_is_refused(text: str) -> None:
    """Java tells true from 1, and Python takes them for one key. A key that comes twice replaces itself in both."""
    with pytest.raises(OptionsError, match=r"true and 1, or false and 0"):
        made(ClassSpec("InsertHeader", {"header": "h", "value.literal": text}), TRANSFORMS, str)
    assert parse_string("{1: 2, 1: 3, true: 4}".replace("true", "2"))[1] == {1: 3, 2: 4}
    assert parse_string("{true: 1, true: 2}")[1] == {True: 2}


TIME_AMONG_DATES = "[12:30:15.250Z, 2026-01-31]"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{[1]: 2}", "a list or a map as a key"),
        ("{{}: 2}", "a list or a map as a key"),
        ("[1, {[]: 1}]", "a list or a map as a key"),
        (TIME_AMONG_DATES, "a time of day among dates"),
        ("[{1: [2026-01-31, 12:30:15.250Z]}]", "a date among times"),
        ("{2026-01-31: 1, 12:30:15.250Z: 2}", "a date among times"),
    ],
)
def test_what_keyfold_cannot_hold_is_refused(text: str, why: str) -> None:
    """Kafka Connect has it, though converters may fail on it, and the text would be another value."""
    with pytest.raises(OptionsError, match=why):
        made(ClassSpec("InsertHeader", {"header": "h", "value.literal": text}), TRANSFORMS, str)


@pytest.mark.parametrize("part", [TIME_AMONG_DATES, "{[1]: 2}", "{true: 1, 1: 2}"])
def test_a_text_that_is_no_literal_as_a_whole_is_itself_whatever_is_in_it(part: str) -> None:
    """Between quotes it is a text, too."""
    for text in (f"[{part}, x]", f"{{1: {part}"):
        assert parse_string(text) == (STRING, text)
    assert parse_string(f'["{part}"]')[1] == [part]


def test_dates_and_times_are_held_next_to_each_other_where_nothing_has_a_schema() -> None:
    """As Java's dates, in a list of which the members have nothing in common."""
    assert parse_string(f"[a, {TIME_AMONG_DATES}]".replace("a,", "1,"))[1] == [1, [45_015_250, 1_769_817_600_000]]


@pytest.mark.parametrize(
    "text",
    ["[" * 20_000, '["' * 5_000, "{" * 9_999, "1e999999999", "9" * 20_000, "\\" * 20_000],
    ids=range(6),
)
def test_no_literal_takes_long(text: str) -> None:
    """A setting may be any text."""
    began = time.thread_time()
    parse_string(text)
    assert time.thread_time() - began < 1


def transformed(name: str, options: dict[str, str], record: ConnectRecord) -> ConnectRecord:
    transform = made(ClassSpec(name, options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    result = transform.apply(record)
    assert result is not None
    return result


def record(schema: Schema | None, value: Any, timestamp: int | None = None) -> ConnectRecord:
    return ConnectRecord("t", 0, 0, timestamp, None, None, schema, value)


@pytest.mark.parametrize(
    ("days", "text"),
    [(-719_164, "0001-01-01"), (-141_428, "1582-10-04"), (2_932_897, "10000-01-01"), (0, "1970-01-01")],
)
def test_dates_are_cast_with_four_digits_or_more(days: int, text: str) -> None:
    """Also before 1582, by the Julian calendar, and after 9999."""
    row = Schema(type=Type.STRUCT, fields=(Field("d", DAYS),))
    assert transformed("Cast$Value", {"spec": "d:string"}, record(row, {"d": days})).value == {"d": text}
    assert SimpleHeaderConverter({}).from_connect_header("t", "h", DAYS, days) == text.encode()


def test_a_record_without_a_timestamp_gets_none() -> None:
    """With a schema the field is null, in a map it is not there, as in Kafka's class."""
    row = Schema(type=Type.STRUCT, fields=(Field("id", INT32),))
    options = {"timestamp.field": "at"}
    assert transformed("InsertField$Value", options, record(row, {"id": 1})).value == {"id": 1, "at": None}
    assert transformed("InsertField$Value", options, record(None, {"id": 1})).value == {"id": 1}
    assert transformed("InsertField$Value", options, record(None, {"id": 1}, 7)).value == {"id": 1, "at": 7}
