"""The comparison of `make cdc` sees each way in which a topic may differ from its table."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.support.cdc.encodings import Encoding, encodings
from tests.support.cdc.equality import Column, Difference, Expected, Meaning, difference
from tests.support.cdc.meaning import UNAVAILABLE, of_field, same
from tests.support.cdc.tables import Table

_TABLE = Table("t", "", "", ())
_COLUMNS = (Column("id", "int4", is_array=False), Column("name", "text", is_array=False))
_ROWS: dict[Meaning, list[Meaning]] = {("1",): [("1", "ann")], ("2",): [("2", None)]}


def _plain() -> Encoding:
    return next(each for each in encodings("http://127.0.0.1:1/apis/ccompat/v7") if each.name == "plain")


def _compared(*rows: dict[str, Any] | None) -> Difference:
    values = [json.dumps(row).encode() for row in rows]
    return difference(Expected(_TABLE, _COLUMNS, _ROWS), _plain(), values)


ANN, TWO = {"id": 1, "name": "ann"}, {"id": 2, "name": None}


def test_the_same_rows_are_equal() -> None:
    """In any order; a field that is not there is null, one that the table has no more is none of it."""
    assert _compared({"id": 2, "gone": 5}, ANN).is_equal


@pytest.mark.parametrize(
    ("rows", "counted"),
    [
        ((ANN,), {"missing": 1}),
        ((ANN, TWO, None), {"null_values": 1}),
        ((ANN, TWO, {"id": 3, "name": "x"}), {"ghosts": 1}),
        ((ANN, TWO, ANN), {"twice": 1}),
        ((ANN, {"id": 2, "name": "x"}), {"columns": Counter(name=1)}),
        (({"id": 1, "name": UNAVAILABLE}, TWO), {"columns": Counter(name=1), "unavailable": 1}),
    ],
)
def test_what_differs_is_counted(rows: tuple[dict[str, Any] | None, ...], counted: dict[str, Any]) -> None:
    """Each kind by its own name, and nothing else."""
    compared = _compared(*rows)
    names = ("missing", "null_values", "ghosts", "twice", "columns", "unavailable")
    assert {name: count for name in names if (count := getattr(compared, name))} == counted
    assert not compared.is_equal


@pytest.mark.parametrize(
    ("value", "type_name", "is_array", "meaning"),
    [
        (True, "bool", False, "t"),
        ("AP8=", "bytea", False, "00ff"),
        (b"\x00\xff", "bytea", False, "00ff"),
        ({"scale": 3, "value": "Bdw="}, "numeric", False, "1.500"),
        ({"scale": 3, "value": b"\x05\xdc"}, "numeric", False, "1.500"),
        ("1.50", "numeric", False, "1.50"),
        ("1970-01-01T00:00:01.5Z", "timestamptz", False, "1500000"),
        ("1500-01-01T00:00:00.000000Z", "timestamptz", False, "-14831769600000000"),
        ([1, None], "_int4", True, "[1, null]"),
        (None, "text", False, None),
        (UNAVAILABLE, "bytea", False, UNAVAILABLE),
    ],
)
def test_a_field_means_the_value_of_its_column(
    value: object, type_name: str, is_array: bool, meaning: str | None
) -> None:
    """As PostgreSQL would write it, whatever the encoding has made of it."""
    assert of_field(value, type_name, is_array=is_array) == meaning


@pytest.mark.parametrize(
    ("left", "right", "type_name", "is_array", "equal"),
    [
        ("1e-40", "9.99995e-41", "float4", False, True),
        ("1.6666666", "1.6666666269302368", "float4", False, True),
        ("1.6666666", "1.6666667", "float4", False, False),
        ("NaN", "nan", "float8", False, True),
        ("0", "-0.0", "float8", False, False),
        ('{"a": "1", "b": null}', '{"b":null,"a":"1"}', "hstore", False, True),
        ("[1.50,2]", '["1.5", "2"]', "_numeric", True, True),
        ('["1.50"]', '["1.5"]', "_text", True, False),
        ("1.50", "1.5", "numeric", False, True),
        ("1.50", "1.5", "text", False, False),
        (None, "", "text", False, False),
    ],
)
def test_meanings_are_equal_as_values(
    left: str | None, right: str, type_name: str, is_array: bool, equal: bool
) -> None:
    """Numbers with single precision as such, JSON by its value, all else as text."""
    assert same(left, right, type_name, is_array=is_array) is equal
