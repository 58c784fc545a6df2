"""Many types become the columns of one snapshot."""

from __future__ import annotations

import time
from itertools import islice, permutations, product

import pyarrow as pa
import pytest

from connectors.typed.unite import MisfitError, layout_of, named, renamed, united

I32, I64, TEXT = pa.int32(), pa.int64(), pa.string()


def _struct(**fields: pa.DataType) -> pa.StructType:
    return pa.struct(list(fields.items()))


@pytest.mark.parametrize(
    ("kept", "other", "both"),
    [
        (pa.int8(), pa.int16(), pa.int16()),
        (I64, I32, I64),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2), pa.decimal128(12, 2)),
        (pa.list_(I32), pa.list_(I64), pa.list_(I64)),
        (pa.map_(TEXT, I32), pa.map_(TEXT, I64), pa.map_(TEXT, I64)),
        (_struct(a=I32), _struct(b=TEXT, a=I64), _struct(a=I64, b=TEXT)),
    ],
)
def test_types_are_promoted_as_iceberg_does(kept: pa.DataType, other: pa.DataType, both: pa.DataType) -> None:
    """The wider type holds both, and columns are united by name."""
    assert united(kept, other) == both


@pytest.mark.parametrize(
    ("kept", "other"),
    [
        (I32, pa.float64()),
        (I64, TEXT),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.timestamp("ms"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
        (pa.binary(), TEXT),
        (pa.list_(I32), I32),
        (_struct(a=I32), I32),
    ],
)
def test_what_iceberg_does_not_promote_is_refused(kept: pa.DataType, other: pa.DataType) -> None:
    """In both orders, and with the name of the field."""
    for pair in ((kept, other), (other, kept)):
        with pytest.raises(MisfitError, match=r"orders\.total"):
            united(_struct(total=pair[0]), _struct(total=pair[1]), ("orders",))


def test_the_type_of_the_most_records_wins() -> None:
    """Whatever the order of what tasks say; and the losing type adds no column."""
    types = {_struct(a=I64): 5, _struct(a=TEXT, x=I32): 3, _struct(a=I32, b=TEXT): 4}
    for order in permutations(types.items()):
        assert layout_of(dict(order)) == _struct(a=I64, b=TEXT)


def test_names_differ_in_more_than_case() -> None:
    """The first keeps its name, a name of a metadata column is not taken, and what was renamed is told."""
    made = named(
        pa.struct([("id", I32), ("ID", I32), ("id_2", I32), ("_key", TEXT), ("in", pa.list_(_struct(a=I32, A=I32)))]),
        ["_key", "_rest"],
    )
    assert [field.name for field in made] == ["id", "ID_3", "id_2", "_key_2", "in"]
    assert renamed(made) == {"ID_3": "ID", "_key_2": "_key", "in.A_2": "A"}


def test_names_are_such_that_tables_take_them() -> None:
    """Iceberg knows columns by paths, Delta ends a name at NUL: names of one record would fail a table for good."""
    inner, nul = pa.struct([("b", I32), ("c.d", I32), ("c", pa.struct([("d", I32)]))]), pa.struct([("x\0y", I32)])
    listed = pa.list_(pa.struct([("x", I32)]))
    made = named(
        pa.struct(
            [("a.b", I32), ("a", inner), ("A.B", I32), ("l", listed), ("l.element.x", I32), ("n", nul), ("p.q", I32)]
        )
    )
    assert renamed(made) == {
        "a_b": "a.b",
        "a.c_d": "c.d",
        "A_B_2": "A.B",
        "l_element_x": "l.element.x",
        "n.x_y": "x\0y",
    }


def test_names_that_clash_take_one_step_each() -> None:
    """One record of 100 KB may have thousands of names that differ in case, and all that they would be renamed to."""
    cases = ["".join(letters) for letters in islice(product(*zip("abcdefghijkl", "ABCDEFGHIJKL", strict=True)), 2_450)]
    taken = [f"abcdefghijkl_{number}" for number in reversed(range(2, 2_452))]
    began = time.process_time()
    made = named(pa.struct([(name, I32) for name in [*cases, *taken]]))
    assert time.process_time() - began < 5  # 0.1 s; minutes if each name is compared with all others
    names = [field.name for field in made]
    assert len({name.lower() for name in names}) == len(names) == 4_900
    assert names[-2_450:] == taken
