"""Which names an Avro schema may have, by the rules of Java's Avro, which its readers have."""

from __future__ import annotations

import unicodedata
from typing import Final

from connectors.errors import DataError
from connectors.rejection import shown

_LETTERS: Final = frozenset({"Lu", "Ll", "Lt", "Lm", "Lo"})
"""The categories of Unicode of which `Character.isLetter` is true."""
_DIGITS: Final = frozenset({"Nd"})
_ONE_CHAR: Final = 0xFFFF
"""The last character that is one of Java's: of those above it Java sees two halves, which are no letters."""


def is_name(text: str) -> bool:
    """Returns whether Java's Avro takes a name (`NameValidator.UTF_VALIDATOR`): letters, digits and "_"."""
    return bool(text) and all(
        one == "_" or (ord(one) <= _ONE_CHAR and unicodedata.category(one) in (_LETTERS | _DIGITS if at else _LETTERS))
        for at, one in enumerate(text)
    )


def check_name(text: str, what: str, action: str) -> None:
    """Raises DataError for a name of a `what` that Avro does not take."""
    if not is_name(text):
        raise DataError(
            f"Avro does not take {shown(text)} as the name of a {what}: letters, digits and _ it takes.", action
        )
