"""Finds what is secret in the text of a setting: all of a password, the logins in the URLs of any other setting.

The one place that knows it, for whatever masks: placeholders in the text are not looked into, who knows their values
replaces them before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final
from urllib.parse import quote_plus, unquote, urlsplit

from compactor.secret_forms import SHORTEST_PART
from connectors import jaas

BRACES: Final = re.compile(r"\$\{([^}]*+)\}")
"""What may be a placeholder; it is one if there is a colon in it."""
_CUT: Final = "\0"
"""Stands for a placeholder whose value is not known."""
_LOGIN: Final = re.compile(
    r"(?P<scheme>https?)?://(?!/)(?P<userinfo>[^/?#:@]*:(?:(?!://).)*|[^/?#]*)@", re.IGNORECASE | re.DOTALL
)
"""User and password of a URL: up to the last @ before its path, as urllib and Java have it; with a colon up to the last
@ of all, as a password may hold a slash that somebody forgot to escape."""
_PARAMETER: Final = re.compile(r"(?i)[?&;][\w.-]{0,64}(?:password|secret|token|key|sig)[\w.-]{0,64}=([^&;#\s\"']++)")
"""A secret in the query of a URL, by its name: client_secret, access_token, and sig of Azure's signed URLs."""
_PAIRS: Final = re.compile(r"\s*[\w.-]+\s*=[^,]*(?:,\s*[\w.-]+\s*=[^,]*)*", re.ASCII)
"""Several values in one setting, each after its name: `sasl.oauthbearer.extensions`."""
_SECRET_MEMBER: Final = re.compile(r"(?i)password|secret|token|private_?key")
"""Names of secrets in a setting that is JSON, such as a service account's key file of Google's."""
_BLOCK: Final = re.compile(r"-----[^\n]*-----")
MOST_SECRETS: Final = 400
"""How many distinct secrets one setting may have: eight long private keys have as many lines. Each has some 15 forms
that are looked for in texts; 256 Ki characters that were sent over REST have room for 40,000, and take seconds then. A
setting with more is refused, as the rest would be shown."""
TOO_MANY: Final = f"more than {MOST_SECRETS} secrets, and no more of one setting are hidden in logs and errors"
_CERTIFICATE: Final = re.compile(
    r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^-]*-----END (?:X509 |TRUSTED )?CERTIFICATE-----"
)
"""What is public in a file of keys. A trust store has thousands of such lines."""
_SEPARATORS: Final = re.compile(r"[\r\n,;]+")
_LONG_LINE: Final = 16
"""Characters of a line that is known by itself: a shorter one may be a word that stands in others."""
_LOGINS: Final = (
    ("sasl.username", "sasl.password"),
    ("sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"),
    ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret"),
    ("storage.azure.client.id", "storage.azure.client.secret"),
)
"""Settings that are sent together, as HTTP's Basic has them, by the ends of their names."""
_OF_LOGINS: Final = re.compile(
    r"(?i)(?:\A|\.)(?:(?:enable\.)?(?:sasl|ssl)|https|security|basic\.auth|bearer\.auth|proxy|apicurio\.auth)\."
    r"|\Astorage\.(?:s3|azure|gcs)\."
)
"""Names of settings next to which passwords stand in a file."""
NOT_SHOWN: Final = "the value (not shown)"
_MANY: Final = 8
"""Characters of a text that is no word of a message, see `is_no_word`."""


def secrets_in(text: str, *, is_secret: bool) -> Iterator[str]:
    """Yields what of a setting's `text` is a secret, and what a client sends for it: `USER:PASSWORD`.

    `is_secret`: the setting is one by its name or type. What stands between placeholders counts by itself. Each comes
    once; of more than MOST_SECRETS, which `has_too_many` tells of, those that come first.
    """
    return islice(_distinct(_secrets_in(text, is_secret=is_secret)), MOST_SECRETS)


def has_too_many(text: str, *, is_secret: bool) -> bool:
    """Returns whether a setting's `text` has more than MOST_SECRETS secrets: it is refused."""
    secrets = _distinct(_secrets_in(text, is_secret=is_secret))
    return next(islice(secrets, MOST_SECRETS, None), None) is not None


def items_in(value: str) -> tuple[str, ...]:
    """Returns the distinct lines and items of what a placeholder stands for, each long enough to be hidden by itself.

    Not the lines of certificates. A value with more than MOST_SECRETS of them is refused.
    """
    items = map(str.strip, _SEPARATORS.split(_CERTIFICATE.sub("", value)))
    return tuple(_distinct(item for item in items if len(item) >= SHORTEST_PART))


def _distinct(texts: Iterable[str]) -> Iterator[str]:
    seen = set[str]()
    for text in texts:
        if text not in seen:
            seen.add(text)
            yield text


def _secrets_in(text: str, *, is_secret: bool) -> Iterator[str]:
    plain = BRACES.sub(_CUT, text)
    options = jaas.secrets_in(plain) if is_secret else []
    whole = [*options, *([plain] if is_secret and (not options or _PAIRS.fullmatch(plain)) else [])]
    for secret in (*whole, *_in_addresses(plain)):
        yield from (part for part in _parts(secret) if len(part) >= SHORTEST_PART)


