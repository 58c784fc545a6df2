"""Finds what is secret in the text of a setting: all of a password, the logins in the URLs of any other setting.

The one place that knows it, for whatever masks: placeholders in the text are not looked into, who knows their values
replaces them before.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import unquote

from compactor.secret_forms import SHORTEST_PART
from connectors import jaas

BRACES: Final = re.compile(r"\$\{([^}]*+)\}")
"""What may be a placeholder; it is one if there is a colon in it."""
_CUT: Final = "\0"
"""Stands for a placeholder whose value is not known."""
_LONGEST: Final = 4 << 10
"""Characters of a secret that is written out and hidden: a longer one is a key, which is hidden by its form."""
_LOGIN: Final = re.compile(r"://([^/?#\s]*)@")
"""User and password of a URL, up to the last @ before its path, as urllib and Java have it."""
_PARAMETER: Final = re.compile(r"(?i)[?&;][\w.-]{0,64}(?:password|secret|token|key|sig)[\w.-]{0,64}=([^&;#\s\"']++)")
"""A secret in the query of a URL, by its name: client_secret, access_token, and sig of Azure's signed URLs."""
_MANY: Final = 8
"""Characters of a text that is no word of a message, see `is_no_word`."""


def secrets_in(text: str, *, is_secret: bool) -> Iterator[str]:
    """Yields what of a setting's `text` is a secret, and what a client sends for it: `USER:PASSWORD`.

    `is_secret`: the setting is one by its name or type. What stands between placeholders counts by itself.
    """
    plain = BRACES.sub(_CUT, text)
    whole = (jaas.secrets_in(plain) or [plain]) if is_secret and len(text) <= _LONGEST else []
    for secret in (*whole, *_in_addresses(plain)):
        for piece in (piece.strip() for piece in secret.split(_CUT)):
            for part in (piece, piece.partition(":")[2]):
                if len(part) >= SHORTEST_PART and not part.endswith(":"):
                    yield part


def login(user: str, password: str) -> Iterator[str]:
    """Yields what a server is told by HTTP's Basic: the password, and it with the user's name."""
    yield from (text for text in (password, f"{user}:{password}") if len(text) >= SHORTEST_PART)


def is_no_word(text: str) -> bool:
    """Returns whether no line of the log has `text` of itself: it is long, and has letters and a digit or a capital.

    Who may make a connector could else make `connector.failed` a password, and hide these words from operators.
    """
    is_mixed = any(character.isdigit() or character.isupper() for character in text)
    return len(text) >= _MANY and is_mixed and any(character.isalpha() for character in text)


def without_logins(text: str, hidden: str) -> str:
    """Returns a setting's `text` with `hidden` in place of users and passwords in its URLs."""
    return _LOGIN.sub(f"://{hidden}@", text)


def _in_addresses(text: str) -> Iterable[str]:
    """Yields the logins of the URLs in `text` and secret parameters of theirs, as they stand there and decoded."""
    for match in _LOGIN.finditer(text):
        user, colon, password = match[1].partition(":")
        if colon:
            yield from (match[1], password, f"{unquote(user)}:{unquote(password)}", unquote(password))
        elif is_no_word(unquote(user)):  # a token in place of a user; a name would be hidden in all texts
            yield from (user, unquote(user))
    for match in _PARAMETER.finditer(text):
        yield from (match[1], unquote(match[1]))
