"""Hides secrets that another has issued for a while, such as the tokens and keys of an Iceberg catalog.

No setting tells of them, so they are known by their values: those that came last, in every form in which others write
them. What is hidden is long, and no word: a catalog must not choose which words an operator reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final

from compactor.secret_forms import HIDDEN, SHORTEST_ANYWHERE, SecretIndex, Span, forms_of
from connectors.credentials import is_no_word

LONGEST: Final = 16 << 10
"""Characters of a secret: servers take no longer header."""
_HEAVIEST: Final = 4 << 20
"""Characters of all forms: 200 tokens of 1,000 characters have that many. To make the index of them takes 0.1 s."""
_LONG: Final = 20
"""Characters of a text that is hidden whatever it consists of: no name of an event is as long."""


class IssuedSecrets:
    """The secrets that were issued last, up to `heaviest` characters of their forms."""

    def __init__(self, heaviest: int = _HEAVIEST) -> None:
        self._heaviest = heaviest
        self._lock = threading.Lock()
        # The forms of each secret, the one that was issued last at the end, and their characters. Under the lock.
        self._forms: dict[str, tuple[str, ...]] = {}
        self._length = 0
        # What finds them; None once another has come. Replaced as a whole.
        self._index: SecretIndex | None = None

    def remember(self, secret: str) -> None:
        """Has a secret of at most LONGEST characters hidden from now on, unless it may be a word."""
        if not is_no_word(secret) and (len(secret) < _LONG or any(map(str.isspace, secret))):
            return
        with self._lock:
            forms = self._forms.pop(secret, None)
            if forms is None:
                forms = forms_of(secret[:LONGEST])
                self._length += sum(map(len, forms))
                self._index = None
            self._forms[secret] = forms
            while self._length > self._heaviest and len(self._forms) > 1:
                self._length -= sum(map(len, self._forms.pop(next(iter(self._forms)))))

    def spans(self, text: str) -> Iterator[Span]:
        """Yields what of them stands in `text`, with what is shown in its place."""
        index = self._index
        if index is None:
            with self._lock:
                known = (form for forms in self._forms.values() for form in forms if len(form) >= SHORTEST_ANYWHERE)
                index = self._index = SecretIndex(dict.fromkeys(known, HIDDEN))
        yield from index.spans(text)


issued_secrets: Final = IssuedSecrets()
"""Those of this process."""
