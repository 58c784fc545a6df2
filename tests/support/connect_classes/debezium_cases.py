"""Debezium's ExtractNewRecordState over change events, tombstones, and what is no change event."""

from __future__ import annotations

from typing import Final

from connectors.data.record import ConnectRecord, Header
from connectors.data.schema import INT64, STRING, Field, Schema, Type
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.generated import Generator, generated
from tests.support.connect_classes.records import FIELDS, with_parts

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


def event(by: Generator) -> ConnectRecord:
    """Returns a change event: created, updated, deleted, truncated; or a tombstone."""
    names = dict.fromkeys(by.random.choices((*FIELDS, "__op", "__deleted", "op"), k=by.random.randint(1, 4)))
    fields = tuple(Field(name, by.schema(1)) for name in names)
    row = Schema(type=Type.STRUCT, optional=True, name="s.t.Value", fields=fields, doc=by.one_of(None, "A row."))
    before, after = by.one_of((False, True), (True, True), (True, False), (False, False))
    envelope = Schema(
        type=Type.STRUCT,
        name=by.one_of("s.t.Envelope", "s.t.Envelope", "s.t.Value"),
        version=by.one_of(None, 2),
        fields=(
            Field("before", row),
            Field("after", row),
            Field("source", _SOURCE),
            Field("transaction", _TRANSACTION),
            Field("op", STRING),
            Field("ts_ms", INT64.as_optional()),
        ),
    )
    value = {
        "before": by.value(with_parts(row, optional=False)) if before else None,
        "after": by.value(with_parts(row, optional=False)) if after else None,
        "source": by.value(_SOURCE),
        "transaction": by.value(_TRANSACTION),
        "op": by.one_of("c", "u", "d", "r", "t"),
        "ts_ms": by.value(INT64.as_optional()),
    }
    schema, held = (None, None) if by.is_so(0.15) else (envelope, value)
    headers = (Header(by.one_of("h", "g"), b"x"),) if by.is_so(0.5) else ()
    return ConnectRecord("s.t", 0, by.random.randint(0, 99), 5, STRING, "k", schema, held, headers)


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
            {"add.fields": "op,table,snapshot:id", "add.fields.prefix": ""},
        ),
        records=generated(lambda by: event(by) if by.is_so(0.8) else by.record()),
        bare_nulls=True,
    ),
)
