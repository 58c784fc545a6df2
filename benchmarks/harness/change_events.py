"""Change events of a table with ten columns, in Debezium's envelope and Avro, as a data set's records.

The ids of the schemas are those that an empty registry gives to the first two that are registered.
"""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import httpx

KEY: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "int"}],
}
_DECIMAL: Final = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
_ROW: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "customer", "type": "string"},
        {"name": "email", "type": ["null", "string"], "default": None},
        {"name": "street", "type": "string"},
        {"name": "city", "type": "string"},
        {"name": "amount", "type": _DECIMAL},
        {"name": "quantity", "type": "int"},
        {"name": "state", "type": "string"},
        {"name": "created_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
_SOURCE: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Source",
    "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "version", "type": "string"},
        {"name": "connector", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "db", "type": "string"},
        {"name": "schema", "type": "string"},
        {"name": "table", "type": "string"},
        {"name": "txId", "type": ["null", "long"], "default": None},
        {"name": "lsn", "type": ["null", "long"], "default": None},
    ],
}
ENVELOPE: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.public.orders",
    "connect.name": "shop.public.orders.Envelope",
    "fields": [
        {"name": "before", "type": ["null", _ROW], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": _SOURCE},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}
IDS: Final = {"key": 1, "value": 2}
_DELETED: Final = 0.05
_STREETS: Final = ("Main Street", "Station Road", "Church Lane", "Rue de la Gare", "Ahornweg")
_CITIES: Final = ("Lyon", "Leeds", "Graz", "Ghent", "Porto", "Basel")
_STATES: Final = ("new", "paid", "packed", "sent", "done")
_BASE_MS: Final = 1_700_000_000_000
_NOTED: Final = 0.3


def register(url: str) -> None:
    """Registers the schemas with the empty registry at `url`; AssertionError where their ids are not `IDS`."""
    for side, schema in (("key", KEY), ("value", ENVELOPE)):
        body = {"schema": json.dumps(schema)}
        answer = httpx.post(f"{url}/subjects/shop.public.orders-{side}/versions", json=body, timeout=30.0)
        answer.raise_for_status()
        assert answer.json()["id"] == IDS[side], answer.text


def records(chance: random.Random, first: int, keys: int, count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yields `count` (key, value) of rows whose ids are from `first` on; a share of them are deletions."""
    key, envelope = fastavro.parse_schema(KEY), fastavro.parse_schema(ENVELOPE)
    for number in range(count):
        row = _row(chance, first + int(chance.random() * keys), number)
        gone = chance.random() < _DELETED
        event = {
            "before": row if gone else None,
            "after": None if gone else row,
            "source": {
                "version": "3.2.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": _BASE_MS + number,
                "db": "shop", "schema": "public", "table": "orders", "txId": number, "lsn": 64 * number,
            },
            "op": "d" if gone else "u",
            "ts_ms": _BASE_MS + number,
        }  # fmt: skip
        yield _encoded(IDS["key"], key, {"id": row["id"]}), _encoded(IDS["value"], envelope, event)


def _row(chance: random.Random, order: int, number: int) -> dict[str, Any]:
    customer = f"customer {chance.randrange(100_000)}"
    return {
        "id": order,
        "customer": customer,
        "email": f"{customer.replace(' ', '.')}@example.org",
        "street": f"{chance.choice(_STREETS)} {chance.randrange(200)}",
        "city": chance.choice(_CITIES),
        "amount": chance.randrange(1_000_000).to_bytes(4, "big"),
        "quantity": chance.randrange(20),
        "state": chance.choice(_STATES),
        "created_at": _BASE_MS + number,
        "note": "leave it at the door" if chance.random() < _NOTED else None,
    }


def _encoded(number: int, schema: Any, value: Any) -> bytes:
    buffer = io.BytesIO()
    buffer.write(struct.pack(">bI", 0, number))
    fastavro.schemaless_writer(buffer, schema, value)
    return buffer.getvalue()
