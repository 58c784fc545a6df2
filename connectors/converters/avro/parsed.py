"""Parses with fastavro what Java's Avro takes and fastavro does not: symbols of enums that are not ASCII, defaults."""

from __future__ import annotations

import re
import unicodedata
from itertools import islice
from typing import Any, Final

import fastavro

from connectors.errors import DataError
from connectors.rejection import shown

PARSED_MARK: Final = "__fastavro_parsed"
NAMED_MARK: Final = "__named_schemas"
"""By these properties fastavro knows a schema that it has parsed, and the types that it has found in it."""
_INNER: Final = frozenset({"type", "items", "values"})
"""The names under which a schema has others, apart from the fields of a record."""


def parsed_schema(avro: Any, named: dict[str, Any]) -> Any:
    """Returns `avro` as fastavro reads and writes with it; puts its named types into `named`.

    Raises DataError, or what fastavro stumbles over.
    """
    symbols: dict[str, str] = {}
    before = len(named)
    parsed = fastavro.parse_schema(_with_stand_ins(avro, symbols), named_schemas=named)
    # Those of earlier schemas have their own symbols already; a schema may refer to hundreds of others.
    for node in islice(named.values(), before, None):
        if node.get("type") == "enum":
            node["symbols"] = [symbols.get(symbol, symbol) for symbol in node["symbols"]]
    return [_marked(branch, named) for branch in parsed] if isinstance(parsed, list) else _marked(parsed, named)


def _marked(parsed: Any, named: dict[str, Any]) -> Any:
    """Marks a schema as parsed: fastavro marks records alone, and would parse all else again for each value."""
    if not isinstance(parsed, dict) or PARSED_MARK in parsed:
        return parsed
    return {**parsed, PARSED_MARK: True, NAMED_MARK: named}


def _with_stand_ins(avro: Any, symbols: dict[str, str]) -> Any:
    """Returns `avro` with ASCII in place of the symbols of enums that are not; `symbols` gets what they stand for."""
    if isinstance(avro, list):
        return [_with_stand_ins(branch, symbols) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    made = {name: _with_stand_ins(part, symbols) if name in _INNER else part for name, part in avro.items()}
    if isinstance(avro.get("fields"), list):
        made["fields"] = [{**field, "type": _with_stand_ins(field["type"], symbols)} for field in avro["fields"]]
    if avro.get("type") == "enum":
        made.pop("default", None)
        made["symbols"] = [_stand_in(symbol, symbols) for symbol in avro["symbols"]]
    return made


def _stand_in(symbol: Any, symbols: dict[str, str]) -> str:
    if not isinstance(symbol, str) or not is_name(symbol):
        raise DataError(f"Avro does not take {shown(symbol)} as a symbol of an enum: letters, digits and _ it takes.")
    if symbol.isascii():
        return symbol
    made = f"_keyfold_{len(symbols)}"
    symbols[made] = symbol
    return made


def without_defaults(avro: Any) -> Any:
    """Returns an Avro schema without defaults, which reading needs none of: fastavro refuses some that Java takes."""
    if isinstance(avro, list):
        return [without_defaults(branch) for branch in avro]
    if not isinstance(avro, dict):
        return avro
    kept = {name: without_defaults(part) if name in _INNER else part for name, part in avro.items()}
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_without_default(field) for field in kept["fields"]]
    return kept


def _without_default(field: Any) -> dict[str, Any]:
    kept = {name: part for name, part in field.items() if name != "default"}
    return {**kept, "type": without_defaults(kept["type"])} if "type" in kept else kept


_ASCII_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo"})
"""The categories of Unicode of which `Character.isLetter` is true."""
_LATER: Final = _LETTERS | {"Nd"}
"""Those, and digits, which no name begins with."""
_ONE_CHAR: Final = 0xFFFF
"""The last character that is one of Java's: of those above it Java sees two halves, which are no letters."""


def is_name(text: str) -> bool:
    """Returns whether Java's Avro takes a name (`NameValidator.UTF_VALIDATOR`): letters, digits and "_"."""
    if text.isascii():  # as nearly all are
        return _ASCII_NAME.fullmatch(text) is not None
    return bool(text) and _is_part(text[0], _LETTERS) and all(_is_part(char, _LATER) for char in text[1:])


def _is_part(char: str, categories: frozenset[str]) -> bool:
    return char == "_" or (ord(char) <= _ONE_CHAR and unicodedata.category(char) in categories)


def check_name(text: str, what: str, action: str) -> None:
    """Raises DataError for a name of a `what` that Avro does not take."""
    if not is_name(text):
        raise DataError(
            f"Avro does not take {shown(text)} as the name of a {what}: letters, digits and _ it takes.", action
        )
