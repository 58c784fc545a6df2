"""Finds a secret in a text in every form in which others write it, and puts HIDDEN in its place.

A server may repeat what a client has sent to it: as it is, as JSON or Python quotes it, as a URL has it, or in base64
as HTTP's Basic does. Only texts for people go through here, never a record, a schema or a file. `SecretIndex` finds
any number of secrets at once: what that takes depends on the text's length, not on their number.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "[hidden]"
"""In place of a secret that no placeholder stands for."""
SHORTEST_PART: Final = 4
"""The shortest part of a secret that is hidden: three characters stand in many words, and a text without them would say
nothing. A password that is shorter is hidden only together with its user's name."""
SHORTEST_ANYWHERE: Final = 6
"""The shortest text (characters) that is replaced within a word; a shorter one is replaced as a word alone: `true` or
`9092` would be hidden in texts that do not mean it."""
_START: Final = SHORTEST_ANYWHERE
"""Characters by which secrets are looked up at each place of a text."""
_BLOCK: Final = 64
_LARGE_BLOCK: Final = 1_024
_LONG: Final = 4_096
"""A secret of more than 64 characters is looked for in blocks of as many, and one of more than 4,096 in blocks of
1,024. So a place is compared with at most 60 lengths, also by who chooses secrets and text; each takes 0.1 µs. It makes
a secret that a text has in part known, too."""

Span = tuple[int, int, str]
"""The beginning and end of a secret in a text, and what is shown in its place."""


def forms(text: str) -> Iterator[str]:
    """Yields `text` as it is, as Python, JSON and a URL write it, and in base64, as HTTP's Basic has a user's login."""
    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    # Go and Gson write these as Unicode has them.
    yield from (plain, *(re.sub(some, lambda match: f"\\u{ord(match[0]):04x}", plain) for some in ("[&<>]", "[&<>'=]")))
    yield plain.replace("/", "\\/")  # PHP, json-simple
    yield re.sub("[&<>'+`\\x7f-\\uffff]", lambda char: f"\\u{ord(char[0]):04X}", plain)  # .NET
    yield from (html.escape(text, quote=False), html.escape(text))
    yield from (html.escape(text).replace("&#x27;", quoted) for quoted in ("&#39;", "&apos;"))  # Go, XML
    data = text.encode("utf-8", "surrogatepass")
    escaped = quote(data, safe="")
    yield from (escaped, re.sub("%..", lambda byte: byte[0].lower(), escaped), quote_plus(data))
    # Without the padding at the end: a text with it has this one too.
    yield base64.b64encode(data).decode().rstrip("=")
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")


def forms_of(*texts: str) -> tuple[str, ...]:
    """Returns `texts` and their other forms, the longest first; a text below SHORTEST_PART is left out."""
    distinct = {form for text in texts if len(text) >= SHORTEST_PART for form in forms(text)}
    return tuple(sorted(distinct, key=lambda form: (-len(form), form)))


def without(text: str, secrets: Iterable[str]) -> str:
    """Returns `text` with HIDDEN in place of `secrets`, which `forms_of` has put into their forms and order."""
    return replaced(text, ((form, HIDDEN) for form in secrets))


def replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Returns `text` with the second of each pair in place of the first; a short one is replaced as a word alone."""
    for part, shown in pairs:
        if part not in text:
            continue
        if len(part) >= SHORTEST_ANYWHERE:
            text = text.replace(part, shown)
        else:
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", lambda _, by=shown: by, text)  # type: ignore[misc]
    return text


class SecretIndex:
    """Texts of at least SHORTEST_ANYWHERE characters, each with what is shown in its place."""

    def __init__(self, shown: Mapping[str, str]) -> None:
        # Blocks of the texts by their first _START characters, then by their length, the longest first.
        self._blocks: dict[str, dict[int, dict[str, str]]] = {}
        for text, label in shown.items():
            for block in _blocks(text):
                by_length = self._blocks.setdefault(block[:_START], {})
                by_length.setdefault(len(block), {}).setdefault(block, label)
        for start, by_length in self._blocks.items():
            if len(by_length) > 1:
                self._blocks[start] = dict(sorted(by_length.items(), reverse=True))

    def spans(self, text: str) -> Iterator[Span]:
        """Yields what is found in `text`, by its beginning: at each place the longest block that stands there."""
        blocks = self._blocks
        if not blocks:
            return
        for start in range(len(text) - _START + 1):
            by_length = blocks.get(text[start : start + _START])
            for length, labels in by_length.items() if by_length else ():
                label = labels.get(text[start : start + length])
                if label is not None:
                    yield start, start + length, label
                    break


def without_spans(text: str, spans: Iterable[Span]) -> str:
    """Returns `text` with what is shown in place of each span; those that overlap become one, with the longest's words.

    Spans of one secret that follow each other are blocks of it, and become one as well.
    """
    pieces: list[str] = []
    done = 0  # all before it is in `pieces`
    for start, end, label in _merged(sorted(spans)):
        pieces += (text[done:start], label)
        done = end
    return "".join((*pieces, text[done:]))


def _merged(spans: Iterable[Span]) -> Iterator[Span]:
    before: Span | None = None
    longest = 0
    for start, end, label in spans:
        if before is not None and (start < before[1] or (start == before[1] and label == before[2])):
            shown = label if end - start > longest else before[2]
            before = before[0], max(before[1], end), shown
        else:
            if before is not None:
                yield before
            before, longest = (start, end, label), 0
        longest = max(longest, end - start)
    if before is not None:
        yield before


def _blocks(text: str) -> Iterator[str]:
    """Yields blocks of which each character of `text` is in one; the last one overlaps the one before it."""
    size = _LARGE_BLOCK if len(text) > _LONG else _BLOCK
    if len(text) <= size:
        yield text
        return
    yield from (text[at : at + size] for at in range(0, len(text) - size, size))
    yield text[-size:]
