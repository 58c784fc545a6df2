"""Shows text that others wrote: a terminal obeys control characters, and others turn the order of what is read."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from msgspec import Struct

_STYLES: Final = re.compile(r"(\x1b\[[01]m)")
"""Bold and its end, as tables have them; cells have none of their own."""


class Base64(Struct, frozen=True):
    """Bytes that are no UTF-8 text."""

    base64: bytes


Readable: TypeAlias = str | Base64 | None
"""Bytes for a person: text, or `{"base64": …}`."""


def readable(data: bytes | str | None) -> Readable:
    """Returns `data` as text if it is UTF-8."""
    if not isinstance(data, bytes):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return Base64(data)


def printable(text: str) -> str:
    """Returns `text` in its lines; what is not printable, apart from ends of lines and tabs, as Python writes it."""
    return "".join(map(_shown, text)) if _is_odd(text) else text


def one_line(text: str) -> str:
    """Returns `text` in one line: as `printable`, with ends of lines and tabs as Python writes them."""
    return text if text.isprintable() else printable(text).replace("\n", r"\n").replace("\t", r"\t")


def printable_with_styles(text: str) -> str:
    """Returns `text` as `printable`, with the bold headers of tables."""
    if not _is_odd(text):
        return text
    return "".join(part if _STYLES.fullmatch(part) else printable(part) for part in _STYLES.split(text))


def printable_json(text: str) -> str:
    """Returns the JSON `text` with other escapes for what is not printable in it: the same values."""
    if not _is_odd(text):
        return text
    return "".join(character if _is_shown(character) else _json_escape(character) for character in text)


def _is_odd(text: str) -> bool:
    return not text.replace("\n", "").replace("\t", "").isprintable()


def _is_shown(character: str) -> bool:
    return character.isprintable() or character in "\n\t"


def _shown(character: str) -> str:
    return character if _is_shown(character) else repr(character)[1:-1]


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
