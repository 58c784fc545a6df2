"""Rows out of Debezium's change events: nulls whose field has a default."""

from __future__ import annotations

import pytest

from connectors.chain.spec import ClassSpec, made
from connectors.data.record import ConnectRecord
from connectors.data.schema import INT64, STRING, Field, Schema, Type
from connectors.transforms.names import TRANSFORMS
from connectors.transforms.transform import Transform, TruncateError

ROW = Schema(
    type=Type.STRUCT,
    optional=True,
    name="t.Value",
    fields=(Field("c", Schema(type=Type.INT64, optional=True, default=5)),),
)
EVENT = Schema(
    type=Type.STRUCT,
    name="t.Envelope",
    fields=(Field("before", ROW), Field("after", ROW), Field("op", STRING), Field("ts_ms", INT64)),
)


@pytest.mark.parametrize(
    ("options", "row"),
    [
        ({}, {"c": None}),
        ({"add.fields": "op"}, {"c": None, "__op": "u"}),
        ({"delete.tombstone.handling.mode": "rewrite"}, {"c": 5, "__deleted": "false"}),
        (
            {"delete.tombstone.handling.mode": "rewrite", "add.fields": "op"},
            {"c": 5, "__deleted": "false", "__op": "u"},
        ),
    ],
)
def test_a_null_becomes_the_default_if_the_row_is_marked(options: dict[str, str], row: dict[str, object]) -> None:
    """Debezium leaves `__deleted` to InsertField, which replaces nulls; fields that it adds itself change no other."""
    transform = made(ClassSpec("ExtractNewRecordState", options), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    event = {"before": None, "after": {"c": None}, "op": "u", "ts_ms": 1}
    changed = transform.apply(ConnectRecord("t", 0, 0, 1, None, None, EVENT, event))
    assert changed is not None
    assert changed.value == row


def test_a_truncate_is_told_apart_from_a_record_that_is_dropped() -> None:
    """It has neither key nor row; what is done about it is decided for the connector."""
    transform = made(ClassSpec("ExtractNewRecordState", {}), TRANSFORMS, str)
    assert isinstance(transform, Transform)
    truncate = {"before": None, "after": None, "op": "t", "ts_ms": 1}
    with pytest.raises(TruncateError):
        transform.apply(ConnectRecord("t", 0, 7, 1, None, None, EVENT, truncate))
    for op in ("d", "u", None):  # Debezium's class drops these too, but none of them may empty a table
        assert transform.apply(ConnectRecord("t", 0, 7, 1, None, None, EVENT, {**truncate, "op": op})) is None
