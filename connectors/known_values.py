"""Hides secrets in texts that others wrote: an error of a library or of a registry may quote the value it was given.

Checks of settings say nothing of such a value in the first place; this is for what happens later, when a client, a
registry or a transform fails. The values of placeholders that this process has resolved are remembered, and a text in
which one of them stands shows the placeholder in its place; so are secrets that are written out, which show HIDDEN.

`hide_all` is for texts that operators alone see (logs, stderr): a text in which anyone may quote a guess would tell
whether the guess was right. `hide_in` takes the values of one connector, which its owner may use anyway.
"""

from __future__ import annotations

import base64
import os
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final
from urllib.parse import quote, urlsplit

from msgspec import Struct

HIDDEN: Final = "[hidden]"
"""In place of a secret that no placeholder stands for."""
BRACES: Final = re.compile(r"\$\{([^}]*+)\}")
"""What may be a placeholder; it is one if there is a colon in it."""
_MOST: Final = 2_000
"""How many placeholders are remembered, and as many secrets that are written out; the newest."""
_MOST_TEXTS: Final = 20_000
"""How many texts are searched for in all: each line of a log costs 3 ms with as many, and 0.1 ms with 1,000."""
_MOST_PARTS: Final = 200
"""How many parts of one value are searched for: a file of certificates has as many lines."""
_SHORTEST: Final = 6
"""The shortest value (characters) that is hidden everywhere: `true` or `9092` would be hidden in texts that do not mean
it."""
SHORTEST_PART: Final = 4
"""The shortest part of a value that is hidden: a line, an element of a list, the password of USER:PASSWORD."""
_QUOTED: Final = 100
_ENDS: Final = (47, 48)
"""How messages quote a value that is longer than `_QUOTED` characters: as many of its beginning, or of both its ends.
These pieces are searched for, and no shorter beginning: each hit would tell the author of a quoted text one more
character of a guess."""
# Characters of a value that are looked at: the parts of a longer one are found in its beginning alone.
_LONGEST: Final = 1 << 20
_LONGEST_WRITTEN_OUT: Final = 4 << 10
"""Characters of a secret that is written out and hidden: a longer one is a key, which is hidden by its form."""
_SEPARATORS: Final = re.compile(r"[\r\n,;]+")
_OF_JAAS: Final = re.compile(r"(?i)(?:password|secret)\w*+\s*+=\s*+(?:\"([^\"]*+)\"|'([^']*+)'|([^\s;\"']++))")
"""The secrets in an entry of `sasl.jaas.config`."""
_MANY: Final = 8
"""Characters that a secret which was sent over REST must have to be hidden in the log, see `_is_no_word`."""
_AUTHORIZATION: Final = re.compile(
    r"(?i)(authorization\\?['\"]?\s*+[:=,]\s*+(?!\S{0,3}\[hidden\])(?:b?\\?['\"])?)(?:(?:basic|bearer)\s++)?[^\s'\",;]++"
)
"""A header with credentials, as HTTP, JSON or Python writes it."""
_SCHEME: Final = re.compile(r"(?i)\b(basic|bearer)(\s++|%20|\+)([\w.~+/=%-]{6,})")
"""What may be credentials after their scheme; `_is_credential` decides whether they are."""
_LONG_TOKEN: Final = 20
"""Characters of a token that needs no digit: no word of a sentence about authentication is as long."""


class _Known(Struct, frozen=True):
    """A value, its parts in all their forms, and what is shown in place of each. Its repr shows none."""

    shown: str
    value: str
    parts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"_Known({self.shown!r})"


