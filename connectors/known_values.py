"""Hides what placeholders stand for in texts that others wrote: an error of a library may quote the value it was given.

Checks of settings say nothing of such a value in the first place; this is for what happens later, when a client, a
registry or a transform fails. The values that this process has resolved are remembered, and a text in which one of
them stands shows the placeholder in its place.

`hide_all` is for texts that operators alone see (logs, stderr): a text in which anyone may quote a guess would tell
whether the guess was right. `hide_in` takes the values of one connector, which its owner may use anyway.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, urlsplit

BRACES: Final = re.compile(r"\$\{([^}]*+)\}")
"""What may be a placeholder; it is one if there is a colon in it."""
_MOST: Final = 2_000
"""How many placeholders are remembered, the newest: each line of a log is searched for all of their values."""
_MOST_PARTS: Final = 200
"""How many parts of one value are searched for: a file of certificates has as many lines."""
_SHORTEST: Final = 6
"""The shortest value (characters) that is hidden everywhere: `true` or `9092` would be hidden in texts that do not mean
it."""
_SHORTEST_PART: Final = 4
"""The shortest part of a value that is hidden: a line, an element of a list, the password of USER:PASSWORD."""
_QUOTED: Final = 100
_ENDS: Final = (47, 48)
"""How messages quote a value that is longer than `_QUOTED` characters: as many of its beginning, or of both its ends.
These pieces are searched for, and no shorter beginning: each hit would tell the author of a quoted text one more
character of a guess."""
# Characters of a value that are looked at: the parts of a longer one are found in its beginning alone.
_LONGEST: Final = 1 << 20
_SEPARATORS: Final = re.compile(r"[\r\n,;]+")

_lock: Final = threading.Lock()
_values: Final[dict[str, tuple[str, ...]]] = {}
"""The parts of the newest value of each placeholder; changed under the lock, by `remember`."""
_everywhere: list[tuple[str, str]] = []
"""Those parts that are hidden everywhere, each with its placeholder, the longest first; replaced as a whole."""


def remember(written: str, value: str) -> None:
    """Remembers that the placeholder `written` stood for `value`."""
    global _everywhere  # noqa: PLW0603  # a list that is never changed needs no lock to be read
    parts = tuple(dict.fromkeys(part for part in _parts(value) if part))
    if _values.get(written) == parts:
        return
    with _lock:
        _values.pop(written, None)
        while len(_values) >= _MOST:
            del _values[next(iter(_values))]
        _values[written] = parts
        long = ((part, name) for name, parts in _values.items() for part in parts if len(part) >= _SHORTEST)
        _everywhere = sorted(long, key=_by_length)


def hide_all(text: str) -> str:
    """Returns `text` with each value of a placeholder that this process has resolved replaced by the placeholder."""
    return _replaced(text, _everywhere)


def hide_in(text: str, settings: Iterable[str]) -> str:
    """Returns `text` without the values of the placeholders in `settings`, texts as a file has them, however short."""
    written = {match[0] for setting in settings for match in BRACES.finditer(setting, 0, setting.rfind("}") + 1)}
    with _lock:
        known = [(name, _values[name]) for name in sorted(written & _values.keys())]
    return _replaced(text, sorted(((part, name) for name, parts in known for part in parts), key=_by_length))


def _by_length(pair: tuple[str, str]) -> int:
    return -len(pair[0])


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for part, written in pairs:
        if part not in text:
            continue
        if len(part) >= _SHORTEST:
            text = text.replace(part, written)
        else:  # as a word alone: a single digit stands in many others
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", lambda _, by=written: by, text)  # type: ignore[misc]
    return text


def _parts(value: str) -> Iterator[str]:
    """Yields the value and what of it may be quoted alone, each also as a URL and as Python write it."""
    whole = value[:_LONGEST].strip()
    some = [whole, *(part.strip() for part in _SEPARATORS.split(whole)[:_MOST_PARTS])]
    some += [piece for part in some[:_MOST_PARTS] for piece in _of_address(part)]
    for number, part in enumerate(some):
        if number == 0 or len(part) >= _SHORTEST_PART:
            yield part
            yield repr(part)[1:-1]
            yield quote(part, safe="")
        if len(part) > _QUOTED:
            yield from (part[:_QUOTED], part[: _ENDS[0]], part[-_ENDS[1] :])


def _of_address(text: str) -> Iterator[str]:
    """Yields user, password and host of a URL, or both parts of USER:PASSWORD."""
    if "://" not in text:
        yield from text.split(":", 1) if ":" in text else ()
        return
    try:
        address = urlsplit(text)
    except ValueError:
        return
    yield text.rstrip("/")
    yield address.netloc.rpartition("@")[2]
    yield from (part for part in (address.username, address.password) if part)
