"""Values that mean the same have one text, others have another."""

from __future__ import annotations

import json
import math
import tracemalloc
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.data.canonical import Branch, TooLongError, has_one_encoding, plain, text_of
from connectors.data.schema import (
    BOOLEAN,
    BYTES,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    SCALE,
    STRING,
    UNION,
    Field,
    Schema,
    Type,
)
from connectors.data.values import bytes_of_decimal


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1, 1.0, Decimal("1.00"), Decimal("10e-1")], "1"),
        ([0, -0.0, Decimal("-0.0"), Decimal("0E+9")], "0"),
        ([-1200, Decimal("-12E2")], "-1200"),
        ([Decimal("0.5"), 0.5], "5E-1"),
        ([Decimal("1E+5000"), 10**5000], "1E5000"),
        ([Decimal("1E+399"), 10**399], "1" + "0" * 399),
        ([10**400, Decimal("1E400")], "1E400"),
        ([{"b": [True, None], "a": "é"}], '{"a":"\\u00e9","b":[true,null]}'),
        ([b"\x00\xff"], 'b"00ff"'),
        ([math.inf], "inf"),
    ],
)
def test_one_text_for_one_value(values: list[Any], text: str) -> None:
    """Numbers by their exact value, members by name."""
    assert {text_of(value) for value in values} == {text}


DECIMALS = st.decimals(allow_nan=False, allow_infinity=False)


@given(
    st.decimals(allow_nan=False, allow_infinity=False) | st.integers() | st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False),
)
def test_numbers_have_one_text_where_they_are_equal_and_only_there(one: Any, other: Decimal) -> None:
    """Whatever digits, signs and exponents they are written with."""
    assert (text_of(one) == text_of(other)) is (one == other)
    assert text_of(other) == text_of(Decimal(f"{other:f}"))


def test_text_is_no_bytes_and_no_number() -> None:
    """What looks alike stays apart."""
    assert len({text_of(one) for one in ("1", 1, b"1", True, "true", None, "null", ["1"], {"1": 1})}) == 9


@pytest.mark.parametrize(
    "value",
    [
        [1e300] * 200_000,
        {str(at): Decimal("1e399") for at in range(200_000)},
        ["a" * 1_000] * 200_000,
        [b"a" * 1_000] * 200_000,
        [Branch("n" * 1_000, None)] * 200_000,
        [{"n" * 1_000: None}] * 200_000,
    ],
    ids=["doubles", "decimals", "texts", "bytes", "branches", "names"],
)
def test_a_text_that_would_be_too_long_is_not_written(value: Any) -> None:
    """It would have 60 MB at least: it is given up at the first character too many."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLongError):
            text_of(value, 1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


def test_a_text_may_have_as_many_characters_as_it_has() -> None:
    """One fewer, and there is none."""
    value = {"a": [1, "b", None, b"c"], "d": Branch("e", 1.5)}
    text = text_of(value)
    assert text_of(value, len(text)) == text
    with pytest.raises(TooLongError):
        text_of(value, len(text) - 1)


def struct(*fields: tuple[str, Schema], name: str | None = None) -> Schema:
    return Schema(type=Type.STRUCT, name=name, fields=tuple(Field(*one) for one in fields))


LATER = Schema(type=Type.STRING, default="eu")
V1 = struct(("id", INT32))
V2 = struct(("region", LATER), ("id", INT64), ("note", STRING.as_optional()), name="Key")


def test_what_a_schemas_next_version_may_change_makes_no_difference() -> None:
    """A wider number, another name and order, and a field that is null; a field with another default is one more."""
    assert plain(V1, {"id": 7}) == {"id": 7}
    assert plain(V2, {"id": 7, "region": "eu", "note": None}) == {"id": 7, "region": "eu"}


def test_a_null_in_place_of_a_default_is_a_value() -> None:
    """A reader of the next version would see it."""
    optional = struct(("region", LATER.as_optional()))
    assert plain(optional, {"region": None}) == {"region": None}


def test_a_union_is_the_value_that_it_has() -> None:
    """Adding a branch changes no key."""
    union = struct(("int", INT32.as_optional()), ("string", STRING.as_optional()), name=UNION)
    assert plain(union, {"int": None, "string": "a"}) == plain(STRING, "a") == "a"


def test_a_type_of_a_union_is_named_where_another_one_looks_like_it() -> None:
    """In a form that no other value has."""
    user, order = struct(("id", INT32), name="n.User"), struct(("id", INT32), name="n.Order")
    branches = [(one, schema.as_optional()) for one, schema in (("User", user), ("Order", order), ("int", INT32))]
    union = struct(*branches, name=UNION)
    assert text_of(plain(union, {"User": None, "Order": {"id": 1}})) == '"n.Order"{"id":1}'
    assert plain(union, {"int": 1}) == 1
    numbers = struct(("int", INT32.as_optional()), ("long", INT64.as_optional()), name=UNION)
    assert plain(numbers, {"int": 1}) == plain(numbers, {"long": 1}) == 1


def test_decimals_are_numbers_and_maps_have_no_order() -> None:
    """Whatever their scale is; a map with other keys than texts is a list of pairs."""
    scaled = Schema(type=Type.BYTES, name=DECIMAL, parameters={SCALE: "3"})
    assert text_of(plain(scaled, bytes_of_decimal(3, Decimal("1.500")))) == "15E-1"
    by_number = Schema(type=Type.MAP, key_schema=INT32, value_schema=STRING)
    assert plain(by_number, {2: "b", 1: "a"}) == plain(by_number, {1: "a", 2: "b"}) == [[1, "a"], [2, "b"]]
    texts = Schema(type=Type.ARRAY, value_schema=STRING)
    assert plain(texts, ["b", "a"]) == ["b", "a"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (None, True),
        (V2, True),
        (BYTES, True),
        (BOOLEAN, True),
        (Schema(type=Type.ARRAY, value_schema=STRING), True),
        (FLOAT32, False),
        (struct(("x", FLOAT64)), False),
        (struct(("int", INT32.as_optional()), name=UNION), False),
        (Schema(type=Type.MAP, key_schema=STRING, value_schema=STRING), False),
        (Schema(type=Type.BYTES, name=DECIMAL, parameters={SCALE: "0"}), False),
        (Schema(type=Type.ARRAY, value_schema=FLOAT64), False),
    ],
)
def test_where_one_text_may_be_of_values_that_are_encoded_differently(schema: Schema | None, expected: bool) -> None:
    """Zeros, members of unions, order of maps, and leading zeros."""
    assert has_one_encoding(schema) is expected


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=255), max_size=3),
        st.text(st.characters(max_codepoint=255), max_size=5) | st.integers(-(1 << 65), 1 << 65) | st.none(),
        max_size=20,
    )
)
def test_texts_of_keys_of_a_few_members_are_those_of_all_others(value: dict[str, Any]) -> None:
    """They are written at once: the same order, escapes and digits, and no more characters than they may have."""
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"))
    assert text_of(value, len(expected)) == expected
    with pytest.raises(TooLongError):
        text_of(value, len(expected) - 1)


def test_each_character_of_ascii_is_written_in_one_way() -> None:
    """Also those that are no letters, such as 0x7f."""
    for code in range(128):
        value = {chr(code): chr(code)}
        assert text_of(value) == json.dumps(value, separators=(",", ":"))
