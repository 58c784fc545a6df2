"""Change events of a table with ten columns, as a data set's records, in one of three forms.

`AVRO` and `JSON`, which has the schema in each message, are events in Debezium's envelope. `ROWS` is plain JSON, in
which an event cannot be told from a row: Debezium has taken the rows out. The ids of the schemas in Avro are those that
an empty registry gives to the first two that are registered.
"""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import fastavro
import httpx

from connectors.converters.avro.schemas import FromAvro
from connectors.converters.json.converter import JsonConverter
from connectors.options import read

AVRO: Final = "avro"
JSON: Final = "json"
ROWS: Final = "rows"
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
_KEY: Final = fastavro.parse_schema(KEY)
_ENVELOPE: Final = fastavro.parse_schema(ENVELOPE)
_STAMP: Final = 17
"""Characters of a time in seconds with six digits after the point."""
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


def records(
    chance: random.Random, first: int, keys: int, count: int, form: str = AVRO
) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields `count` (key, value) of rows with ids from `first` on; a share of them are deletions."""
    key_of, value_of = _writers(form)
    for number in range(count):
        row = _row(chance, first + int(chance.random() * keys), number)
        event = _event(row, number, is_deletion=chance.random() < _DELETED)
        yield key_of({"id": row["id"]}), value_of(event if form != ROWS else event["after"])


def stamped_event(stamp: float) -> bytes:
    """Returns an event in Avro with a time (seconds), which `stamp_of` finds in the row."""
    row = {**_row(random.Random(0), 0, 0), "note": f"{stamp:0{_STAMP}.6f}"}
    return _encoded(IDS["value"], _ENVELOPE, _event(row, 0, is_deletion=False))


def stamp_of(row: bytes) -> float:
    """Returns the time that ends a row in Avro: its last column has it."""
    return float(row[-_STAMP:])


def key_of(number: int) -> bytes:
    """Returns the key in Avro of the row with this id."""
    return _encoded(IDS["key"], _KEY, {"id": number})


def _event(row: dict[str, Any], number: int, *, is_deletion: bool) -> dict[str, Any]:
    return {
        "before": row if is_deletion else None,
        "after": None if is_deletion else row,
        "source": {
            "version": "3.2.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": _BASE_MS + number,
            "db": "shop", "schema": "public", "table": "orders", "txId": number, "lsn": 64 * number,
        },
        "op": "d" if is_deletion else "u",
        "ts_ms": _BASE_MS + number,
    }  # fmt: skip


def _writers(form: str) -> tuple[Callable[[Any], bytes], Callable[[Any], bytes | None]]:
    """Returns what writes keys, and what writes values."""
    if form == AVRO:
        return partial(_encoded, IDS["key"], _KEY), partial(_encoded, IDS["value"], _ENVELOPE)
    converter = JsonConverter(read(JsonConverter.OPTIONS, {"schemas.enable": str(form == JSON).lower()}), is_key=False)
    key, value = FromAvro().schema(KEY), FromAvro().schema(ENVELOPE)
    if form == ROWS:
        field = value.field("after")
        assert field is not None
        value = field.schema
    write = converter.from_connect_data
    return (
        lambda node: write("", [], key, node) or b"",
        lambda node: None if node is None else write("", [], value, node),
    )


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
