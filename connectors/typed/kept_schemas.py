"""Keeps the schemas of a typed snapshot's records as texts, by which they are written again. Pure.

A text is a schema in the form of JsonConverter, of whatever converter the schema is.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec
from msgspec.structs import replace

from connectors.converters.json.schemas import read_schema, write_schema
from connectors.converters.json.values import JsonForm, JsonValues, encoded
from connectors.data.schema import Field, Schema
from connectors.errors import DataError

LONGEST: Final = 256 << 10
"""Bytes of one schema: a table of 4,096 columns takes as many."""
MOST_OF_TYPE: Final = 4
"""Schemas that a task sends of one type: they differ in names, defaults, or in what may be null."""
MOST: Final = 16
"""Schemas that a manifest has: a snapshot of more has columns of rare ones alone, which then have the plain schema of
their type."""
MOST_BYTES: Final = 1 << 20


def text_of(schema: Schema) -> str | None:
    """Returns a schema as text; None if it is too long, or has what JSON has no form for."""
    try:
        text = encoded(write_schema(schema, JsonValues(JsonForm()).write_defaults()))
    except DataError:
        return None
    return text.decode() if len(text) <= LONGEST else None


def schema_from(text: str) -> Schema:
    """Returns what `text_of` was given. Raises DataError for other texts."""
    try:
        return read_schema(msgspec.json.decode(text), JsonValues(JsonForm()).read_defaults())
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise DataError(f"A schema cannot be read: {str(error)[:200]}.") from None


def chosen(counts: Counter[str], *, more: bool) -> tuple[str, ...]:
    """Returns the texts of the schemas that a manifest has, that of the most records first.

    If there are several, or `more`, records of one may lack what another requires: in all of them every field may be
    null then, and no null stands for a default.
    """
    texts = sorted(counts, key=lambda text: (-counts[text], text))[:MOST]
    if more or len(counts) > 1:
        relaxed = (text_of(_relaxed(schema_from(text))) for text in texts)
        texts = list(dict.fromkeys(text for text in relaxed if text is not None))
    left, kept = MOST_BYTES, list[str]()
    for text in texts:
        left -= len(text)
        if left >= 0:
            kept.append(text)
    return tuple(kept)


def _relaxed(schema: Schema) -> Schema:
    fields = tuple(Field(field.name, _relaxed(field.schema).as_optional()) for field in schema.fields)
    inner = None if schema.value_schema is None else _relaxed(schema.value_schema)
    return replace(schema, default=None, fields=fields, value_schema=inner)