def logins(settings: Mapping[str, object]) -> Iterator[str]:
    """Yields `USER:PASSWORD` of each two settings that are sent together; names may have a prefix."""
    for name, user in settings.items():
        for of_user, of_password in _LOGINS:
            if name == of_user or name.endswith(f".{of_user}"):
                password = settings.get(name.removesuffix(of_user) + of_password)
                if user and password:
                    yield f"{user}:{password}"


def _parts(secret: str) -> Iterator[str]:
    """Yields what of `secret` stands between placeholders, and what of that may be quoted by itself.

    Of USER:PASSWORD that is the password, and both as OAuth sends them; the user is the secret if the password is
    empty, but not if it is a placeholder. Of NAME=VALUE,… it is each value, of JSON each secret by its name, of several
    lines each that is long.
    """
    pieces = [piece.strip() for piece in secret.split(_CUT)]
    for piece in pieces:
        user, colon, password = piece.partition(":")
        if password or not colon:
            yield from (piece, password)
        elif len(pieces) == 1:
            yield from (user, piece)
        if password:
            yield f"{quote_plus(user)}:{quote_plus(password)}"  # RFC 6749, 2.3.1
        if _PAIRS.fullmatch(piece):
            yield from (value.partition("=")[2].strip() for value in piece.split(","))
        yield from (part for member in _members(piece) for part in _parts(member))
        lines = _CERTIFICATE.sub("", piece).splitlines() if "\n" in piece else ()
        yield from (line.strip() for line in lines if len(line) >= _LONG_LINE and not _BLOCK.match(line.strip()))


def _members(piece: str) -> Iterator[str]:
    """Yields the secrets in an object of JSON; nothing if it is none."""
    if piece.startswith("{") and piece.endswith("}"):
        with suppress(ValueError, RecursionError):
            members = json.loads(piece)
            yield from (text for name, text in members.items() if isinstance(text, str) and _SECRET_MEMBER.search(name))


def login(user: str, password: str) -> Iterator[str]:
    """Yields what a server is told by HTTP's Basic: the password, and it with the user's name.

    Without a password the user is a token that stands in its place.
    """
    yield from (text for text in (password or user, f"{user}:{password}") if len(text) >= SHORTEST_PART)


def is_no_word(text: str) -> bool:
    """Returns whether no line of the log has `text` of itself: it is long, and has letters and a digit or a capital.

    Who may make a connector could else make `connector.failed` a password, and hide these words from operators.
    """
    is_mixed = any(character.isdigit() or character.isupper() for character in text)
    return len(text) >= _MANY and is_mixed and any(character.isalpha() for character in text)


def without_logins(text: str, hidden: str) -> str:
    """Returns a setting's `text` with `hidden` in place of users and passwords in its URLs."""
    return _LOGIN.sub(lambda match: f"{match['scheme'] or ''}://{hidden}@", text)


def is_of_login(name: str) -> bool:
    """Returns whether the setting `name` is one of those by which a client logs in.

    What is wrong in one of them may be the password of the line above or below: no message quotes it.
    """
    return bool(_OF_LOGINS.search(name))


def quoted(text: str, hidden: str, name: str = "") -> str:
    """Returns the `text` of the setting `name` for a message, in quotes.

    It is not shown if it is of a login, nor if an @ is left in it: a login may be before it.
    """
    if is_of_login(name):
        return NOT_SHOWN
    shown = without_logins(text, hidden)
    return "a text with an @ (not shown)" if "@" in shown.replace(f"{hidden}@", "") else f'"{shown}"'


def is_address(url: str) -> bool:
    """Returns whether `url` is one of HTTP that all readers take for the same.

    What is not escaped may make the end of a password a host or a path, which messages show: blanks, and an @ after
    the path has begun.
    """
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    beyond = (parts.path, parts.query, parts.fragment)
    is_odd = any(character.isspace() or not character.isprintable() for character in url)
    return parts.scheme in {"http", "https"} and has_host and not is_odd and not any("@" in part for part in beyond)


def _in_addresses(text: str) -> Iterable[str]:
    """Yields the logins of the URLs in `text` and secret parameters of theirs, as they stand there and decoded."""
    for match in _LOGIN.finditer(text):
        userinfo = match["userinfo"]
        user, colon, password = userinfo.partition(":")
        if password:
            yield from (userinfo, password, f"{unquote(user)}:{unquote(password)}", unquote(password))
        elif colon or match["scheme"]:  # a token in place of a user, sent with an empty password
            yield from (form for token in (user, unquote(user)) for form in (token, f"{token}:"))
        elif is_no_word(unquote(user)):  # what else stands there may be a container's name, as in abfss://
            yield from (user, unquote(user))
    for match in _PARAMETER.finditer(text):
        yield from (match[1], unquote(match[1]))
