"""Finds a secret in a text in every form in which others write it, and puts HIDDEN in its place.

A server may repeat what a client has sent to it: as it is, as JSON or Python quotes it, as a URL has it, or in base64
as HTTP's Basic does. Only texts for people go through here, never a record, a schema or a file.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator
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


def forms(text: str) -> Iterator[str]:
    """Yields `text` as it is, as Python, JSON and a URL write it, and in base64, as HTTP's Basic has a user's login."""
    yield text
    yield repr(text)[1:-1]
    yield json.dumps(text)[1:-1]
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    # Go and Gson write these as Unicode has them.
    yield from (plain, *(re.sub(some, lambda found: f"\\u{ord(found[0]):04x}", plain) for some in ("[&<>]", "[&<>'=]")))
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
