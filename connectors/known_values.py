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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from hashlib import blake2b
from math import inf
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from compactor.secret_forms import (
    HIDDEN,
    SHORTEST_ANYWHERE,
    SHORTEST_PART,
    SecretIndex,
    Span,
    forms,
    forms_of,
    replaced,
    without_spans,
)
from connectors.credentials import BRACES, is_no_word, items_in, secrets_in
from connectors.issued_secrets import issued_secrets
from connectors.kept_values import Kept

_MOST: Final = 2_000
"""How many placeholders that were sent over REST are remembered, and as many secrets that are written out; the newest.
All of files are: only operators write those."""
_MOST_TEXTS: Final = 100_000
"""How many texts of what was sent over REST are searched for: the forms of 2,000 passwords, and as much again. To put
them into an index takes 0.5 s, once something has changed. Texts of files are all searched for: a line takes 0.1 ms
with those of 10,000 passwords as with those of 100."""
_HEAVIEST: Final = 32 << 20
"""Characters of all settings that were sent over REST, or of all such placeholders, with the texts that are searched
for: of 2,000 passwords they have 3 million. 2,000 settings of 256 Ki characters would have 500."""
_QUOTED: Final = 100
_ENDS: Final = (47, 48)
"""How messages quote a value that is longer than `_QUOTED` characters: as many of its beginning, or of both its ends.
These pieces are searched for, and no shorter beginning: each hit would tell the author of a quoted text one more
character of a guess."""
_FORMS: Final = 16
"""As many times its characters a setting with placeholders counts, for the forms that are found later."""
# Characters of a value that are looked at: the parts of a longer one are found in its beginning alone.
_LONGEST: Final = 1 << 20
_LONGEST_OVER_REST: Final = 4 << 10
"""Characters of a secret that was sent over REST and is written out: its forms take ten times as many bytes."""
_LONG_ERROR: Final = 4 << 10
"""Characters: shorter texts count as such a long one, so that all errors are searched for what is made once."""
_AUTHORIZATION: Final = re.compile(
    r"(?i)(authorization\\?['\"]?\s*+[:=,]\s*+(?!\S{0,3}\[hidden\])(?:b?\\?['\"])?)(?:(?:basic|bearer)\s++)?[^\s'\",;]++"
)
"""A header with credentials, as HTTP, JSON or Python writes it."""
_SCHEME: Final = re.compile(r"(?i)\b(basic|bearer)(\s++|%20|\+)([\w.~+/=%-]{6,})")
"""What may be credentials after their scheme; `_is_credential` decides whether they are."""
_LONG_TOKEN: Final = 20
"""Characters of a token that needs no digit: no word of a sentence about authentication is as long."""
_JSON_TOKEN: Final = re.compile(
    r"(?:(?<![\w-])|(?<=%[0-9A-Fa-f][0-9A-Fa-f])|(?<=\\[nrt]))(?:ey[AJ]|ew[0ok]|ZXlK)[\w+/-]{15,}(?:[.=]|%2[Ee]|[\w+/-])*"
)
"""A token or an assertion, as JWT has them: JSON in base64, with a dot between its parts; or that in base64 once more.
Clients make some for one request, so that no setting tells of them."""
_OF_TOKEN_SERVER: Final = re.compile(
    r"(Failed to (?:acquire SASL OAUTHBEARER|retrieve \w{1,20}) token(?: from \\?\"[^\"]*+\")?: )(.*)", re.DOTALL
)
"""What librdkafka says before the answer of a server of tokens, to which credentials of any form were sent."""
_OPAQUE: Final = re.compile(r"[\w.~+/=%-]{20,}")
"""What may be a credential in that answer, if there is a digit in it."""


class _Known(Struct, frozen=True):
    """The value of a placeholder, the forms of its parts, and what is shown in place of each. Its repr shows none."""

    shown: str
    value: str
    parts: tuple[str, ...]

    def __repr__(self) -> str:
        return f"_Known({self.shown!r})"


