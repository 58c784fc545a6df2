"""Keeps what compares keys from one look-up to the next: the schemas that it has read need not be asked for again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

import msgspec

from connectors.chain.key_identity import KeyIdentity, key_identity_of
from connectors.chain.spec import ChainSpec, Resolve

_MOST: Final = 4
"""How many are kept: each may hold some 100 MB of schemas and keys, if a producer makes them so."""

_Settings = tuple[str, bytes]
"""The name of an identity, and the converter that writes keys, with its settings."""


class IdleIdentities:
    """Lends key identities; threads share it, and each has what it is lent for itself.

    One that met an error goes, as that may come from a password that has been changed since it was made.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        # Those that are not in use, with the settings that they were made of, the one that was used last at the end.
        self._idle: list[tuple[_Settings, KeyIdentity]] = []
        self._lock = Lock()

    @contextmanager
    def lent(self, spec: ChainSpec, resolve: Resolve) -> Iterator[KeyIdentity | None]:
        """Lends what finds the identities of a connector's keys, for the block; None if it compares them by bytes."""
        settings = spec.identity, msgspec.json.encode(spec.written_key)
        identity = self._taken(settings) or key_identity_of(spec, resolve)
        if identity is None:
            yield None
            return
        try:
            yield identity
        except BaseException:
            identity.close()
            raise
        self._put_back(settings, identity)

    def _taken(self, settings: _Settings) -> KeyIdentity | None:
        with self._lock:
            for at, (made_of, _) in enumerate(self._idle):
                if made_of == settings:
                    return self._idle.pop(at)[1]
        return None

    def _put_back(self, settings: _Settings, identity: KeyIdentity) -> None:
        with self._lock:
            self._idle.append((settings, identity))
            oldest = self._idle.pop(0)[1] if len(self._idle) > self._most else None
        if oldest is not None:
            oldest.close()


IDLE: Final = IdleIdentities()
"""Those of this process."""
