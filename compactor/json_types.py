"""Decodes JSON as types, and converts what JSON has to them, on as many threads as there are.

msgspec learns a type when it first meets it. If another thread decodes the type meanwhile, the process may end
(0.22: one of 15 runs of eight threads that did nothing else).
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_LEARNING: Final = Lock()
"""Held for as long as a type is learnt, some 50 µs: it may have types in it that others have as well."""


# Decoders by their types, which are some dozens; changed under the lock.
_LEARNT: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


def decoded_as(data: bytes | str, kind: type[T]) -> T:
    """Returns `data` as a `kind`. Raises msgspec.DecodeError; UnicodeDecodeError if a text in it is not UTF-8."""
    return decoder(kind).decode(data)


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Returns what decodes a `kind`, the same one for all threads."""
    with _LEARNING:
        if kind not in _LEARNT:
            _LEARNT[kind] = msgspec.json.Decoder(kind)
        return _LEARNT[kind]


def converted_as(value: Any, kind: type[T]) -> T:
    """Returns `value`, made of what JSON has, as a `kind`. Raises msgspec.ValidationError if it is another."""
    decoder(kind)  # learns it
    return msgspec.convert(value, kind)
