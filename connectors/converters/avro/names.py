"""Which names an Avro schema may have, by the rules of Java's Avro, which its readers have."""

from __future__ import annotations

import unicodedata
from typing import Final

from connectors.errors import DataError
from connectors.rejection import shown

_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo"})
"""The categories of Unicode of which `Character.isLetter` is true."""
_LATER: Final = _LETTERS | {"Nd"}
"""Those, and digits, which no name begins with."""
_ONE_CHAR: Final = 0xFFFF
"""The last character that is one of Java's: of those above it Java sees two halves, which are no letters."""


def is_name(text: str) -> bool:
    """Returns whether Java's Avro takes a name (`NameValidator.UTF_VALIDATOR`): letters, digits and "_"."""
    return bool(text) and _is_part(text[0], _LETTERS) and all(_is_part(char, _LATER) for char in text[1:])


def _is_part(char: str, categories: frozenset[str]) -> bool:
    return char == "_" or (ord(char) <= _ONE_CHAR and unicodedata.category(char) in categories)


def check_name(text: str, what: str, action: str) -> None:
    """Raises DataError for a name of a `what` that Avro does not take."""
    if not is_name(text):
        raise DataError(
            f"Avro does not take {shown(text)} as the name of a {what}: letters, digits and _ it takes.", action
        )
