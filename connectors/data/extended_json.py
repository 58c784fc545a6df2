"""Reads a value of MongoDB's Extended JSON, version 1 or 2: a document is a text of it in Debezium's change events.

Source: MongoDB Extended JSON (https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/). An object of which
the members are those of a type, such as `$oid`, stands for a value of that type; any other one is a document.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from connectors.data.java_calendar import DAY_MS
from connectors.data.json_parts import decoded_in_parts
from connectors.errors import DataError
from connectors.rejection import reason_of, shown


class Kind(Enum):
    """What a value of BSON is; types that become a text are one kind."""

    NULL = "null"
    STRING = "string"
    DOUBLE = "double"
    BINARY = "binary"
    INT32 = "int32"
    INT64 = "int64"
    BOOLEAN = "boolean"
    MOMENT = "moment"
    REGEX = "regex"
    DOCUMENT = "document"
    ARRAY = "array"
    UNDEFINED = "undefined"


class BsonValue(NamedTuple):
    """A value with its kind: MOMENT in ms since 1970, REGEX as its pattern and options, DOCUMENT and ARRAY as JSON."""

    kind: Kind
    value: Any


_INT: Final = 1 << 31
_LONG: Final = 1 << 63
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_DECIMAL: Final = re.compile(r"[+-]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,5})?|[+-]?Infinity|NaN", re.ASCII)
"""A decimal of 128 bits has 34 digits, and an exponent of four."""
_OBJECT_ID: Final = re.compile(r"[0-9a-fA-F]{24}", re.ASCII)
_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_document(text: str) -> dict[str, Any]:
    """Decodes the text of a document; its members are JSON as `bson_value` takes it. Raises DataError."""
    document = decode_text(text)
    if not isinstance(document, dict):
        raise DataError(f"A document of MongoDB is an object in JSON, and this is {shown(document)}.")
    return document


def decode_text(text: str) -> Any:
    """Decodes Extended JSON. Raises DataError."""
    try:
        return decoded_in_parts(msgspec.json.decode, text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"A document of MongoDB is no Extended JSON: {reason_of(error)}.") from None


def bson_value(node: Any) -> BsonValue:
    """Returns what a value of decoded JSON stands for; documents and arrays keep theirs. Raises DataError."""
    return _OF_JSON[type(node)](node)


def _object(node: dict[str, Any]) -> BsonValue:
    first = next(iter(node), "")
    read = _TYPES.get(first) if first.startswith("$") else None
    if read is None:
        return BsonValue(Kind.DOCUMENT, node)
    try:
        made = read(node)
    except (KeyError, TypeError, ValueError, binascii.Error):
        made = None
    if made is None:
        raise DataError(f"This is no value of MongoDB's Extended JSON: {shown(node)}.")
    return made


def _alone(key: str, node: Mapping[str, Any]) -> Any:
    """Returns the only member of `node`. Raises ValueError if there are others."""
    if len(node) != 1:
        raise ValueError
    return node[key]


def _whole(number: int) -> BsonValue:
    """Returns a number without a type: BSON's parser takes 32 bits if they hold it."""
    if not -_LONG <= number < _LONG:
        raise DataError(f"A whole number of MongoDB has 64 bits, and this is {shown(number)}.")
    return BsonValue(Kind.INT32 if -_INT <= number < _INT else Kind.INT64, number)


def _number_of(text: Any, bound: int) -> int:
    number = int(text) if isinstance(text, str) and _WHOLE.fullmatch(text) else text
    if type(number) is not int or not -bound <= number < bound:
        raise ValueError
    return number


def _double(node: Mapping[str, Any]) -> BsonValue:
    text = _alone("$numberDouble", node)
    if isinstance(text, str) and text not in _NO_NUMBERS and not _DECIMAL.fullmatch(text):
        raise ValueError
    return BsonValue(Kind.DOUBLE, _NO_NUMBERS[text] if text in _NO_NUMBERS else float(text))


