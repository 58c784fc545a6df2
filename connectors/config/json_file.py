"""Reads a JSON object from a file, and names the place of what is wrong in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from connectors.config.errors import Fault, FaultyConfigError

_BLANK: Final = re.compile(r"\s*")
_WORDS: Final = (
    ("Expecting ':'", "a colon is missing between the name and its value"),
    ("Expecting property name", "a name in double quotes is missing"),
    ("Expecting value", "a value is missing; texts stand in double quotes"),
    ("Extra data", "nothing may stand behind the end of the object"),
    ("Unterminated string", "this text has no closing double quote"),
    ("Invalid control character", "a text goes on over the end of its line, or has a control character in it"),
    ("Invalid \\", "a backslash begins an escape that JSON does not have; write two for one"),
)
"""How the messages of Python's decoder begin, and what we say."""

_CLOSING: Final = {"}": "brace", "]": "bracket"}
_NOT_JSON: Final = {
    "/": "JSON has no comments; remove it",
    "#": "JSON has no comments; remove it",
    "'": "names and texts stand in double quotes, not in single ones",
}


class _DoubledKeyError(ValueError):
    """A key that stands twice in one object."""


def read_object(path: Path) -> dict[str, Any]:
    """Reads the JSON object in `path`. Numbers come as their text, so that they are shown as written.

    Raises ConfigError for a file that cannot be read, is not JSON (with line and column), is no object, or has a
    key twice.
    """
    try:
        content = json.loads(
            path.read_text(encoding="utf-8-sig"),
            object_pairs_hook=_without_doubles,
            parse_float=str,
            parse_int=str,
            parse_constant=str,
        )
    except json.JSONDecodeError as error:
        raise _faulty(path, _sentence(error)) from None
    except _DoubledKeyError as error:
        raise _faulty(path, f"the key {error} stands twice; remove one.") from None
    except UnicodeDecodeError as error:
        raise _faulty(path, f"byte {error.start}: this is not UTF-8.") from None
    except (OSError, RecursionError) as error:
        raise _faulty(path, f"cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(content, dict):
        raise _faulty(path, "must hold one JSON object.")
    return content


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _DoubledKeyError(next(f'"{name}"' for name in names if names.count(name) > 1))
    return found


def _faulty(path: Path, text: str) -> FaultyConfigError:
    return FaultyConfigError(str(path), [Fault("", text)])


def _sentence(error: json.JSONDecodeError) -> str:
    """Returns `line L, column C: this is not JSON: …`, counted from 1: the place where the text has to be changed."""
    text = error.doc
    start = _BLANK.match(text, error.pos).end()  # type: ignore[union-attr]  # it matches anything
    at, said = _place(error, start) if text.strip() else (0, "the file is empty")
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}: this is not JSON: {said}."


def _place(error: json.JSONDecodeError, at: int) -> tuple[int, str]:
    """Returns the place, and what is wrong there; what the decoder did not expect stands at `at`."""
    text = error.doc
    if text[at : at + 1] == ",":  # newer Pythons stop at the comma itself
        at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]
    before = text[:at].rstrip()
    return _by_character(error, before, at, text[at : at + 1]) or _by_message(error, before, text[at : at + 1])


def _by_character(error: json.JSONDecodeError, before: str, at: int, found: str) -> tuple[int, str] | None:
    """Returns what `found` at `at`, behind `before`, says by itself; None where the decoder's message is needed."""
    if found in _CLOSING and before.endswith(","):
        return len(before) - 1, f"a comma before the closing {_CLOSING[found]}; remove it"
    if found in _NOT_JSON:
        return at, _NOT_JSON[found]
    if found or error.msg.startswith("Unterminated"):
        return None
    return max(0, len(before) - 1), "the file ends before its object does; a closing brace is missing"


def _by_message(error: json.JSONDecodeError, before: str, found: str) -> tuple[int, str]:
    if error.msg.startswith("Expecting ','"):
        return len(before), "a comma is missing"
    if error.msg.startswith("Expecting value") and found in _CLOSING:
        return len(before), "a value is missing"
    said = next((said for begin, said in _WORDS if error.msg.startswith(begin)), "it cannot be read from here on")
    return error.pos, said