class _WrittenOut(Struct, frozen=True):
    """A setting as a file has it, or a request (`over_rest`); `is_secret` by name or type. Its repr shows nothing."""

    text: str
    is_secret: bool
    over_rest: bool

    def __repr__(self) -> str:
        return "_WrittenOut()"


class _Late(Struct):
    """The forms of the secrets in a setting with placeholders, once it is resolved; `text`: a digest of that text.

    To find them takes far longer than to see that the placeholders stand for the same as before. Its repr shows none.
    """

    text: bytes = b""
    parts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return "_Late()"

    def of(self, setting: _WrittenOut, resolved: str) -> tuple[str, ...]:
        """Returns the forms for what `setting` is by now. Called under the lock of those who know it."""
        text = blake2b(resolved.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if text != self.text:
            self.text, self.parts = text, _forms_of_setting(setting, resolved)
        return self.parts


class _Remembered:
    """The placeholders and settings of one origin: the newest `most`, of up to `heaviest` characters each."""

    def __init__(self, most: float, heaviest: float) -> None:
        # Placeholders by their names.
        self.placeholders: Kept[str, _Known] = Kept(most, heaviest)
        # The settings with the forms of their secrets, which in one with placeholders follow from these.
        self.settings: Kept[_WrittenOut, tuple[str, ...] | _Late] = Kept(most, heaviest)

    def keep_placeholder(self, name: str, known: _Known) -> None:
        """Keeps a placeholder by its characters, and those of its parts."""
        self.placeholders.put(name, known, len(known.value) + sum(map(len, known.parts)))

    def keep_setting(self, setting: _WrittenOut, parts: tuple[str, ...] | _Late) -> None:
        """Keeps a setting by its characters, and those of the forms that it has, or may have later."""
        own = len(setting.text)
        self.settings.put(setting, parts, _FORMS * own if isinstance(parts, _Late) else own + sum(map(len, parts)))


class KnownValues:
    """The values of placeholders that are remembered, by their names, and the settings that secrets stand in.

    Those of the worker's operator stand apart: what is sent over REST pushes out nothing of them. `beneath` has what is
    known besides, to one that lives for a request. `heaviest`, `most`: see _HEAVIEST and _MOST.
    """

    def __init__(self, beneath: KnownValues | None = None, heaviest: int = _HEAVIEST, most: int = _MOST) -> None:
        self._beneath = beneath
        self._lock = threading.Lock()
        # Of files, which only operators write, and of REST. Changed under the lock.
        self._of_files, self._of_rest = _Remembered(inf, inf), _Remembered(most, heaviest)
        # How often something was remembered: what was made of all this is made again once it has changed.
        self.version = 0
        # What is hidden everywhere, of files and of REST; None once a value has come that is not in it. Replaced as a
        # whole, and made when it is read: many values come at a time.
        self._indexes: dict[bool, SecretIndex | None] = {False: None, True: None}

    def remember(self, written: str, value: str, *, over_rest: bool = False) -> None:
        """Remembers that the placeholder `written` stood for `value`, as a file has it, or a request (`over_rest`)."""
        name = _name(written)
        known = self._of_files.placeholders.get(name)
        origin = self._of_rest if over_rest and known is None else self._of_files
        old = origin.placeholders.get(name)
        if old is None or old.value != value:
            known = _Known(written, value, tuple(dict.fromkeys(filter(None, _parts(value)))))
            with self._lock:
                origin.keep_placeholder(name, known)
                self._changed(origin)

    def remember_setting(self, text: str, *, is_secret: bool, over_rest: bool) -> None:
        """Remembers the secrets in a setting; if it is none itself, they are the logins of the URLs in it."""
        setting = _WrittenOut(text, is_secret, over_rest)
        origin = self._of_rest if over_rest else self._of_files
        if setting in origin.settings or not (is_secret or "://" in text):
            return
        has_placeholder = any(":" in match[1] for match in BRACES.finditer(text, 0, text.rfind("}") + 1))
        parts = _Late() if has_placeholder else _forms_of_setting(setting, text)
        with self._lock:
            origin.keep_setting(setting, parts)
            self._changed(origin)

    def spans(self, text: str) -> Iterator[Span]:
        """Yields what is hidden everywhere and stands in `text`, with what is shown in its place."""
        for over_rest in self._indexes:
            yield from self._index(over_rest=over_rest).spans(text)
        yield from (self._beneath or issued_secrets).spans(text)

    def _index(self, *, over_rest: bool) -> SecretIndex:
        index = self._indexes[over_rest]
        if index is None:
            with self._lock:
                index = self._indexes[over_rest] = SecretIndex(self._newest(over_rest=over_rest))
        return index

    def of(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """Returns what is known of the placeholders in `texts`, each as one of them writes it."""
        written = {match[0] for text in texts for match in BRACES.finditer(text, 0, text.rfind("}") + 1)}
        known = [(name, self._placeholder(_name(name))) for name in sorted(written)]
        return [(part, name) for name, value in known if value for part in value.parts]

    def resolved(self, text: str) -> str:
        """Returns `text` with the values of its placeholders, as far as they are known."""

        def value_of(match: re.Match[str]) -> str:
            known = self._placeholder(_name(match[0])) if ":" in match[1] else None
            return known.value if known else match[0]

        end = text.rfind("}") + 1
        return BRACES.sub(value_of, text[:end]) + text[end:]

    def _placeholder(self, name: str) -> _Known | None:
        own = self._of_files.placeholders.get(name) or self._of_rest.placeholders.get(name)
        return own or (self._beneath._placeholder(name) if self._beneath else None)

    def _changed(self, origin: _Remembered) -> None:
        self.version += 1
        self._indexes[origin is self._of_rest] = None

    def _newest(self, *, over_rest: bool) -> dict[str, str]:
        """Returns the parts of all values of files, or of the newest over REST, and what is shown in place of each."""
        newest: dict[str, str] = {}
        for shown, parts in self._newest_first(self._of_rest if over_rest else self._of_files):
            if over_rest and len(newest) >= _MOST_TEXTS:
                break
            for part in parts:
                if len(part) >= SHORTEST_ANYWHERE:
                    newest.setdefault(part, shown)
        return newest

    def _newest_first(self, origin: _Remembered) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yields the values of `origin`, the newest first.

        Those with few parts come before all others: a password must not be left out for the lines of many keystores.
        """
        values = [(known.shown, known.parts) for _, known in origin.placeholders.newest_first()]
        for setting, parts in origin.settings.newest_first():
            own = parts.of(setting, self.resolved(setting.text)) if isinstance(parts, _Late) else parts
            values.append((HIDDEN, own))
        yield from sorted(values, key=lambda value: len(value[1]))


_known = KnownValues()
_of_request: Final[ContextVar[KnownValues | None]] = ContextVar("_of_request", default=None)
"""What is remembered for one request, see `forgotten_after`."""


@contextmanager
def forgotten_after() -> Iterator[None]:
    """Remembers what the block comes to know for the block alone: a config that is only checked over REST."""
    token = _of_request.set(KnownValues(_current()))
    try:
        yield
    finally:
        _of_request.reset(token)


def _current() -> KnownValues:
    return _of_request.get() or _known


def remember(written: str, value: str, *, over_rest: bool = False) -> None:
    """Remembers that the placeholder `written` stood for `value`, as a file has it, or a request (`over_rest`)."""
    _current().remember(written, value, over_rest=over_rest)


def remember_setting(text: str, *, is_secret: bool, over_rest: bool) -> None:
    """Remembers the secrets in a setting, as a file has it, or a request (`over_rest`).

    Of a setting that is no secret itself these are users and passwords in URLs. Placeholders in `text` count as what
    they stand for, also if they are resolved later.
    """
    _current().remember_setting(text, is_secret=is_secret, over_rest=over_rest)


def hide_all(text: str, sent: str = "") -> str:
    """Returns `text` without the values of placeholders and the secrets that this process has come to know.

    What stands in `sent`, the request that the text may quote, is not hidden: its author would learn that it is right.
    """
    spans = _current().spans(text)
    return without_spans(text, (span for span in spans if text[span[0] : span[1]] not in sent) if sent else spans)


def hide_in(text: str, settings: Iterable[str], secrets: Iterable[str] = ()) -> str:
    """Returns `text` without the values of the placeholders in `settings`, texts as a file has them, however short.

    Logins of URLs in them are hidden too, and what is written out in `secrets`, those of them that are secrets by their
    names or types.
    """
    known = _current()
    # One record after the other is refused, each with the same settings. Those of a request are kept nowhere.
    pairs = _kept_pairs if known is _known else _pairs
    longest = max(_LONG_ERROR, 1 << len(text).bit_length())  # of the text
    return replaced(text, pairs(known, known.version, tuple(settings), tuple(secrets), longest))


def _pairs(
    known: KnownValues, _version: int, settings: tuple[str, ...], secrets: tuple[str, ...], longest: int
) -> tuple[tuple[str, str], ...]:
    """Returns what `hide_in` replaces, each with what is shown in its place, the longest first.

    No secret of more than `longest` characters: no form of it is shorter, and those of 256 Ki take seconds to make.
    """
    values = known.of((*settings, *secrets))
    texts = [(text, False) for text in settings] + [(text, True) for text in secrets]
    written_out = {
        secret
        for text, is_secret in texts
        for each in {text, known.resolved(text)}
        for secret in secrets_in(each, is_secret=is_secret)
    }
    shown = dict(values)
    for form in forms_of(*(secret for secret in written_out if len(secret) <= longest)):
        shown.setdefault(form, HIDDEN)
    return tuple(sorted(shown.items(), key=lambda pair: -len(pair[0])))


_kept_pairs: Final = lru_cache(maxsize=64)(_pairs)


def _forms_of_setting(setting: _WrittenOut, text: str) -> tuple[str, ...]:
    """Returns the forms of the secrets in a setting, `text` once it is resolved.

    Over REST only what is no word, and the beginning of what is long: there may be many of them.
    """
    secrets = secrets_in(text, is_secret=setting.is_secret)
    if setting.over_rest:
        return forms_of(*(secret[:_LONGEST_OVER_REST] for secret in secrets if is_no_word(secret)))
    return forms_of(*secrets)


def without_credentials(text: str) -> str:
    """Hides what stands in `text` as HTTP sends credentials: `Authorization: …`, `Basic …`, `Bearer …`, and tokens.

    Of the answer of a server of tokens, as librdkafka quotes it, every long word with a digit is hidden.
    """
    text = _AUTHORIZATION.sub(lambda header: header[1] + HIDDEN, text)
    text = _JSON_TOKEN.sub(HIDDEN, _SCHEME.sub(_hidden_credential, text))
    return _OF_TOKEN_SERVER.sub(lambda said: said[1] + _OPAQUE.sub(_hidden_if_opaque, said[2]), text)


def _hidden_if_opaque(word: re.Match[str]) -> str:
    return HIDDEN if any(character.isdigit() for character in word[0]) else word[0]


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

    Paths with `..` are followed, as links decide what they lead to; others are not, as a secret that is replaced may
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


def _parts(value: str) -> Iterator[str]:
    """Yields the value and what of it may be quoted alone, each in the forms in which others write it."""
    whole = value[:_LONGEST].strip()
    some = [whole, *items_in(whole)]
    some += [piece for part in some for piece in _of_address(part)]
    some += secrets_in(whole, is_secret=True)  # of an entry of JAAS, and logins as a client decodes them
    for number, part in enumerate(some):
        if number == 0 or len(part) >= SHORTEST_PART:
            yield from forms(part)
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
