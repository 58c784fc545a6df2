"""The transforms and predicates that a connector file can name, and those that it cannot, each with why."""

from __future__ import annotations

from typing import Final

from connectors.class_names import ClassName, ClassNames

_KAFKA: Final = "org.apache.kafka.connect.transforms."
_HERE: Final = "connectors.transforms."
_ONE_OUTPUT: Final = "a log has one output topic, and it would send records of one log to several; "


def _kafka(name: str, module: str, *, sided: bool = True) -> ClassName:
    return ClassName(f"{_KAFKA}{name}", f"{_HERE}{module}:{name.rpartition('.')[2]}", sided=sided)


TRANSFORMS: Final = ClassNames(
    "transform",
    (
        _kafka("Cast", "cast"),
        _kafka("DropHeaders", "drop_headers", sided=False),
        _kafka("ExtractField", "extract_field"),
        _kafka("Filter", "filter", sided=False),
        _kafka("Flatten", "flatten"),
        _kafka("HeaderFrom", "header_from"),
        _kafka("HoistField", "hoist_field"),
        _kafka("InsertField", "insert_field"),
        _kafka("InsertHeader", "insert_header", sided=False),
        _kafka("MaskField", "mask_field"),
        _kafka("RegexRouter", "regex_router", sided=False),
        _kafka("ReplaceField", "replace_field"),
        _kafka("SetSchemaMetadata", "set_schema_metadata"),
        _kafka("TimestampConverter", "timestamp_converter"),
        _kafka("ValueToKey", "value_to_key", sided=False),
        ClassName(
            "io.debezium.transforms.ExtractNewRecordState", f"{_HERE}extract_new_record_state:ExtractNewRecordState"
        ),
        ClassName(
            "io.debezium.connector.mongodb.transforms.ExtractNewDocumentState",
            f"{_HERE}extract_new_document_state:ExtractNewDocumentState",
        ),
        ClassName("io.confluent.connect.transforms.TombstoneHandler", f"{_HERE}tombstone_handler:TombstoneHandler"),
    ),
    {
        f"{_KAFKA}TimestampRouter": f"{_ONE_OUTPUT}use RegexRouter, whose topic follows from the source's alone.",
        "io.debezium.transforms.ByLogicalTableRouter": (
            f"{_ONE_OUTPUT}run it in the connector that writes the source topic, or name one connector for each table."
        ),
        **dict.fromkeys(
            (f"io.confluent.connect.transforms.Filter{side}" for side in ("", "$Key", "$Value")),
            "it is Confluent's own, by a condition on fields, not Apache Kafka's Filter, which drops the records of "
            f"which a predicate is true: use {_KAFKA}Filter with RecordIsTombstone, HasHeaderKey or "
            "TopicNameMatches, or filter by fields where the topic is written.",
        ),
        **dict.fromkeys(
            (
                "io.debezium.transforms.outbox.EventRouter",
                "io.debezium.connector.mongodb.transforms.outbox.MongoEventRouter",
            ),
            f"{_ONE_OUTPUT}run it in the connector that writes the source topics, and name those in topics.",
        ),
    },
)

PREDICATES: Final = ClassNames(
    "predicate",
    (
        _kafka("predicates.HasHeaderKey", "predicates", sided=False),
        _kafka("predicates.RecordIsTombstone", "predicates", sided=False),
        _kafka("predicates.TopicNameMatches", "predicates", sided=False),
    ),
)
