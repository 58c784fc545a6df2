"""Words dead letters for a page: bytes as text or base64, and no more of any than a person reads. Pure."""

from __future__ import annotations

import base64
from typing import Final

from msgspec import Struct

from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.run import LetterFates
from connectors.ui.texts import LONGEST, bounded, first_line

HEADERS: Final = 100
"""Headers of a letter that are shown; a record may have a hundred thousand."""
_HEADER: Final = 1_000
"""Characters of a header's value."""
_NAME: Final = 250
"""Characters of a header's name, of a topic and of a class: as many as a topic's name has."""
_KEY: Final = 80
"""Characters of a key in a list."""
_PLACE: Final = 20
"""Characters of a partition's or an offset's number, which others may have written."""


class ShownBytes(Struct, frozen=True):
    """Bytes for a page: `text` is None for null, and base64 if `is_base64`; of it `size` bytes, if not `is_whole`."""

    text: str | None
    size: int
    is_base64: bool = False
    is_whole: bool = True


class ListedLetter(Struct, frozen=True, kw_only=True):
    """A letter in a list; `came_ms` is when it came, or else its record's time. `gone` None: that is not known.

    `connector` is the one that it names, if that is another.
    """

    partition: int
    offset: int
    came_ms: int
    topic: str
    stage: str
    class_name: str
    error: str
    key: ShownBytes
    gone: bool | None
    connector: str | None


class ShownLetter(Struct, frozen=True, kw_only=True):
    """A whole letter. `came_ms` and `record_ms` are None, and texts empty, if the letter does not say them.

    `trace` is the stack trace as the letter has it; None if that says no more than `error` and its class.
    """

    partition: int
    offset: int
    came_ms: int | None
    record_ms: int | None
    topic: str
    source_partition: str
    source_offset: str
    connector: str
    stage: str
    class_name: str
    exception: str
    error: str
    trace: str | None
    redrives: int
    gone: bool | None
    key: ShownBytes
    value: ShownBytes
    headers: tuple[tuple[str, ShownBytes], ...]
    more_headers: int


def shown_bytes(data: bytes | str | None, most: int = LONGEST) -> ShownBytes:
    """Returns at most `most` characters of `data`: as text if it is UTF-8, otherwise as base64."""
    if data is None:
        return ShownBytes(None, 0)
    raw = data.encode() if isinstance(data, str) else data
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        some = raw[: most // 4 * 3]
        encoded = base64.b64encode(some).decode()
        return ShownBytes(encoded, len(raw), is_base64=True, is_whole=len(some) == len(raw))
    return ShownBytes(text[:most], len(raw), is_whole=len(text) <= most)


def listed(letter: Letter, connector: str, fates: LetterFates | None) -> ListedLetter:
    """Returns a letter as the list has it."""
    said = letter.context
    named = said.get("connector.name", connector)
    return ListedLetter(
        partition=letter.partition,
        offset=letter.offset,
        came_ms=letter.timestamp if letter.appended is None else letter.appended,
        topic=_name(letter, "topic"),
        stage=_name(letter, "stage"),
        class_name=_name(letter, "class.name"),
        error=first_line(said.get("exception.message", "")) or "",
        key=shown_bytes(letter.key, _KEY),
        gone=None if fates is None else fates.is_redriven(letter),
        connector=None if named == connector else bounded(named, _NAME),
    )


def shown(letter: Letter, fates: LetterFates | None) -> ShownLetter:
    """Returns a letter as its own page has it."""
    said = letter.context
    exception, error = said.get("exception.class.name", ""), said.get("exception.message", "")
    trace = said.get("exception.stacktrace", "").strip()
    return ShownLetter(
        partition=letter.partition,
        offset=letter.offset,
        came_ms=letter.appended,
        record_ms=letter.record_ms,
        topic=_name(letter, "topic"),
        source_partition=said.get("partition", "")[:_PLACE],
        source_offset=said.get("offset", "")[:_PLACE],
        connector=_name(letter, "connector.name"),
        stage=_name(letter, "stage"),
        class_name=_name(letter, "class.name"),
        exception=bounded(exception, _NAME),
        error=error,
        trace=None if trace in ("", f"{exception}: {error}".strip()) else trace,
        redrives=letter.redrives,
        gone=None if fates is None else fates.is_redriven(letter),
        key=shown_bytes(letter.key),
        value=shown_bytes(letter.value),
        headers=tuple((bounded(name, _NAME), shown_bytes(value, _HEADER)) for name, value in letter.headers[:HEADERS]),
        more_headers=max(0, len(letter.headers) - HEADERS),
    )


def _name(letter: Letter, what: str) -> str:
    return bounded(letter.context.get(what, ""), _NAME)
