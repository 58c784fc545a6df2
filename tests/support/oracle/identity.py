"""An identity of keys for histories: letters are the same large and small."""

from __future__ import annotations

from typing import Final

NAME: Final = "letters"
"""What the catalog of such a history calls it."""


def compared(key: bytes | None) -> tuple[bytes | None, str | None]:
    """Returns the `key_identity` and the `key_encoding` of a key; of one with large and small letters no encoding."""
    if key is None:
        return None, None
    small = key.lower()
    encodings = {small: "small", key.upper(): "large"} if small != key.upper() else {small: "small"}
    return None if small == key else small, encodings.get(key)