class KnownValues:
    """The values that are remembered, by the name of their placeholder; of a secret that is written out, by itself."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The newest values, the oldest first; changed under the lock.
        self._placeholders: dict[str, _Known] = {}
        self._written_out: dict[str, _Known] = {}
        # The parts that are hidden everywhere, each with what is shown, the longest first; replaced as a whole, and
        # None once a value has come that is not among them. It is made when it is read: many values come at a time.
        self._everywhere: list[tuple[str, str]] | None = []

    def remember(self, written: str, value: str) -> None:
        """Remembers that the placeholder `written` stood for `value`."""
        name = _name(written)
        old = self._placeholders.get(name)
        if old is None or old.value != value:
            self._put(self._placeholders, name, _Known(written, value, _distinct(_parts(value))))

    def remember_written_out(self, text: str, *, over_rest: bool) -> None:
        """Remembers `text`, the value of a secret setting; what its placeholders stand for is none of it."""
        if text not in self._written_out:
            parts = _distinct(form for part in _written_out(text, over_rest=over_rest) for form in _forms(part))
            self._put(self._written_out, text, _Known(HIDDEN, text, parts))

    def all(self) -> list[tuple[str, str]]:
        """Returns what is hidden everywhere, each with what is shown in its place, the longest first."""
        everywhere = self._everywhere
        if everywhere is None:
            with self._lock:
                everywhere = self._everywhere = sorted(self._newest().items(), key=_by_length)
        return everywhere

    def of(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Returns what is known of the placeholders `names`, each as one of them writes it."""
        with self._lock:
            known = [(written, self._placeholders.get(_name(written))) for written in names]
        return [(part, written) for written, value in known if value for part in value.parts]

    def _put(self, values: dict[str, _Known], name: str, value: _Known) -> None:
        with self._lock:
            values.pop(name, None)
            while len(values) >= _MOST:
                del values[next(iter(values))]
            values[name] = value
            self._everywhere = None

    def _newest(self) -> dict[str, str]:
        """Returns the parts of the newest values, `_MOST_TEXTS` in all, and what is shown in place of each."""
        newest: dict[str, str] = {}
        for value in (*reversed(self._placeholders.values()), *reversed(self._written_out.values())):
            if len(newest) >= _MOST_TEXTS:
                break
            for part in value.parts:
                if len(part) >= _SHORTEST:
                    newest.setdefault(part, value.shown)
        return newest


_known = KnownValues()


def remember(written: str, value: str) -> None:
    """Remembers that the placeholder `written` stood for `value`."""
    _known.remember(written, value)


def remember_written_out(text: str, *, over_rest: bool) -> None:
    """Remembers the value of a setting that is a secret, as a file has it, or a request (`over_rest`)."""
    _known.remember_written_out(text, over_rest=over_rest)


def hide_all(text: str) -> str:
    """Returns `text` without the values of placeholders and the secrets that this process has come to know."""
    return _replaced(text, _known.all())


def hide_in(text: str, settings: Iterable[str], secrets: Iterable[str] = ()) -> str:
    """Returns `text` without the values of the placeholders in `settings`, texts as a file has them, however short.

    `secrets` are those of them whose names are secrets': what is written out there is hidden too.
    """
    names = {match[0] for setting in settings for match in BRACES.finditer(setting, 0, setting.rfind("}") + 1)}
    pairs = _known.of(sorted(names))
    written_out = {part for secret in secrets for part in _written_out(secret, over_rest=False)}
    pairs += [(form, HIDDEN) for form in forms_of(*written_out)]
    return _replaced(text, sorted(pairs, key=_by_length))


def without_credentials(text: str) -> str:
    """Hides what stands in `text` as HTTP sends credentials: `Authorization: …`, `Basic …`, `Bearer …`."""
    return _SCHEME.sub(_hidden_credential, _AUTHORIZATION.sub(lambda header: header[1] + HIDDEN, text))


def forms_of(*texts: str) -> tuple[str, ...]:
    """Returns `texts` and their other forms (see `_forms`), the longest first."""
    forms = _distinct(form for text in texts for form in _forms(text))
    return tuple(sorted(forms, key=len, reverse=True))


def _hidden_credential(match: re.Match[str]) -> str:
    scheme, space, token = match.groups()
    return f"{scheme}{space}{HIDDEN}" if _is_credential(scheme.lower(), token) else match[0]


