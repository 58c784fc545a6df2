"""Reads an entry of JAAS: `MODULE required username="u" password="p";`.

What a client logs in with and what is hidden of it in messages are read by the same rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

_ENTRY: Final = re.compile(r"([\w.$]+)\s+(?:required|requisite|sufficient|optional)\b(.*)", re.DOTALL | re.IGNORECASE)
_OPTION: Final = re.compile(
    r"(?<![\w.])([\w.]++)\s*+=\s*+(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)'|([^\s;\"']++))", re.DOTALL
)
_BLANKS: Final = re.compile(r"\s*+")
_SECRET: Final = re.compile(r"(?i)password|passphrase|secret|token|assertion|private.?key|credential|^extension_")
"""The options of Kafka's login modules that are secrets, by their names."""
_PAIRS: Final = (("username", "password"), ("clientId", "clientSecret"))


class JaasError(ValueError):
    """The text is no entry of JAAS; the message says which form it must have, and nothing of the text."""


class JaasEntry(Struct, frozen=True):
    """A login module's class and its options. Its repr shows none of them."""

    module: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return "JaasEntry()"


def read_entry(text: str) -> JaasEntry:
    """Reads one entry. Raises JaasError."""
    entry = _ENTRY.fullmatch(text.strip())
    if not entry:
        raise JaasError('it must have the form MODULE required NAME="VALUE" …;')
    return JaasEntry(entry[1], dict(_options(entry[2].removesuffix(";"))))


def secrets_in(text: str) -> list[str]:
    """Returns the secrets among the options in `text`, also if the rest of it is no entry; none if there are none.

    A user's name or a client's id is one only together with its password, as HTTP's Basic sends them.
    """
    options = [(option[1], _value(option)) for option in _OPTION.finditer(text)]
    secrets = [value for name, value in options if _SECRET.search(name)]
    named = dict(options)
    return [*secrets, *(f"{named[user]}:{named[own]}" for user, own in _PAIRS if {user, own} <= named.keys())]


def _options(text: str) -> Iterator[tuple[str, str]]:
    at = _end_of_blanks(text, 0)
    while at < len(text):
        option = _OPTION.match(text, at)
        if not option:
            raise JaasError('an option after the module\'s name does not have the form NAME="VALUE".')
        yield option[1], _value(option)
        at = _end_of_blanks(text, option.end())


def _end_of_blanks(text: str, at: int) -> int:
    blanks = _BLANKS.match(text, at)
    assert blanks is not None
    return blanks.end()


def _value(option: re.Match[str]) -> str:
    quoted = option[2] if option[2] is not None else option[3]
    return option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
