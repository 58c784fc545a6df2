"""Remembers what a pattern makes of each topic, so that it is matched once a topic and not once a record."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from compactor.remembered import Remembered

Result = TypeVar("Result", bound=str | bool)

MOST_BYTES: Final = 16 << 20
"""Of the whole process: 40,000 results of usual topics. With less, a worker that has as many topics and routers matches
some of them again for each record, 4 us each."""
_OWN_BYTES: Final = 300
"""A result takes so many beside its texts, mostly for the key by which it is kept."""

_results: Final = Remembered[str | bool](MOST_BYTES)


class TopicResults(Generic[Result]):
    """The results of one setting, which `texts` are all of: instances with equal texts share them, as do threads."""

    def __init__(self, made: Callable[[str], Result], *texts: str) -> None:
        self._made: Callable[[str], Result] = made
        self._setting = hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=16).digest()
        """In place of the texts, which may be long, so that nothing that is kept holds them."""

    def of(self, topic: str) -> Result:
        """Returns what is made of `topic`. Raises what making it raises; nothing is remembered then."""
        place = self._setting, topic
        known = _results.get(place)
        if known is not None:
            return cast("Result", known)  # of this setting, so of this kind
        made = self._made(topic)
        _results.put(place, made, _OWN_BYTES + len(topic) + (len(made) if isinstance(made, str) else 0))
        return made