def _is_credential(scheme: str, token: str) -> bool:
    """Returns whether a word after a scheme is a credential: not `authentication` or `credentials`."""
    if scheme != "basic":
        return len(token) >= _LONG_TOKEN or any(character.isdigit() for character in token)
    bare = token.replace("%3D", "").rstrip("=").translate(str.maketrans("-_", "+/"))
    with suppress(ValueError):
        text = base64.b64decode(bare + "=" * (-len(bare) % 4)).decode()
        return ":" in text and text.isprintable()
    return False


def _name(written: str) -> str:
    """Returns the name of a placeholder, which is one for all ways to write its path.

    Paths with `..` are followed, as links decide where they lead; others are not, as a secret that is replaced may
    be the same link to another file.
    """
    provider, _, argument = written[2:-1].partition(":")
    path, separator, key = argument.rpartition(":")
    if provider not in {"file", "directory"} or not separator:
        return written
    parts = [part for part in path.split("/") if part not in {"", "."}]
    plain = ("/" if path.startswith("/") else "") + "/".join(parts)
    if ".." in parts:
        with suppress(OSError, ValueError):
            plain = os.path.realpath(plain)
    return f"${{{provider}:{plain}:{key}}}"


def _by_length(pair: tuple[str, str]) -> int:
    return -len(pair[0])


def _replaced(text: str, pairs: Iterable[tuple[str, str]]) -> str:
    for part, shown in pairs:
        if part not in text:
            continue
        if len(part) >= _SHORTEST:
            text = text.replace(part, shown)
        else:  # as a word alone: a single digit stands in many others
            text = re.sub(rf"(?<!\w){re.escape(part)}(?!\w)", lambda _, by=shown: by, text)  # type: ignore[misc]
    return text


def _distinct(parts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part for part in parts if part))


def _written_out(text: str, *, over_rest: bool) -> Iterator[str]:
    """Yields what of a secret stands in its setting itself: what is between placeholders, the password of a pair.

    Of an entry of JAAS these are the passwords. `over_rest`: only what is no word, see `_is_no_word`.
    """
    if len(text) > _LONGEST_WRITTEN_OUT:
        return
    options = ["".join(option) for option in _OF_JAAS.findall(text)]
    for piece in (piece.strip() for value in options or [text] for piece in BRACES.sub("\0", value).split("\0")):
        password = piece.partition(":")[2]
        for part in (piece, password):
            if len(part) >= SHORTEST_PART and not part.endswith(":") and (not over_rest or _is_no_word(part)):
                yield part


def _is_no_word(text: str) -> bool:
    """Returns whether no line of the log has `text` of itself: it is long, and has letters and a digit or a capital.

    Who may make a connector could else make `connector.failed` a password, and hide these words from operators.
    """
    is_mixed = any(character.isdigit() or character.isupper() for character in text)
    return len(text) >= _MANY and is_mixed and any(character.isalpha() for character in text)


def _parts(value: str) -> Iterator[str]:
    """Yields the value and what of it may be quoted alone, each in the forms in which others write it."""
    whole = value[:_LONGEST].strip()
    some = [whole, *(part.strip() for part in _SEPARATORS.split(whole)[:_MOST_PARTS])]
    some += [piece for part in some[:_MOST_PARTS] for piece in _of_address(part)]
    for number, part in enumerate(some):
        if number == 0 or len(part) >= SHORTEST_PART:
            yield from _forms(part)
        if len(part) > _QUOTED:
            yield from (part[:_QUOTED], part[: _ENDS[0]], part[-_ENDS[1] :])


def _forms(text: str) -> Iterator[str]:
    """Yields `text` as it is, as Python and a URL write it, and in base64, as HTTP's Basic has user and password."""
    yield text
    yield repr(text)[1:-1]
    data = text.encode("utf-8", "surrogatepass")
    yield quote(data, safe="")
    # Without the padding at the end: a text with it has this one too.
    yield base64.b64encode(data).decode().rstrip("=")
    yield base64.urlsafe_b64encode(data).decode().rstrip("=")


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