def _decimal(node: Mapping[str, Any]) -> BsonValue | None:
    text = _alone("$numberDecimal", node)
    return BsonValue(Kind.STRING, text) if _DECIMAL.fullmatch(text) else None


def _object_id(node: Mapping[str, Any]) -> BsonValue | None:
    text = _alone("$oid", node)
    return BsonValue(Kind.STRING, text.lower()) if _OBJECT_ID.fullmatch(text) else None


def _date(node: Mapping[str, Any]) -> BsonValue:
    moment = _alone("$date", node)
    if isinstance(moment, dict):
        return BsonValue(Kind.MOMENT, _number_of(_alone("$numberLong", moment), _LONG))
    if isinstance(moment, str):
        since = datetime.fromisoformat(moment) - _EPOCH
        return BsonValue(Kind.MOMENT, since.days * DAY_MS + since.seconds * 1_000 + since.microseconds // 1_000)
    return BsonValue(Kind.MOMENT, _number_of(moment, _LONG))


def _timestamp(node: Mapping[str, Any]) -> BsonValue:
    return BsonValue(Kind.MOMENT, 1_000 * _number_of(_alone("$timestamp", node)["t"], 1 << 32))


def _binary(node: Mapping[str, Any]) -> BsonValue | None:
    inner = node["$binary"]
    text = inner["base64"] if isinstance(inner, dict) else inner
    if len(node) != (1 if isinstance(inner, dict) else 2):
        return None
    return BsonValue(Kind.BINARY, base64.b64decode(text, validate=True))


def _uuid(node: Mapping[str, Any]) -> BsonValue:
    return BsonValue(Kind.BINARY, UUID(_alone("$uuid", node)).bytes)


def _regex(pattern: Any, options: Any) -> BsonValue | None:
    if not isinstance(pattern, str) or not isinstance(options, str):
        return None
    return BsonValue(Kind.REGEX, (pattern, "".join(sorted(options))))


def _short_regex(node: Mapping[str, Any]) -> BsonValue | None:
    """Returns a regular expression in the form of version 1; a query's `$regex` is a document."""
    if node.keys() != {"$regex", "$options"} or not isinstance(node["$regex"], str):
        return BsonValue(Kind.DOCUMENT, dict(node))
    return _regex(node["$regex"], node["$options"])


def _code(node: Mapping[str, Any]) -> BsonValue | None:
    text = _alone("$code", node)
    return BsonValue(Kind.STRING, text) if isinstance(text, str) else None


_TYPES: Final[Mapping[str, Callable[[dict[str, Any]], BsonValue | None]]] = {
    "$oid": _object_id,
    "$numberInt": lambda node: BsonValue(Kind.INT32, _number_of(_alone("$numberInt", node), _INT)),
    "$numberLong": lambda node: BsonValue(Kind.INT64, _number_of(_alone("$numberLong", node), _LONG)),
    "$numberDouble": _double,
    "$numberDecimal": _decimal,
    "$date": _date,
    "$timestamp": _timestamp,
    "$binary": _binary,
    "$uuid": _uuid,
    "$regularExpression": lambda node: _regex(**_alone("$regularExpression", node)),
    "$regex": _short_regex,
    "$code": _code,
    "$undefined": lambda node: BsonValue(Kind.UNDEFINED, _alone("$undefined", node)),
    **dict.fromkeys(("$symbol", "$minKey", "$maxKey", "$dbPointer"), lambda _: None),
}
"""What reads each type by the first member of its object; None: there is no such value, or Connect has no type for it
(Debezium's class fails on it, too)."""

_OF_JSON: Final[Mapping[type, Callable[[Any], BsonValue]]] = {
    type(None): partial(BsonValue, Kind.NULL),
    str: partial(BsonValue, Kind.STRING),
    bool: partial(BsonValue, Kind.BOOLEAN),
    int: _whole,
    float: partial(BsonValue, Kind.DOUBLE),
    list: partial(BsonValue, Kind.ARRAY),
    dict: _object,
}
