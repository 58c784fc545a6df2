"""The transforms and predicates of Kafka's own (`connect-transforms`), and how each is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from connectors.data.java_calendar import DAY_MS
from connectors.data.record import ConnectRecord
from connectors.data.schema import DATE, TIME, TIMESTAMP, Field, Schema, Type
from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.generated import Generator, generated
from tests.support.connect_classes.literals import literal

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_NO_DEFAULTS: Final = {"replace.null.with.default": "false"}
_MOMENT: Final = {"field": "at", "format": "yyyy-MM-dd HH:mm:ss.SSS"}


def _sided(name: str, *configs: Mapping[str, str], over: Any = None) -> list[Case]:
    return [
        Case(f"{_KAFKA}{name}${side}", configs, records=generated(Generator.record) if over is None else over)
        for side in ("Key", "Value")
    ]


def _plain(name: str, *configs: Mapping[str, str], call: str = "transform") -> Case:
    return Case(f"{_KAFKA}{name}", configs, call)


def _moments_config(by: Generator) -> dict[str, str]:
    target = by.one_of("string", "unix", "Date", "Time", "Timestamp")
    precision = by.one_of("seconds", "milliseconds", "microseconds", "nanoseconds")
    pattern = by.one_of("yyyy-MM-dd HH:mm:ss.SSS", "yyyy-MM-dd", "yyyy", "dd MMM yyyy HH:mm X", "yyyyMMddHHmmssSSS")
    return {"field": "at", "target.type": target, "unix.precision": precision, "format": pattern}


def _moments(by: Generator) -> ConnectRecord:
    """Returns a record with the field `at`, which is a moment in one of the forms that there are."""
    moment = by.moment()
    name = by.one_of(None, None, DATE, TIME, TIMESTAMP)
    value: Any = by.one_of(moment, by.date_text())
    kind = Type.STRING if isinstance(value, str) else Type.INT64
    if name is not None:
        kind = Type.INT64 if name == TIMESTAMP else Type.INT32
        value = {DATE: moment // DAY_MS, TIME: moment % DAY_MS, TIMESTAMP: moment}[name]
    schema = Schema(type=kind, name=name, version=1 if name else None, optional=by.is_so(0.5))
    row = Schema(type=Type.STRUCT, fields=(Field("at", schema), Field("b", schema)))
    if name is None and by.is_so(0.3):
        return ConnectRecord("t", 0, 1, 5, None, None, None, {"at": value})
    return ConnectRecord("t", 0, 1, 5, None, None, row, {"at": value, "b": value})


CASES: Final[tuple[Case, ...]] = (
    *_sided(
        "ExtractField",
        {"field": "id"},
        {"field": "inner.id", "field.syntax.version": "V2"},
        {"field": "name", **_NO_DEFAULTS},
    ),
    *_sided("HoistField", {"field": "all"}),
    *_sided(
        "InsertField",
        {"topic.field": "topic", "partition.field": "p!", "offset.field": "o?"},
        {"timestamp.field": "ts", "static.field": "s", "static.value": "x"},
        {"static.field": "id", "static.value": "y", **_NO_DEFAULTS},
        {"timestamp.field": "at!", "topic.field": "b"},
    ),
    *_sided(
        "ReplaceField",
        {"exclude": "id,inner"},
        {"include": "id,name", "renames": "id:key"},
        {"renames": "name:other,at:when", **_NO_DEFAULTS},
        {"renames": "name:id,at:b"},
    ),
    *_sided(
        "MaskField",
        {"fields": "id,name"},
        {"fields": "name,at", "replacement": "7"},
        {"fields": "inner", **_NO_DEFAULTS},
        {"fields": "id,name,at,inner"},
        {"fields": "id,name", "replacement": "text"},
        {"fields": "id,name,at", "replacement": "-1.5"},
        {"fields": "id,name,at", "replacement": "300.25"},
    ),
    *_sided(
        "Cast",
        {"spec": "id:string,name:int32"},
        {"spec": "at:int8,id:float32"},
        {"spec": "string"},
        {"spec": "int64"},
        {"spec": "boolean"},
        {"spec": "id:boolean,name:float64,inner:string"},
        {"spec": "id:int64,name:int16,at:string", **_NO_DEFAULTS},
        {"spec": "id:string,name:string,at:string,inner:string"},
        {"spec": "id:float32,name:boolean,at:int64"},
        {"spec": "float32"},
    ),
    *_sided("Flatten", {}, {"delimiter": "_"}, over=generated(lambda one: one.record(maps=one.is_so(0.1)))),
    *_sided(
        "HeaderFrom",
        {"fields": "id,name", "headers": "a,b", "operation": "move"},
        {"fields": "id", "headers": "a", "operation": "copy"},
    ),
    *_sided(
        "SetSchemaMetadata",
        {"schema.name": "n"},
        {"schema.version": "3"},
        {"schema.name": "n", "schema.version": "2"},
    ),
    *_sided(
        "TimestampConverter",
        {**_MOMENT, "target.type": "Timestamp"},
        {**_MOMENT, "target.type": "string"},
        {"target.type": "unix", "unix.precision": "seconds", "format": "yyyy"},
        {"target.type": "Date"},
        {"field": "id", "target.type": "Time"},
        {"field": "at", "target.type": "unix", "unix.precision": "microseconds", "format": "yyyy-MM-dd"},
        {"field": "name", "target.type": "Timestamp", "unix.precision": "nanoseconds", "format": "yyyy"},
        {"field": "name", "target.type": "string", "format": "EEE d MMM yy h:mm a X", **_NO_DEFAULTS},
        {"field": "at", "target.type": "Date", "format": "yyyy-MM-dd HH:mm:ss.SSS"},
    ),
    Case(
        f"{_KAFKA}TimestampConverter$Value",
        _moments_config,
        records=generated(_moments),
        variant="moments",
    ),
    _plain("ValueToKey", {"fields": "id"}, {"fields": "id,name"}, {"fields": "at", **_NO_DEFAULTS}),
    _plain("Filter", {}),
    _plain("DropHeaders", {"headers": "h"}, {"headers": "h,x"}),
    Case(f"{_KAFKA}InsertHeader", lambda by: {"header": "n", "value.literal": literal(by)}),
    _plain(
        "RegexRouter",
        {"regex": "orders(.*)", "replacement": "o$1"},
        {"regex": "t-(\\d)", "replacement": "$1$1"},
    ),
    _plain("predicates.RecordIsTombstone", {}, call="predicate"),
    _plain("predicates.HasHeaderKey", {"name": "h"}, call="predicate"),
    _plain("predicates.TopicNameMatches", {"pattern": "orders.*"}, {"pattern": "t"}, call="predicate"),
)
