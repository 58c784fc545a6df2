"""Reads a JSON object, from a file or a request, and names the place of what is wrong in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from connectors.config.errors import Fault, FaultyConfigError

_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""The beginning of a character in two halves, as JSON can write it; one of them alone is no character."""
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
_NEXT: Final = "See that the path is right, and that this account may read the file."


class JsonError(ValueError):
    """A text that is no JSON object: what is wrong, and at which place."""


def read_object(path: Path) -> dict[str, Any]:
    """Reads the JSON object in `path`. Numbers come as their text, so that they are shown as written.

    Raises ConfigError for a file that cannot be read, or is what `parse_object` refuses.
    """
    try:
        return parse_object(path.read_bytes())
    except (JsonError, OSError) as error:
        text = str(error) if isinstance(error, JsonError) else f"cannot be read: {error.strerror or error}. {_NEXT}"
        raise FaultyConfigError(str(path), [Fault("", text)]) from None


def parse_object(data: bytes, what: str = "file") -> dict[str, Any]:
    """Returns the JSON object in the UTF-8 `data` of a `what`, numbers as their text.

    Raises JsonError for what is not JSON (with line and column), is no object, has a key twice, or a text that has no
    UTF-8: half of a surrogate pair.
    """
    try:
        text = data.decode("utf-8-sig")
        content = json.loads(
            text, object_pairs_hook=_without_doubles, parse_float=str, parse_int=str, parse_constant=str
        )
        if _HALF.search(text):
            json.dumps(content, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise JsonError(_sentence(error, what)) from None
    except UnicodeDecodeError as error:
        raise JsonError(f"byte {error.start}: this is not UTF-8.") from None
    except UnicodeEncodeError as error:
        raise JsonError(f"\\u{ord(error.object[error.start]):x} is half of a character; remove it.") from None
    except RecursionError:
        raise JsonError("is nested too deeply; write a flat object.") from None
    if not isinstance(content, dict):
        raise JsonError("must hold one JSON object.")
    return content


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise JsonError(f'the key "{name}" stands twice; remove one.')
        members[name] = value
    return members


def _sentence(error: json.JSONDecodeError, what: str) -> str:
    """Returns `line L, column C: this is not JSON: …`, counted from 1: the place at which the text has to change."""
    text = error.doc
    start = _BLANK.match(text, error.pos).end()  # type: ignore[union-attr]  # it matches anything
    at, said = _place(error, start, what) if text.strip() else (0, f"the {what} is empty")
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}: this is not JSON: {said}."


def _place(error: json.JSONDecodeError, at: int, what: str) -> tuple[int, str]:
    """Returns the place, and what is wrong there; what the decoder did not expect stands at `at`."""
    text = error.doc
    if text[at : at + 1] == ",":  # newer Pythons stop at the comma itself
        at = _BLANK.match(text, at + 1).end()  # type: ignore[union-attr]
    before = text[:at].rstrip()
    unexpected = text[at : at + 1]
    if not unexpected and not error.msg.startswith("Unterminated"):
        return max(0, len(before) - 1), f"the {what} ends before its object does; a closing brace is missing"
    return _by_character(before, at, unexpected) or _by_message(error, before, unexpected)


def _by_character(before: str, at: int, unexpected: str) -> tuple[int, str] | None:
    """Returns the fault that `unexpected`, at `at` after `before`, shows by itself; None if the message is needed."""
    if unexpected in _CLOSING and before.endswith(","):
        return len(before) - 1, f"a comma before the closing {_CLOSING[unexpected]}; remove it"
    if unexpected in _NOT_JSON:
        return at, _NOT_JSON[unexpected]
    return None


def _by_message(error: json.JSONDecodeError, before: str, unexpected: str) -> tuple[int, str]:
    if error.msg.startswith("Expecting ','"):
        return len(before), "a comma is missing"
    if error.msg.startswith("Expecting value") and unexpected in _CLOSING:
        return len(before), "a value is missing"
    said = next((said for begin, said in _WORDS if error.msg.startswith(begin)), "it cannot be read from here on")
    return error.pos, said
