"""Errors across Spark: from a Python worker to the driver only the text of a traceback comes back.

`tagging` adds one line, `keyfold-error:<base64 of JSON>`, as a note to every KeyfoldError that leaves it; a
traceback prints notes. Base64 because Spark puts the text through message templates, where `${` or quotes
would not survive. `unwrap` finds the line and gives the error back.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from compactor.errors import KeyfoldError
from connectors import errors

MARK: Final = "keyfold-error:"
_TAG: Final = re.compile(re.escape(MARK) + r"([A-Za-z0-9+/=]+)")


class _Tag(msgspec.Struct, frozen=True):
    kind: str
    message: str
    action: str


@contextmanager
def tagging() -> Iterator[None]:
    """Lets a KeyfoldError pass, tagged so that `unwrap` knows it on the other side of Spark."""
    try:
        yield
    except KeyfoldError as error:
        if not any(note.startswith(MARK) for note in getattr(error, "__notes__", ())):
            error.add_note(tag(error))
        raise


def tag(error: KeyfoldError) -> str:
    """The line that stands for `error` in a text."""
    document = msgspec.json.encode(_Tag(type(error).__name__, error.message, error.action))
    return MARK + base64.b64encode(document).decode()


def unwrap(error: BaseException) -> KeyfoldError | None:
    """The KeyfoldError that `error` is, was raised from, or carries in its text; None where there is none."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        found = current if isinstance(current, KeyfoldError) else _from_text(str(current))
        if found is not None:
            return found
        current = current.__cause__ or current.__context__
    return None


def _from_text(text: str) -> KeyfoldError | None:
    return next((found for match in _TAG.finditer(text) if (found := _decode(match[1])) is not None), None)


def _decode(text: str) -> KeyfoldError | None:
    try:
        found = msgspec.json.decode(base64.b64decode(text), type=_Tag)
    except (msgspec.DecodeError, binascii.Error):
        return None
    return _kinds(KeyfoldError).get(found.kind, errors.ConnectorError)(found.message, found.action)


def _kinds(root: type[KeyfoldError]) -> dict[str, type[KeyfoldError]]:
    """Every error class by its name; those of an unknown name become a ConnectorError."""
    below = {name: kind for child in root.__subclasses__() for name, kind in _kinds(child).items()}
    return {root.__name__: root, **below}
