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

from connectors.chain.key_identity import JSON, JsonKeyIdentity, compared
from connectors.operations.erase.receipt import ErasedKey, canonical_key, hashed
from connectors.typed.arrow_types import parts_of
from connectors.typed.plain_values import comparable
from connectors.typed.unite import source_of

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


class _Hashed:
    """What rows are compared with, of each key: a salted hash, or also the bytes themselves (`known`)."""

    def __init__(self, salt: bytes, hashes: Sequence[str | None], known: Sequence[bytes] | None = None) -> None:
        self._salt = salt
        self._by_hash = {each: number for number, each in enumerate(hashes) if each is not None}
        self._known = None if known is None else pa.array(known, pa.binary())

    def numbers(self, keys: pa.Array) -> Numbers:
        """Returns which of the keys each of `keys` (binary) is."""
        if self._known is not None:
            places = pc.fill_null(pc.index_in(keys, self._known), NONE)
            return np.asarray(places.to_numpy(zero_copy_only=False), np.int64)
        encoded = keys.dictionary_encode()
        wanted = [
            NONE if key is None else self._by_hash.get(hashed(self._salt, key), NONE)
            for key in encoded.dictionary.to_pylist()
        ]
        numbers = np.array([*wanted, NONE], np.int64)
        places = pc.fill_null(encoded.indices, len(wanted)).to_numpy(zero_copy_only=False)
        return numbers[places]


class KeyMatcher:
    """Compares keys with those of a receipt; with `keys`, in its order, also any bytes.

    `identity` is the connector's compaction.key.identity, None for bytes.
    """

    def __init__(
        self, salt: bytes, erased: Sequence[ErasedKey], keys: Sequence[bytes] | None = None, identity: str | None = None
    ) -> None:
        self._plain = _Hashed(salt, [each.sha256 for each in erased], keys)
        self._json = _Hashed(salt, [each.json for each in erased])
        self._compared = _Hashed(salt, [each.identity or each.sha256 for each in erased])
        self._identity = identity
        self._has_identities = all(each.identity is not None for each in erased)
        # By an identity that a resync has taken back since: which, the receipt does not say; by JSON it is looked for.
        self._was_compared = identity is None and bool(erased) and self._has_identities
        self._keys = keys
        self._forms = frozenset(form for key in keys or () for form in _forms(key))
        self._windows = FormWindows(self._forms) if len(self._forms) >= _MANY else None
        self._is_all_json = all(each.json is not None for each in erased)

    @property
    def searches_bytes(self) -> bool:
        """Whether the bytes of all keys are known, and long enough to be looked for in any file."""
        return self._keys is not None and all(len(key) >= LEAST_BYTES for key in self._keys)

    def numbers(self, keys: pa.Array) -> Numbers | None:
        """Returns which erased key each of `keys` is, by number; None if keys of that type cannot be compared."""
        if pa.types.is_null(keys.type):
            return np.full(len(keys), NONE)
        if pa.types.is_binary(keys.type):
            return self._of_bytes(keys)
        if pa.types.is_string(keys.type):
            plain = self._of_bytes(keys.cast(pa.binary()))
            return None if plain is None else np.maximum(plain, self._of_json(keys))
        return self._of_json(keys) if self._is_all_json and _tells_json(keys.type) else None

    def numbers_kept(self, keys: pa.Array, compared: pa.Array) -> Numbers:
        """Returns the same of `keys` that a log keeps, with what it compares them by (`record.as_compared`).

        The receipt may be of another identity than the catalog has since a resync: it is looked for by both.
        """
        plain = self._plain.numbers(keys)
        if self._identity is not None:
            return np.maximum(plain, self._compared.numbers(compared))
        return np.maximum(plain, self._compared.numbers(_json_identities(keys))) if self._was_compared else plain

    def is_in(self, data: bytes) -> bool:
        """Returns whether `data` has the bytes of a key of at least LEAST_BYTES: as they are, as text or as base64."""
        if self._windows is not None:
            return self._windows.is_in(data)
        return any(form in data for form in self._forms)

    def _of_bytes(self, keys: pa.Array) -> Numbers | None:
        """Returns the numbers of keys of bytes; other bytes may be the same key, which for Avro a registry would say.

        A receipt of an older keyfold has no identities.
        """
        plain = self._plain.numbers(keys)
        if self._identity is None and not self._was_compared:
            return plain
        if self._identity not in (None, JSON) or not self._has_identities:
            return None
        return np.maximum(plain, self._compared.numbers(_json_identities(keys)))

    def _of_json(self, keys: pa.Array) -> Numbers:
        encoder = msgspec.json.Encoder(order="sorted")
        texts = [None if key is None else encoder.encode(comparable(key)) for key in keys.to_pylist()]
        return self._json.numbers(pa.array(texts, pa.binary()))


def _tells_json(kind: pa.DataType) -> bool:
    """Returns whether a column of `kind` has what JSON has, by its names.

    A float may be rounded, dates are numbers in JSON, and a field may have another name there.
    """
    if pa.types.is_struct(kind):
        return all(source_of(field) == field.name and _tells_json(field.type) for field in parts_of(kind))
    if pa.types.is_list(kind):
        return _tells_json(kind.value_type)
    return any(is_kind(kind) for is_kind in (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean))


def _json_identities(keys: pa.Array) -> pa.Array:
    """Returns what keys are compared by with compaction.key.identity=json."""
    identity = JsonKeyIdentity()
    parts = identity.of_many(keys)
    rest = parts.rest
    parts.add_each(rest, [compared(identity, (), key or b"") for key in keys.take(pa.array(rest)).to_pylist()])
    return pc.coalesce(parts.whole().identity, keys)


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
