"""Hides secrets that another has issued for a while, such as the tokens and keys of an Iceberg catalog.

No setting tells of them, so they are known by their values: those that came last, in every form in which others write
them. What is hidden is long, and no word: a catalog must not choose which words an operator reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from math import inf
from operator import itemgetter
from typing import Final

from compactor.secret_forms import HIDDEN, SHORTEST_ANYWHERE, SecretIndex, Span, forms_of
from connectors.credentials import is_no_word
from connectors.kept_values import Kept

LONGEST: Final = 16 << 10
"""Characters of a secret: servers take no longer header."""
_HEAVIEST: Final = 4 << 20
"""Characters of all forms: 200 tokens of 1,000 characters have that many. To make the index of them takes 0.1 s."""
_LONG: Final = 20
"""Characters of a text that is hidden whatever it consists of: no name of an event is as long."""

IndexOf = Callable[[Mapping[str, str]], SecretIndex]
"""Makes what finds texts, each with what is shown in its place."""


class IssuedSecrets:
    """The secrets that were issued last, up to `heaviest` characters of their forms."""

    def __init__(self, heaviest: int = _HEAVIEST, index: IndexOf = SecretIndex) -> None:
        self._index_of = index
        self._lock = threading.Lock()
        """Held for moments: the index is made without it, so that who logs does not wait for a catalog."""
        # The forms of each secret, by their characters. Under the lock.
        self._forms: Kept[str, tuple[str, ...]] = Kept(inf, heaviest)
        # How often secrets have come. Under the lock.
        self._count = 0
        # That count when what finds them was made, and what finds them. Replaced as a whole, under the lock.
        self._made = 0, SecretIndex({})

    def remember(self, *secrets: str) -> None:
        """Has secrets of at most LONGEST characters hidden once it returns, but those that may be words."""
        opaque = {secret: forms_of(secret[:LONGEST]) for secret in secrets if not _may_be_word(secret)}
        with self._lock:
            for secret, forms in opaque.items():
                self._count += secret not in self._forms
                self._forms.put(secret, forms, sum(map(len, forms)))
            count, kept = self._count, self._forms.newest_first()
            if self._made[0] == count:
                return
        known = (form for _, forms in kept for form in forms if len(form) >= SHORTEST_ANYWHERE)
        index = self._index_of(dict.fromkeys(known, HIDDEN))
        with self._lock:  # what another thread has made since has these as well
            self._made = max(self._made, (count, index), key=itemgetter(0))

    def spans(self, text: str) -> Iterator[Span]:
        """Yields what of them stands in `text`, with what is shown in its place. Waits for nothing."""
        return self._made[1].spans(text)


def _may_be_word(secret: str) -> bool:
    return not is_no_word(secret) and (len(secret) < _LONG or any(map(str.isspace, secret)))


issued_secrets: Final = IssuedSecrets()
"""Those of this process."""
