"""Carries typed errors across Spark: a task's error comes back to the driver as what it was.

Spark hands an exception of a Python task to the driver as the text of its traceback, wrapped in other
exceptions. So an error that leaves a task gets a note, which a traceback prints, and the note carries the
error itself: base64 of JSON, because Spark puts the text through message templates, in which quotes and `${`
would not survive. It works for a job, a streaming query and a data source alike.

A traceback also has texts of others: an error may quote a record or an answer. So a note is signed, with a key that
the driver hands to its tasks in their code, and no text holds.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hmac
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
from msgspec import Struct

from compactor.errors import KeyfoldError, OutOfRoomError
from compactor.json_types import decoded_as

MARK: Final = "keyfold-error:"
_TAG: Final = re.compile(re.escape(MARK) + r"([0-9a-f]{64}):([A-Za-z0-9+/=]++)")
KEY: Final = secrets.token_bytes(32)
"""Signs what tasks of this process raise. A task's function must hold it: in its own process this is another."""

_OUT_OF_ROOM: Final = (
    "A task of Spark's had no memory or no disk left.",
    "Free space where spark.local.dir is, or give the machine more memory.",
)

# Characters of an error in a log line; more is cut.
_LONGEST: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_PLAN: Final = re.compile(
    r"(?<!\s)\s*+(=== Streaming Query ===|(?:== )?(?:Parsed |Analyzed |Optimized )?(?:Logical|Physical) Plan(?: ==|:))"
    r".*?(?=\n\nThe above exception|\n\nDuring handling|\Z)",
    re.DOTALL,
)


class _Payload(Struct, frozen=True):
    """`kinds` are the error's class names, the most special first: the reader may know only a base."""

    kinds: list[str]
    message: str
    action: str
    topic: str | None = None
    aborted: int = 0
    silent_ms: int = 0


@contextmanager
def tagging(key: bytes) -> Iterator[None]:
    """Tags, in a task, a KeyfoldError that leaves it, so that `unwrap` finds it beyond Spark; `key` is the driver's.

    Raises OutOfRoomError in place of what says that memory or disk is full: beyond Spark it would be a text.
    """
    try:
        yield
    except KeyfoldError as error:
        if not any(note.startswith(MARK) for note in getattr(error, "__notes__", ())):
            error.add_note(tag(error, key))
        raise
    except (MemoryError, OSError) as error:
        if not is_out_of_room(error):
            raise
        full = OutOfRoomError(*_OUT_OF_ROOM)
        full.add_note(tag(full, key))
        raise full from error


def is_out_of_room(error: BaseException) -> bool:
    """Returns whether `error` says that this process got no memory, or that the disk it has written to is full."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


@contextmanager
def unwrapping() -> Iterator[None]:
    """Raises, in the driver, the KeyfoldError that an exception of Spark's carries."""
    try:
        yield
    except KeyfoldError:
        raise
    except Exception as error:
        typed = unwrap(error)
        if typed is None:
            raise
        raise typed from error


def tag(error: KeyfoldError, key: bytes = KEY) -> str:
    """Returns the line that carries `error` in a text, signed with `key`."""
    kinds = [kind.__name__ for kind in type(error).__mro__ if issubclass(kind, KeyfoldError)]
    payload = _Payload(kinds, error.message, error.action, error.topic, error.aborted, error.silent_ms)
    encoded = base64.b64encode(msgspec.json.encode(payload))
    return f"{MARK}{_signature(encoded, key)}:{encoded.decode()}"


def untagged(line: str) -> KeyfoldError | None:
    """Returns the KeyfoldError of a line that is a tag as a whole, of any signature: a task's own answer."""
    whole = _TAG.fullmatch(line)
    payload = _decoded(whole[2]) if whole else None
    return _made(payload) if payload else None


def unwrap(error: BaseException) -> KeyfoldError | None:
    """Returns the KeyfoldError that `error` is, was raised from, or carries in its text; None if there is none."""
    for link in chain(error):
        typed = link if isinstance(link, KeyfoldError) else _from_text(str(link))
        if typed is not None:
            return typed
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields `error` and what it was raised from, the nearest first."""
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _from_text(text: str) -> KeyfoldError | None:
    signed = (encoded for signature, encoded in _TAG.findall(text) if _is_signed(encoded, signature))
    return next((_made(payload) for payload in map(_decoded, signed) if payload is not None), None)


def _is_signed(encoded: str, signature: str) -> bool:
    return hmac.compare_digest(_signature(encoded.encode(), KEY), signature)


def _signature(encoded: bytes, key: bytes) -> str:
    return hmac.digest(key, encoded, "sha256").hex()


def _decoded(text: str) -> _Payload | None:
    try:
        return decoded_as(base64.b64decode(text), _Payload)
    except (binascii.Error, msgspec.MsgspecError):
        return None


def _made(payload: _Payload) -> KeyfoldError:
    known = _known()
    kind = next((known[name] for name in payload.kinds if name in known), KeyfoldError)
    error = kind.__new__(kind)
    KeyfoldError.__init__(error, payload.message, payload.action, topic=payload.topic)
    error.aborted, error.silent_ms = payload.aborted, payload.silent_ms
    return error


def _known() -> dict[str, type[KeyfoldError]]:
    """Returns every error class that this process has imported, by its name."""
    classes: dict[str, type[KeyfoldError]] = {}
    waiting: list[type[KeyfoldError]] = [KeyfoldError]
    while waiting:
        kind = waiting.pop()
        classes[kind.__name__] = kind
        waiting.extend(kind.__subclasses__())
    return classes


def briefly(error: BaseException) -> str:
    """Returns all that a KeyfoldError says; of another error its first line, and the last of a traceback in it."""
    if isinstance(error, KeyfoldError):
        return str(error)
    text = without_plan(str(error)).strip()
    first = text.split("\n", 1)[0].removesuffix(_TRACEBACK).rstrip(" :")
    parts = [_cut(part) for part in (first, _raised(text)) if part]
    return ": ".join(dict.fromkeys(parts)) or type(error).__name__


def without_plan(text: str) -> str:
    """Returns `text` without the plans of Spark's in it: they are kilobytes, and may show the options of a source."""
    return _PLAN.sub("", text)


def _raised(text: str) -> str:
    """Returns what the first traceback in `text` ends with; "" if there is none."""
    _, _, trace = text.partition(_TRACEBACK)
    lines = (line for line in trace.splitlines() if line.strip())
    return next((line for line in lines if not line[0].isspace()), "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
