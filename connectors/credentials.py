"""Finds what is secret in the text of a setting: all of a password, the logins in the URLs of any other setting.

The one place that knows it, for whatever masks: placeholders in the text are not looked into, who knows their values
replaces them before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote, urlsplit

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
_MANY: Final = 8
"""Characters of a text that is no word of a message, see `is_no_word`."""


def secrets_in(text: str, *, is_secret: bool) -> Iterator[str]:
    """Yields what of a setting's `text` is a secret, and what a client sends for it: `USER:PASSWORD`.

    `is_secret`: the setting is one by its name or type. What stands between placeholders counts by itself.
    """
    plain = BRACES.sub(_CUT, text)
    whole = (jaas.secrets_in(plain) or [plain]) if is_secret else []
    for secret in (*whole, *_in_addresses(plain)):
        yield from (part for part in _parts(secret) if len(part) >= SHORTEST_PART)


def _parts(secret: str) -> Iterator[str]:
    """Yields what of `secret` stands between placeholders, and of USER:PASSWORD the password alone.

    The user is the secret if the password is empty, but not if it is a placeholder.
    """
    pieces = [piece.strip() for piece in secret.split(_CUT)]
    for piece in pieces:
        user, colon, password = piece.partition(":")
        if password or not colon:
            yield from (piece, password)
        elif len(pieces) == 1:
            yield from (user, piece)


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


def quoted(text: str, hidden: str) -> str:
    """Returns a setting's `text` for a message, in quotes; not if an @ is left in it: a login may be before it."""
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
