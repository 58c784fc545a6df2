"""A large value of Avro is written in parts, and its bytes do not tell that."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
import pytest

from connectors.converters.avro.branches import writer_of_branches
from connectors.converters.avro.large_values import write
from connectors.converters.avro.parsed import parsed_schema
from connectors.data.pace import EVERY, limited

MANY = 3 * EVERY
ITEM = {
    "type": "record",
    "name": "n.item",
    "fields": [
        {"name": "n", "type": ["null", "long"], "default": None},
        {"name": "next", "type": ["null", "item"]},
    ],
}
INTS = {"type": "array", "items": "int"}


def record(kind: Any) -> dict[str, Any]:
    """Returns the schema of a record with a field between two others."""
    fields = [{"name": "before", "type": "string"}, {"name": "a", "type": kind}, {"name": "after", "type": "string"}]
    return {"type": "record", "name": "r", "fields": fields}


def item(number: int, following: Any = None) -> dict[str, Any]:
    return {"n": number, "next": following}


CASES: Mapping[str, tuple[Any, Any]] = {
    "numbers": (INTS, list(range(MANY))),
    "numbers or nulls": ({"type": "array", "items": ["null", "int"]}, [None, 5] * MANY),
    "records": ({"type": "array", "items": ITEM}, [item(n) for n in range(MANY)]),
    "records or nulls": ({"type": "array", "items": ["null", ITEM]}, [None, item(1, item(2))] * MANY),
    "records with a default": ({"type": "array", "items": ITEM}, [{"next": None}] * MANY),
    "a map": ({"type": "map", "values": "int"}, {str(n): n for n in range(MANY)}),
    "a map of lists": (
        {"type": "map", "values": INTS},
        {"few": [1], "ä large": [2] * MANY, "none": [], **{str(n): [n] for n in range(MANY)}},
    ),
    "small lists": ({"type": "array", "items": INTS}, [[], [1], [2, 3]] * MANY),
    "a large list among small ones": ({"type": "array", "items": INTS}, [[1], list(range(MANY)), [], [2]]),
    "a list or nothing": (["null", INTS], [7] * MANY),
    "one of several": (["null", "string", INTS, {"type": "map", "values": "int"}], {str(n): n for n in range(MANY)}),
    "deep": (
        record(["null", {"type": "record", "name": "q", "fields": [{"name": "l", "type": ["null", INTS]}]}]),
        {"before": "x", "a": {"l": [1] * MANY}, "after": "y"},
    ),
    "a list of itself": (
        {"type": "record", "name": "t", "fields": [{"name": "of", "type": {"type": "array", "items": "t"}}]},
        {"of": [{"of": [{"of": []}] * MANY}, {"of": []}]},
    ),
    "a list of itself or nothing": (
        {"type": "record", "name": "u", "fields": [{"name": "of", "type": ["null", {"type": "array", "items": "u"}]}]},
        {"of": [{"of": [{"of": None}] * MANY}, {"of": []}]},
    ),
}


@pytest.mark.parametrize("is_whole", [False, True], ids=["in a record", "alone"])
@pytest.mark.parametrize("case", CASES)
def test_its_bytes_are_those_of_one_call(case: str, is_whole: bool) -> None:
    """Lists, maps, unions and types within themselves, as fastavro writes them."""
    kind, value = CASES[case]
    if not is_whole:
        kind, value = record(kind), {"before": "b", "a": value, "after": "c"}
        if case == "deep":
            kind["name"] = "outer"
    named: dict[str, Any] = {}
    schema = parsed_schema(kind, named)
    name = writer_of_branches(schema, named)
    value = value if name is None else name(value)
    parts, whole = BytesIO(), BytesIO()
    write(parts, schema, value)
    fastavro.schemaless_writer(whole, schema, value)
    assert parts.getvalue() == whole.getvalue()


def test_it_is_given_up_in_its_midst() -> None:
    """The limit of a portion is asked between the parts."""

    class OverError(Exception):
        pass

    def over() -> None:
        raise OverError

    with limited(over), pytest.raises(OverError):
        write(BytesIO(), parsed_schema(INTS, {}), [1] * MANY)


@pytest.mark.parametrize("value", [[1] * MANY + ["x"], {"a": 1}, {str(n): n for n in range(MANY)}])
def test_what_does_not_fit_is_an_error(value: Any) -> None:
    """As it is of a small value."""
    with pytest.raises((TypeError, ValueError, AttributeError)):
        write(BytesIO(), parsed_schema(INTS, {}), value)
