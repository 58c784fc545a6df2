"""Change events of a table of customers, as Debezium writes them with JsonConverter and schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

ID: Final = {"type": "struct", "name": "shop.Key", "fields": [{"field": "id", "type": "string"}]}
_ROW: Final = {
    "type": "struct",
    "name": "shop.Value",
    "optional": True,
    "fields": [{"field": "id", "type": "string"}, {"field": "street", "type": "string"}],
}
_SOURCE: Final = {
    "type": "struct",
    "name": "shop.Source",
    "fields": [{"field": "lsn", "type": "int64"}, {"field": "query", "type": "string", "optional": True}],
}
_ENVELOPE: Final = {
    "type": "struct",
    "name": "shop.Envelope",
    "fields": [
        {**_ROW, "field": "before"},
        {**_ROW, "field": "after"},
        {**_SOURCE, "field": "source"},
        {"field": "op", "type": "string"},
        {"field": "ts_ms", "type": "int64", "optional": True},
    ],
}
JSON: Final = {
    "key.converter": "JsonConverter",
    "key.converter.schemas.enable": "true",
    "value.converter": "JsonConverter",
    "value.converter.schemas.enable": "true",
}
UNWRAP: Final = {"transforms": "e", "transforms.e.type": "io.debezium.transforms.ExtractNewRecordState"}
PLAIN_KEY: Final = {"output.key.converter": "JsonConverter", "output.key.converter.schemas.enable": "false"}
"""A connector's settings: they read such records, make rows of them, and write keys without their schema."""


def with_schema(schema: Mapping[str, Any], payload: Any) -> bytes:
    """A key or value as JsonConverter writes it."""
    return json.dumps({"schema": schema, "payload": payload}, separators=(",", ":")).encode()


def key_of(name: str) -> bytes:
    """The key of a customer's events."""
    return with_schema(ID, {"id": name})


def change(name: str, street: str, lsn: int) -> bytes:
    """The event of a customer who lives in `street` from `lsn` on; its statement is there, too."""
    source = {"lsn": lsn, "query": f"UPDATE customers SET street = '{street}'"}
    after = {"id": name, "street": street}
    return with_schema(_ENVELOPE, {"before": None, "after": after, "source": source, "op": "u", "ts_ms": 5})
