"""The transforms and predicates of Kafka's own (`connect-transforms`), and how each is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tests.support.connect_classes.cases import Case
from tests.support.connect_classes.records import records

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_NO_DEFAULTS: Final = {"replace.null.with.default": "false"}
_MOMENT: Final = {"field": "at", "format": "yyyy-MM-dd HH:mm:ss.SSS"}


def _sided(name: str, *configs: Mapping[str, str], over: Any = None) -> list[Case]:
    return [
        Case(f"{_KAFKA}{name}${side}", configs, records=records() if over is None else over)
        for side in ("Key", "Value")
    ]


def _plain(name: str, *configs: Mapping[str, str], call: str = "transform") -> Case:
    return Case(f"{_KAFKA}{name}", configs, call)


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
    ),
    *_sided(
        "ReplaceField",
        {"exclude": "id,inner"},
        {"include": "id,name", "renames": "id:key"},
        {"renames": "name:other,at:when", **_NO_DEFAULTS},
    ),
    *_sided(
        "MaskField",
        {"fields": "id,name"},
        {"fields": "name,at", "replacement": "7"},
        {"fields": "inner", **_NO_DEFAULTS},
    ),
    *_sided(
        "Cast",
        {"spec": "id:string,name:int32"},
        {"spec": "at:int8,id:float32"},
        {"spec": "string"},
        {"spec": "int64"},
        {"spec": "boolean"},
        {"spec": "id:boolean,name:float64,inner:string"},
    ),
    *_sided("Flatten", {}, {"delimiter": "_"}, over=records(maps=False)),
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
    ),
    _plain("ValueToKey", {"fields": "id"}, {"fields": "id,name"}, {"fields": "at", **_NO_DEFAULTS}),
    _plain("Filter", {}),
    _plain("DropHeaders", {"headers": "h"}, {"headers": "h,x"}),
    _plain(
        "InsertHeader",
        *(
            {"header": "n", "value.literal": text}
            for text in ("1", "text", "true", "1.5", "1.0", "-70000", "1e3", "0.1", "2026-01-31", "null")
        ),
    ),
    _plain(
        "RegexRouter",
        {"regex": "orders(.*)", "replacement": "o$1"},
        {"regex": "t-(\\d)", "replacement": "$1$1"},
    ),
    _plain("predicates.RecordIsTombstone", {}, call="predicate"),
    _plain("predicates.HasHeaderKey", {"name": "h"}, call="predicate"),
    _plain("predicates.TopicNameMatches", {"pattern": "orders.*"}, {"pattern": "t"}, call="predicate"),
)
