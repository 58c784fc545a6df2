"""Numbers of records are bounded before anything is computed with them, and floats have Java's digits."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from connectors.data.bounds import DECIMAL_BYTES, NUMBER_DIGITS
from connectors.data.schema import DECIMAL, FLOAT32, FLOAT64, SCALE, STRING, Schema, Type
from connectors.data.values import bytes_of_decimal, decimal_of, float32, java_double, java_float, scale_of, short_float
from connectors.errors import DataError
from connectors.transforms.cast import cast_value

QUICK_S = 1.0
"""CPU time (s) that none of these takes; without bounds each takes hours."""


def decimal(scale: str) -> Schema:
    """Returns the schema of a Decimal."""
    return Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters={SCALE: scale})


@pytest.mark.parametrize(
    ("scale", "text", "said"),
    [
        (2, "1e99999999", "at most 1000 digits; 1E.99999999 of scale 2"),
        (2, "-1e999999999999999", "at most 1000 digits"),
        (2, "1e-99999999", "more than 2 digits behind the point"),
        (2147483647, "1", "at most 1000 digits"),
        (-2147483648, "1", "more than -2147483648 digits behind the point"),
        (2, "1" * 100_000, "at most 1000 digits"),
        (2, "0." + "1" * 100_000, "at most 1000 digits"),
        (2, "NaN", "is a number, and this is NaN"),
        (2, "1.001", "1.001 has more than 2 digits behind the point"),
    ],
)
def test_a_number_that_would_take_hours_is_refused_at_once(scale: int, text: str, said: str) -> None:
    """An exponent or a scale of a few digits is looked at before anything is raised to it."""
    began = time.process_time()
    with pytest.raises(DataError, match=said) as raised:
        bytes_of_decimal(scale, Decimal(text))
    assert time.process_time() - began < QUICK_S
    assert len(raised.value.message) < 300


@pytest.mark.parametrize(
    ("scale", "text", "unscaled"),
    [
        (2, "12.34", 1234),
        (2, "-12.3400", -1234),
        (2, "1e3", 100_000),
        (-2, "1200", 12),
        (2, "0e999999999", 0),
        (2, "0e-999999999", 0),
        (2, "9" * (NUMBER_DIGITS - 2), int("9" * (NUMBER_DIGITS - 2) + "00")),
        (1_000, "1e-1000", 1),
    ],
)
def test_numbers_that_fit_are_encoded_by_their_exact_value(scale: int, text: str, unscaled: int) -> None:
    """Up to a thousand digits, as Kafka's parser takes them."""
    assert int.from_bytes(bytes_of_decimal(scale, Decimal(text)), "big", signed=True) == unscaled


@pytest.mark.parametrize("text", ["abc", "", "9" * 5_000, "2147483648", "-2147483649", "1.5", "٣"])
def test_a_scale_is_a_number_of_32_bits(text: str) -> None:
    """Anything else is an error of the record, and not of Python's own limit of 4,300 digits."""
    with pytest.raises(DataError, match="scale of a Decimal is a whole number of 32 bits"):
        scale_of(decimal(text))


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=1, max_size=5_000), st.integers(-40, 40))
def test_a_decimal_is_the_number_of_its_bytes(data: bytes, scale: int) -> None:
    """However long it is: what is put together of halves is exact."""
    found = decimal_of(decimal(str(scale)), data)
    sign, digits, exponent = found.as_tuple()
    unscaled = 0
    for at in range(0, len(digits), 4_000):
        part = digits[at : at + 4_000]
        unscaled = unscaled * 10 ** len(part) + int("".join(map(str, part)))
    assert exponent == -scale
    assert (-unscaled if sign else unscaled) == int.from_bytes(data, "big", signed=True)


def test_the_longest_decimals_are_read_and_longer_ones_refused() -> None:
    """2,100 bytes have more digits than Python writes; PostgreSQL's longest numbers have 61,231 bytes."""
    began = time.process_time()
    assert len(str(decimal_of(decimal("2"), b"\x7f" * 2_100))) == 5_059
    assert len(str(decimal_of(decimal("0"), b"\x7f" * DECIMAL_BYTES))) > 147_455
    assert time.process_time() - began < QUICK_S
    with pytest.raises(DataError, match="A Decimal of 65537 bytes"):
        decimal_of(decimal("2"), b"\x7f" * (DECIMAL_BYTES + 1))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.1, "0.1"), (0.2 + 0.1, "0.3"), (16_777_217, "1.6777216E7"), (1e10, "1.0E10"), (123456.789, "123456.79"),
        (3.4028235e38, "3.4028235E38"), (1e39, "Infinity"), (1.4e-45, "1.4E-45"), (-0.0, "-0.0"), (float("nan"), "NaN"),
    ],
)  # fmt: skip
def test_a_float_has_the_digits_of_java(number: float, text: str) -> None:
    """Float.toString of the nearest float, also where the number is none that 32 bits hold."""
    assert java_float(number) == text
    assert cast_value(FLOAT32, float(number), Type.STRING) == text


def test_a_double_has_the_digits_of_java() -> None:
    """Double.toString takes the nearest of two digits where one would tell it."""
    assert [java_double(one) for one in (0.1, 5e-324, 1e23, 2.0)] == ["0.1", "4.9E-324", "1.0E23", "2.0"]
    assert cast_value(FLOAT64, 0.1, Type.STRING) == "0.1"


@settings(max_examples=300, deadline=None)
@given(st.floats(width=32, allow_nan=False))
def test_the_digits_of_a_float_tell_it(number: float) -> None:
    """Read again, they are the same float; as a double, they are short."""
    assert float32(float(java_float(number))) == number
    assert float32(short_float(number)) == number


@pytest.mark.parametrize(
    ("schema", "value", "kind", "expected"),
    [
        (decimal("-99999999"), b"\x01", Type.INT64, 0),
        (decimal("99999999"), b"\x01", Type.INT64, 0),
        (decimal("-3"), b"\x05", Type.INT32, 5_000),
        (decimal("-19"), b"\x02", Type.INT64, 1_553_255_926_290_448_384),
        (decimal("1"), b"\xff\x85", Type.INT8, -12),
        (decimal("2"), b"\x05", Type.BOOLEAN, False),
        (decimal("-99999999"), b"\x01", Type.FLOAT64, float("inf")),
        (decimal("2"), b"\x7f" * 2_100, Type.INT64, None),
        (STRING, "0" * 5_000 + "7", Type.INT64, 7),
        (STRING, "+007", Type.INT8, 7),
        (STRING, "1e99999999999", Type.FLOAT64, float("inf")),
    ],
)
def test_a_cast_of_any_number_ends(schema: Schema, value: object, kind: Type, expected: object) -> None:
    """As BigDecimal.longValue has it: the last 64 bits of the whole part."""
    began = time.process_time()
    found = cast_value(schema, value, kind)
    assert time.process_time() - began < QUICK_S
    assert expected is None or found == expected


@pytest.mark.parametrize("text", ["9" * 5_000, "9" * 19, "-" + "9" * 5_000, "", "1.5", "٣x"])
def test_a_text_that_is_no_number_of_64_bits_is_out_of_range(text: str) -> None:
    """Python's own limit of digits is not met."""
    with pytest.raises(DataError, match="is out of range for int64") as raised:
        cast_value(STRING, text, Type.INT64)
    assert len(raised.value.message) < 300
