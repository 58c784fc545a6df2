"""Truncates of a table, as Debezium sends them: an event without a key, a row before or a row after."""

from __future__ import annotations

import json
from typing import Any, Final

import pyarrow as pa

from compactor.model.record import SOURCE
from connectors.chain.chain import Chain
from connectors.chain.order_field import sortable
from connectors.chain.spec import chain_faults, chain_spec
from connectors.chain.truncates import TRUNCATED, UNORDERED
from connectors.rejection import Stage, rejection_of
from connectors.source.arrow_records import range_rows
from connectors.source.plan import SourceRange
from connectors.transforms.transform import SWEEP

UNWRAP: Final = {
    "key.converter": "keyfold.Json",
    "value.converter": "keyfold.Json",
    "transforms": "row",
    "transforms.row.type": "io.debezium.transforms.ExtractNewRecordState",
}
_ROW: Final = {"type": "struct", "optional": True, "fields": [{"field": "id", "type": "int32"}]}
_ENVELOPE: Final = {
    "type": "struct",
    "name": "db.shop.t.Envelope",
    "fields": [
        {**_ROW, "field": "before"},
        {**_ROW, "field": "after"},
        {"field": "op", "type": "string"},
        {"field": "source", "type": "struct", "optional": True, "fields": [{"field": "lsn", "type": "int64"}]},
    ],
}
COUNTED: Final = ("filtered", "truncates", "last_truncate")


def event(op: str, row: dict[str, Any] | None, lsn: int | None = None) -> bytes:
    """Returns a change event with the row after the change, and its place in the database's log."""
    source = None if lsn is None else {"lsn": lsn}
    payload = {"before": None, "after": row, "op": op, "source": source}
    return json.dumps({"schema": _ENVELOPE, "payload": payload}).encode()


def key(number: int) -> bytes:
    """Returns the key of a row."""
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}
    return json.dumps({"schema": schema, "payload": {"id": number}}).encode()


def emptied_twice() -> pa.RecordBatch:
    """Returns two rows, each with a truncate after it, at the offsets 0 to 3."""
    truncate = (None, event("t", None))
    pairs = [(key(1), event("c", {"id": 1})), truncate, (key(2), event("c", {"id": 2})), truncate]
    rows = [
        {"topic": "t", "partition": 0, "offset": at, "timestamp": 7, "timestamp_type": 0, "key": key, "value": value}
        for at, (key, value) in enumerate(pairs)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def chain(**settings: str) -> Chain:
    """Makes the chain that takes rows out of change events."""
    given = {**UNWRAP, **settings}
    assert chain_faults(given, str) == ()
    return Chain(chain_spec(given), str)


def test_truncates_are_counted_by_their_range_report() -> None:
    """With the offset of the last one. They are among the dropped records, and the next report begins at 0."""
    reports = [range_rows([(SourceRange("t", "id", 0, *ends), ends[0], 4)]) for ends in ((0, 4), (4, 8))]
    records, *stated = chain().through([emptied_twice(), *reports])
    assert records["offset"].to_pylist() == [0, 2]
    counts = [{name: report["range"][0].as_py()[name] for name in COUNTED} for report in stated]
    assert counts == [
        {"filtered": 2, "truncates": 2, "last_truncate": 3},
        {"filtered": 0, "truncates": 0, "last_truncate": None},
    ]


ORDERED: Final = {"compaction.order": "field:source.lsn", "debezium.truncate": "apply"}


def truncates(*lsns: int | None) -> pa.RecordBatch:
    """Returns truncates at the offsets from 0 on, at these places in the database's log."""
    rows = [
        {
            "topic": "t",
            "partition": 0,
            "offset": at,
            "timestamp": 7,
            "timestamp_type": 0,
            "value": event("t", None, lsn),
        }
        for at, lsn in enumerate(lsns)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SOURCE)


def test_the_latest_truncate_by_the_order_is_reported_with_its_value() -> None:
    """Of equal ones the last. It is that of the event, before the row is taken out of it."""
    report = range_rows([(SourceRange("t", "id", 0, 0, 4), 0, 4)])
    records, stated = chain(**ORDERED).through([truncates(20, 31, 31, 9), report])
    assert records.num_rows == 0
    said = stated["range"][0].as_py()
    expected = {"truncates": 4, "last_truncate": 3, "truncate_order": sortable(31), "truncate_at": 2}
    assert {name: said[name] for name in expected} == expected


def test_a_truncate_without_the_field_of_the_order_is_a_bad_record() -> None:
    """Nothing would be before it; with `warn` it is dropped as any other."""
    report = range_rows([(SourceRange("t", "id", 0, 0, 1), 0, 1)])
    refused, _ = chain(**ORDERED).through([truncates(None), report])
    assert rejection_of(refused["rejected"][0].as_py()).message == f"{UNORDERED} {SWEEP}"
    dropped, _ = chain(**{**ORDERED, "debezium.truncate": "warn"}).through([truncates(None), report])
    assert dropped.num_rows == 0


def test_a_truncate_can_be_refused_as_a_bad_record() -> None:
    """By the transform that has found it; errors.tolerance and errors.scope decide what that stops. None is counted."""
    made = chain(**{"debezium.truncate": "Fail"})
    records, stated = made.through([emptied_twice(), range_rows([(SourceRange("t", "id", 0, 0, 4), 0, 4)])])
    assert records["offset"].to_pylist() == [0, 1, 2, 3]
    sound, refused, *_ = records["rejected"].to_pylist()
    assert sound is None
    rejection = rejection_of(refused)
    assert (rejection.stage, rejection.class_name) == (Stage.TRANSFORMATION, UNWRAP["transforms.row.type"])
    assert rejection.message == f"{TRUNCATED} {SWEEP}"
    assert {name: stated["range"][0].as_py()[name] for name in COUNTED} == {
        "filtered": 0,
        "truncates": 0,
        "last_truncate": None,
    }
