"""Tells which rows have an erased key: by the keys themselves, or by the salted hashes that a receipt has of them."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from connectors.operations.erase.receipt import ErasedKey, canonical_key, hashed

NONE: Final = -1
"""The number of no key."""
LEAST_BYTES: Final = 6
"""Bytes of a key that is looked for in any file: a shorter one stands in files that have nothing of it."""
_MANY: Final = 150
"""Forms of keys from which on windows are looked up. Of fewer, a search for each takes less: 2 ms per 100 KB."""
_BLOCK: Final = 1 << 20
"""Bytes of which the windows are in memory at once, 8 bytes for each."""
Numbers = NDArray[np.int64]
"""For each row the number of its key in the receipt, or NONE."""


class KeyMatcher:
    """Compares keys with those of a receipt; with `keys`, in its order, also any bytes."""

    def __init__(self, salt: bytes, erased: Sequence[ErasedKey], keys: Sequence[bytes] | None = None) -> None:
        self._salt = salt
        self._by_hash = {each.sha256: number for number, each in enumerate(erased)}
        self._by_json = {each.json: number for number, each in enumerate(erased) if each.json is not None}
        self._keys = None if keys is None else pa.array(keys, pa.binary())
        self._forms = frozenset(form for key in keys or () for form in _forms(key))
        self._windows = FormWindows(self._forms) if len(self._forms) >= _MANY else None
        self.is_all_json = len(self._by_json) == len(self._by_hash)
        """Whether every key can be compared with typed ones."""

    @property
    def searches_bytes(self) -> bool:
        """Whether the bytes of all keys are known, and long enough to be looked for in any file."""
        return self._keys is not None and all(len(key) >= LEAST_BYTES for key in self._keys.to_pylist())

    def numbers(self, keys: pa.Array) -> Numbers | None:
        """Returns which erased key each of `keys` is, by number; None if keys of that type cannot be compared."""
        if pa.types.is_null(keys.type):
            return np.full(len(keys), NONE)
        if pa.types.is_binary(keys.type):
            return self._of_bytes(keys, self._by_hash)
        if pa.types.is_string(keys.type):
            plain = self._of_bytes(keys.cast(pa.binary()), self._by_hash)
            return np.maximum(plain, self._of_json(keys))
        return self._of_json(keys) if self.is_all_json else None

    def is_in(self, data: bytes) -> bool:
        """Returns whether `data` has the bytes of a key of at least LEAST_BYTES: as they are, as text or as base64."""
        if self._windows is not None:
            return self._windows.is_in(data)
        return any(form in data for form in self._forms)

    def _of_bytes(self, keys: pa.Array, known: dict[str, int]) -> Numbers:
        if self._keys is not None and known is self._by_hash:
            places = pc.fill_null(pc.index_in(keys, self._keys), NONE)
            return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)
        encoded = keys.dictionary_encode()
        wanted = [
            NONE if key is None else known.get(hashed(self._salt, key), NONE) for key in encoded.dictionary.to_pylist()
        ]
        numbers = np.array([*wanted, NONE], np.int64)
        places = pc.fill_null(encoded.indices, len(wanted)).to_numpy(zero_copy_only=False)
        return numbers[places]

    def _of_json(self, keys: pa.Array) -> Numbers:
        encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string", order="sorted")
        texts = [None if key is None else encoder.encode(key) for key in keys.to_pylist()]
        return self._of_bytes(pa.array(texts, pa.binary()), self._by_json)


class FormWindows:
    """Searches data for many forms at once: the first LEAST_BYTES of a form, then the whole form, are looked up."""

    def __init__(self, forms: frozenset[bytes]) -> None:
        self._forms = forms
        # By the first bytes of a form: how long those are that begin so.
        self._lengths: dict[bytes, set[int]] = {}
        for form in forms:
            self._lengths.setdefault(form[:LEAST_BYTES], set()).add(len(form))
        self._starts = np.array(sorted(int.from_bytes(start) for start in self._lengths), np.uint64)

    def is_in(self, data: bytes) -> bool:
        """Returns whether `data` has one of the forms, each of LEAST_BYTES or more."""
        blocks = (self._matches(data, at) for at in range(0, len(data), _BLOCK))
        return any(
            data[at : at + length] in self._forms
            for block in blocks
            for at in block
            for length in self._lengths[data[at : at + LEAST_BYTES]]
        )

    def _matches(self, data: bytes, begin: int) -> list[int]:
        """Returns the places in a block of `data` that have the first bytes of a form."""
        count = min(_BLOCK, len(data) - LEAST_BYTES + 1 - begin)
        if count <= 0:
            return []
        octets = np.frombuffer(data, np.uint8, count + LEAST_BYTES - 1, begin).astype(np.uint64)
        windows = np.zeros(count, np.uint64)
        for at in range(LEAST_BYTES):
            windows = (windows << np.uint64(8)) | octets[at : at + count]
        nearest = np.minimum(np.searchsorted(self._starts, windows), len(self._starts) - 1)
        return (np.flatnonzero(self._starts[nearest] == windows) + begin).tolist()


def _forms(key: bytes) -> list[bytes]:
    if len(key) < LEAST_BYTES:
        return []
    escaped = msgspec.json.encode(key.decode(errors="replace"))[1:-1]
    forms = [key, escaped, base64.b64encode(key).rstrip(b"=")[:-1]]
    plain = canonical_key(key)
    return list(dict.fromkeys([*forms, *([plain] if plain is not None and len(plain) >= LEAST_BYTES else [])]))


def leaves(value: Any) -> list[bytes]:
    """Returns every text and every bytes inside a value of lists and dicts, as bytes."""
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, str):
        return [value.encode()]
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in leaves(each)]
    return [leaf for each in value for leaf in leaves(each)] if isinstance(value, list | tuple) else []
