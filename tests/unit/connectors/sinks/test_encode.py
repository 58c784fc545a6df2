"""Rows as they are produced: source headers, generations, and tombstones that no source record is behind."""

from __future__ import annotations

import pyarrow as pa
import pytest

from compactor.model.record import ORDER_VALUE, RUN
from connectors.sinks.encode import Row, output_rows, rows_of_generation, rows_with_retired, tombstones_of_retired

NAMED = ("keyfold.generation", b"3")
WHERE = [("keyfold.source.topic", b"t"), ("keyfold.source.partition", b"0")]


def batch(*offsets: int) -> pa.RecordBatch:
    """Records at these offsets; below 0 they are tombstones."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": 7,
            "timestamp_type": 0,
            "key": b"k%d" % offset,
            "value": None if offset < 0 else b"v",
            "headers": None
            if offset < 0
            else [{"key": "h", "value": b"1"}, {"key": "keyfold.generation", "value": b"9"}],
            "delete_horizon": None,
            "rejected": None,
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RUN)


def as_bytes(headers: list[tuple[str, str | bytes | None]]) -> list[tuple[str, bytes | None]]:
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in headers]


@pytest.mark.parametrize("source_headers", [True, False])
def test_records_of_a_generation_name_it(source_headers: bool) -> None:
    """Behind their source headers; an upstream keyfold's header of that name goes."""
    (row,) = rows_of_generation(batch(5), 3, source_headers=source_headers)
    value, key, timestamp, headers = row
    own = [*WHERE, ("keyfold.source.offset", b"5")] if source_headers else []
    assert (value, key, timestamp) == (b"v", b"k5", 7)
    assert as_bytes(headers) == [("h", b"1"), *own, NAMED]


@pytest.mark.parametrize("source_headers", [True, False])
def test_a_tombstone_without_a_source_record_says_so(source_headers: bool) -> None:
    """It has no source offset, whatever its offset in the log is."""
    rows = list(rows_of_generation(batch(-2, -1, 0), 3, source_headers=source_headers))
    assert [key for _, key, _, _ in rows] == [b"k-2", b"k-1", b"k0"]
    own = WHERE if source_headers else []
    for value, _, _, headers in rows[:2]:
        assert value is None
        assert as_bytes(headers) == [*own, NAMED, ("keyfold.synthetic", b"reset")]
    assert "keyfold.synthetic" not in dict(rows[2][3])


def test_the_first_generation_is_not_named() -> None:
    """As it was before there were any."""
    (row,) = output_rows(batch(5), source_headers=True)
    assert as_bytes(row[3]) == [("h", b"1"), *WHERE, ("keyfold.source.offset", b"5")]


@pytest.mark.parametrize("source_headers", [True, False])
@pytest.mark.parametrize("generation", [1, 3])
def test_keys_that_a_record_retires_go_directly_before_it(source_headers: bool, generation: int) -> None:
    """They have its time, say what they are, and name no source offset; before the record `sent` is called."""
    column = pa.array([None, [b"k7!", b"K7"], None], pa.list_(pa.binary()))
    rows = batch(5, 7, 9).append_column("retired", column)
    calls: list[int] = []
    found: list[Row] = []
    own: list[Row] = [(b"v", b"k%d" % offset, offset, []) for offset in (5, 7, 9)]
    made = rows_with_retired(rows, own, generation, lambda: calls.append(len(found)), source_headers=source_headers)
    for row in made:
        found += [row]
    assert [(key, value) for value, key, _, _ in found] == [
        (b"k5", b"v"), (b"k7!", None), (b"K7", None), (b"k7", b"v"), (b"k9", b"v"),
    ]  # fmt: skip
    assert calls == [3]
    assert [time for _, _, time, _ in found[1:3]] == [7, 7]
    where, named = WHERE if source_headers else [], [NAMED] if generation > 1 else []
    assert as_bytes(found[1][3]) == [*where, *named, ("keyfold.synthetic", b"identity")]


def test_keys_that_a_refused_record_retires_go_without_it() -> None:
    """The same tombstones, and no record."""
    column = pa.array([None, [b"k7!", b"K7"], None], pa.list_(pa.binary()))
    rows = batch(5, 7, 9).append_column("retired", column)
    found = list(tombstones_of_retired(rows, 3, source_headers=True))
    assert [(key, value) for value, key, _, _ in found] == [(b"k7!", None), (b"K7", None)]
    assert as_bytes(found[0][3]) == [*WHERE, NAMED, ("keyfold.synthetic", b"identity")]


def test_what_a_field_orders_by_goes_along_as_a_header() -> None:
    """It may be in no value that is published; a record without it gets none, nor does any without source headers."""
    rows = batch(5, 6, 7)
    values = pa.array([b"n2500001", None, b""], pa.binary())
    ordered = rows.set_column(rows.schema.get_field_index(ORDER_VALUE), RUN.field(ORDER_VALUE), values)
    made = [as_bytes(headers)[3:] for *_, headers in output_rows(ordered, source_headers=True)]
    assert [[name for name, _ in headers] for headers in made] == [
        ["keyfold.source.offset", "keyfold.order"], ["keyfold.source.offset"], ["keyfold.source.offset"],
    ]  # fmt: skip
    assert made[0][-1] == ("keyfold.order", b"n2500001")
    assert all(as_bytes(headers) == [("h", b"1")] for *_, headers in output_rows(ordered, source_headers=False))
