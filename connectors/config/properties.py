"""Java's properties files, as far as files of secrets need them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_ENTRY = re.compile(r"(?P<key>(?:\\.|[^\\\s=:])*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The entries of a properties file (java.util.Properties.load): comments, escapes and continued lines included."""
    entries = (_ENTRY.fullmatch(line) for line in _logical_lines(text))
    return {_unescaped(entry["key"]): _unescaped(entry["value"]) for entry in entries if entry}


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in (line.lstrip(" \t\f") for line in re.split(r"\r\n|\n|\r", text)):
        if not pending and (not line or line[0] in "#!"):
            continue
        if _continues(line):
            pending += line[:-1]
            continue
        yield pending + line
        pending = ""
    if pending:
        yield pending


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: _character(found[1]), text)


def _character(escape: str) -> str:
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _CONTROLS.get(escape, escape)
