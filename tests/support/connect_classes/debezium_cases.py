"""Debezium's ExtractNewRecordState over change events, tombstones, and what is no change event."""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import INT64, STRING, Field, Schema, Type
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.records import FIELDS, records, schemas, values_of, with_parts

_SOURCE: Final = Schema(
    type=Type.STRUCT,
    name="io.debezium.connector.postgresql.Source",
    fields=(
        Field("table", STRING),
        Field("lsn", INT64.as_optional()),
        Field("snapshot", with_parts(STRING, optional=True, default="false")),
    ),
)
_TRANSACTION: Final = Schema(type=Type.STRUCT, optional=True, fields=(Field("id", STRING), Field("total_order", INT64)))


@st.composite
def events(draw: st.DrawFn) -> ConnectRecord:
    """Returns change events: created, updated, deleted, truncated; and tombstones."""
    names = draw(st.lists(st.sampled_from(FIELDS), unique=True, min_size=1, max_size=3))
    fields = tuple(Field(name, draw(schemas(1))) for name in names)
    row = Schema(type=Type.STRUCT, optional=True, name="s.t.Value", fields=fields)
    there = with_parts(row, optional=False)
    before, after = draw(st.sampled_from([(False, True), (True, True), (True, False), (False, False)]))
    envelope = Schema(
        type=Type.STRUCT,
        name=draw(st.sampled_from(["s.t.Envelope", "s.t.Envelope", "s.t.Value"])),
        fields=(
            Field("before", row),
            Field("after", row),
            Field("source", _SOURCE),
            Field("transaction", _TRANSACTION),
            Field("op", STRING),
            Field("ts_ms", INT64.as_optional()),
        ),
    )
    value: dict[str, Any] | None = {
        "before": draw(values_of(there)) if before else None,
        "after": draw(values_of(there)) if after else None,
        "source": draw(values_of(_SOURCE)),
        "transaction": draw(values_of(_TRANSACTION)),
        "op": draw(st.sampled_from(["c", "u", "d", "r", "t"])),
        "ts_ms": draw(values_of(INT64.as_optional())),
    }
    is_tombstone = draw(st.integers(0, 5)) == 0
    schema, value = (None, None) if is_tombstone else (envelope, value)
    headers = tuple(Header(name, b"x") for name in draw(st.lists(st.sampled_from("hg"), max_size=1)))
    return ConnectRecord("s.t", 0, draw(st.integers(0, 99)), 5, STRING, "k", schema, value, headers)


_MODE: Final = "delete.tombstone.handling.mode"

CASES: Final[tuple[Case, ...]] = (
    Case(
        "io.debezium.transforms.ExtractNewRecordState",
        (
            {},
            {_MODE: "drop"},
            {_MODE: "rewrite"},
            {_MODE: "rewrite-with-tombstone", "add.fields": "op,table,source.lsn:LSN"},
            {_MODE: "delete-to-tombstone"},
            {
                "add.fields": "op,ts_ms,snapshot,nothing,total_order",
                "add.headers": "table,op",
                "add.fields.prefix": "f_",
            },
            {"replace.null.with.default": "false", _MODE: "rewrite"},
        ),
        records=st.one_of(events(), events(), events(), records()),
        bare_nulls=True,
    ),
)
