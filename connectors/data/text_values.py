"""Reads a text as Connect reads literals: numbers, truth values, dates, lists and maps (`Values.parseString`)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from connectors.data.schema import (
    BOOLEAN,
    DATE,
    DECIMAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    SCALE,
    STRING,
    TIME,
    TIMESTAMP_SCHEMA,
    Schema,
    Type,
)
from connectors.data.values import bytes_of_decimal, float32

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?", re.ASCII)
_DATES: Final = (
    ("%Y-%m-%d", Schema(type=Type.INT32, name=DATE, version=1), timedelta(days=1)),
    ("%H:%M:%S.%fZ", Schema(type=Type.INT32, name=TIME, version=1), timedelta(milliseconds=1)),
    ("%Y-%m-%dT%H:%M:%S.%fZ", TIMESTAMP_SCHEMA, timedelta(milliseconds=1)),
)
_FORM: Final = re.compile(r"\d{4}-\d\d-\d\d|(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d\.\d{3}Z")


def parse_string(text: str) -> tuple[Schema | None, Any]:
    """Returns schema and value of `text`; a text that is nothing else is itself."""
    if text == "null":
        return None, None
    if text in {"true", "false"}:
        return BOOLEAN, text == "true"
    if _NUMBER.fullmatch(text):
        return _number(text)
    if _FORM.fullmatch(text):
        return _date(text) or (STRING, text)
    if text[:1] in {"[", "{", '"'}:
        return _structure(text) or (STRING, text)
    return STRING, text


def _number(text: str) -> tuple[Schema, Any]:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return STRING, text
    if number == number.to_integral_value():
        return _whole(int(number))
    for schema, nearest in ((FLOAT32, float32(float(number))), (FLOAT64, float(number))):
        if Decimal(repr(nearest) if schema is FLOAT64 else f"{nearest:.8g}") == number:
            return schema, nearest
    return _decimal(number)


def _whole(number: int) -> tuple[Schema, Any]:
    for bits, schema in ((8, INT8), (16, INT16), (32, INT32), (64, INT64)):
        if -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            return schema, number
    return _decimal(Decimal(number))


def _decimal(number: Decimal) -> tuple[Schema, bytes]:
    exponent = number.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    schema = Schema(type=Type.BYTES, name=DECIMAL, version=1, parameters={SCALE: str(scale)})
    return schema, bytes_of_decimal(scale, number)


def _date(text: str) -> tuple[Schema, int] | None:
    for form, schema, unit in _DATES:
        try:
            moment = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if form.startswith("%H"):
            moment = moment.replace(year=1970, month=1, day=1)
        return schema, (moment - _EPOCH) // unit
    return None


def _structure(text: str) -> tuple[Schema | None, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return (STRING, found) if isinstance(found, str) else (None, found)
