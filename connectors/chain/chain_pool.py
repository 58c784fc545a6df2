"""Keeps the chains of a process between its reading tasks: what they know of schemas took requests to learn."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from connectors.chain.chain import Chain
from connectors.chain.spec import ChainSpec, Resolve
from connectors.data.pace import limited
from connectors.match_time import PORTION_S, matches_within
from connectors.registry.patience import Patience

_MOST: Final = 256
"""For how many specs chains are kept. With more connectors than that, chains are made again and again, registries are
asked again, and portions that a micro-batch could have held are read apart."""
_lock: Final = threading.Lock()
# The chains that no block has borrowed, by spec, the spec that was used last at the end. Changed under `_lock` alone.
_idle: Final[OrderedDict[bytes, list[Chain]]] = OrderedDict()


@contextmanager
def borrowed(
    spec: ChainSpec,
    resolve: Resolve,
    *,
    keyed: bool,
    patience: Patience | None = None,
    matches_s: float = PORTION_S,
) -> Iterator[Chain]:
    """Yields a chain of `spec` that no other thread has; it is kept for the next one, even if the block fails.

    What failed is read again, perhaps while the registry does not answer: then what the chain knows is all there is.
    `patience` limits what the chain takes in the block, also in the midst of a record; None: nothing but that patterns
    are matched for `matches_s` in all.
    """
    key = msgspec.json.encode((spec, keyed))
    with _lock:
        free = _idle.get(key)
        chain = free.pop() if free else None
    if chain is None:
        chain = Chain(spec, resolve, keyed=keyed)
    chain.filtered.clear()
    chain.truncated.clear()
    patience = patience or Patience()
    chain.wait_with(patience)
    try:
        with limited(patience.check), matches_within(matches_s):
            yield chain
    finally:
        _keep(key, chain)


def _keep(key: bytes, chain: Chain) -> None:
    dropped: list[Chain] = []
    with _lock:
        _idle.setdefault(key, []).append(chain)
        _idle.move_to_end(key)
        while len(_idle) > _MOST:
            dropped += _idle.popitem(last=False)[1]
    for old in dropped:
        old.close()
