"""The types of values without a schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from connectors.typed.arrow_types import MOST_COLUMNS, MOST_NAMES, check_size, name_bytes
from connectors.typed.shape import Shapes, columns_of

I64, F64, TEXT = pa.int64(), pa.float64(), pa.string()


def _columns(*values: Any, kept: pa.StructType | None = None) -> dict[str, pa.DataType]:
    shapes = Shapes()
    shapes.add(values)
    return {field.name: field.type for field in columns_of(shapes.whole, kept)}


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        ([{"a": 1}, {"a": None}, {}, None], {"a": I64}),
        ([{"a": 1}, {"a": 1.5}], {"a": F64}),
        ([{"a": "x"}, {"a": 1}, {"a": "y"}], {"a": TEXT}),
        ([{"a": True}, {"b": [1, 2.5]}], {"a": pa.bool_(), "b": pa.list_(F64)}),
        ([{"a": {"b": 1}}, {"a": {"c": "x"}}], {"a": pa.struct([("b", I64), ("c", TEXT)])}),
        ([{"a": {}}, {"b": []}], {"a": TEXT, "b": TEXT}),
        ([{"a": [{}]}, {"a": [{"x": 1}]}], {"a": pa.list_(pa.struct([("x", I64)]))}),
        ([{"a": []}, {"a": [1]}], {"a": pa.list_(I64)}),
        ([1, 2], {"value": I64}),
        ([{"a": None}], {}),
    ],
)
def test_a_field_has_the_type_of_most_of_its_values(values: list[Any], columns: dict[str, pa.DataType]) -> None:
    """A whole number among others is a double; a null says nothing."""
    assert _columns(*values) == columns


def test_columns_that_are_kept_keep_their_types() -> None:
    """Whole numbers alone become doubles; new fields follow, and a field that is not there any more stays."""
    kept = pa.struct([("n", I64), ("s", TEXT), ("in", pa.struct([("x", I64)])), ("gone", I64)])
    made = _columns({"n": 1.5, "s": 1, "in": {"y": "z"}, "new": True}, kept=kept)
    inside = pa.struct([("x", I64), ("y", TEXT)])
    assert made == {"n": F64, "s": TEXT, "in": inside, "gone": I64, "new": pa.bool_()}
    assert list(made) == ["n", "s", "in", "gone", "new"]


def test_what_tasks_collect_is_one() -> None:
    """The counts of tasks are added."""
    first, second = Shapes(), Shapes()
    first.add([{"a": 1}])
    second.add([{"a": "x", "b": [{"c": 1}]}, {"a": "y"}])
    first.merge(second.whole)
    assert columns_of(first.whole) == pa.struct([("a", TEXT), ("b", pa.list_(pa.struct([("c", I64)])))])


def test_fields_and_levels_are_bounded() -> None:
    """Records that name ever new fields, or nest deeply, make no columns without bound."""
    deep: Any = 1
    for _ in range(100):
        deep = {"d": deep}
    shapes = Shapes()
    shapes.add([{f"k{number}": 1} for number in range(5 * MOST_COLUMNS)])
    shapes.add([deep])
    assert len(shapes.whole.fields) <= 2 * MOST_COLUMNS
    bounded = Shapes()
    bounded.add([deep])
    assert str(columns_of(bounded.whole)).count("struct") <= 33


def _nested(level: Callable[[Any], Any], levels: int = 100) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = level(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        _nested(lambda inner: {"d": inner}),
        {"deep": _nested(lambda inner: [inner])},
        {"deep": _nested(lambda inner: [{"d": inner}])},
        {f"k{number}": 1 for number in range(2 * MOST_COLUMNS)},
        {f"{number}" + "n" * 1_000: 1 for number in range(MOST_COLUMNS)},
        {"n" * MOST_NAMES: {"n" * MOST_NAMES: 1}},
        _nested(lambda inner: {"n" * 20_000: inner, "more": 1}, 30),
    ],
)
def test_what_is_too_large_costs_no_other_column(value: Any) -> None:
    """Beside columns that are there or are kept from before: none is lost, and the whole is never too large."""
    own = pa.struct([("id", I64), ("in", pa.struct([("x", TEXT)]))])
    kept = None
    for _ in range(3):
        shapes = Shapes()
        shapes.add([{"id": 1, "in": {"x": "y"}}, value])
        kept = columns_of(shapes.whole, kept)
        check_size(kept)
        assert [kept.field(name).type for name in own.names] == [field.type for field in own]
    full = pa.struct([*own, *(pa.field(f"c{number}", I64) for number in range(MOST_COLUMNS - 2))])
    shapes = Shapes()
    shapes.add([value, {"in": value}])
    assert columns_of(shapes.whole, full) == full
    assert name_bytes(full) < MOST_NAMES


def test_names_of_a_few_records_take_no_columns_of_many() -> None:
    """Records that name thousands of fields have the columns that are left, whichever come first, also kept ones."""
    hostile = [{f"{record}-{number}": 1 for number in range(2_000)} for record in range(50)]
    columns = _columns(*hostile, *[{"id": 1, "in": {"x": "y"}}] * 3, *hostile)
    assert len(columns) <= MOST_COLUMNS
    assert (columns["id"], columns["in"]) == (I64, pa.struct([("x", TEXT)]))
    kept = pa.struct(_columns(*hostile).items())
    assert kept.num_fields == MOST_COLUMNS
    again = _columns(*hostile, *[{"id": 1, "in": {"x": "y"}}] * 3, kept=kept)
    assert (again["id"], again["in"]) == (I64, pa.struct([("x", TEXT)]))
    assert len(again.keys() & set(kept.names)) == MOST_COLUMNS - 2


def test_a_list_counts_as_one_value() -> None:
    """However many items of a list have a field, it is in one record."""
    items = [{f"n{number}": 1 for number in range(MOST_COLUMNS)}] * 3
    assert "id" in _columns({"many": items}, {"id": 1}, {"id": 2})
