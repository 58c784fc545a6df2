"""The types of settings that say which columns a snapshot has."""

from __future__ import annotations

from typing import Annotated, Literal

from connectors.config.fields import ANY_CASE, WORDS_OR_NONE, Allowed

SnapshotFormat = Annotated[Literal["bytes", "typed"], ANY_CASE]
StringColumns = Annotated[
    frozenset[Literal["key", "value"]],
    WORDS_OR_NONE,
    Allowed("none, or some of key, value with commas between them", "LIST"),
]
MetadataColumns = Annotated[
    frozenset[Literal["_key", "_partition", "_offset", "_timestamp", "_headers"]],
    WORDS_OR_NONE,
    Allowed("none, or some of _key, _partition, _offset, _timestamp, _headers with commas between them", "LIST"),
]
