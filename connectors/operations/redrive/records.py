"""Tells letters of one record from each other: a record that is read again may come to be a letter once more."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.plan import RedrivePosition

_BYTES = 16
"""Of a digest: two of a billion records are taken for one with a probability of 1 : 10²⁰."""


def record_of(letter: Letter) -> bytes | None:
    """Returns what tells the record of a letter from all others; None if the letter does not name its source offset.

    Offsets begin again if a topic was recreated, so it is the record's content too.
    """
    said = letter.context
    place = [said.get(name) for name in ("topic", "partition", "offset")]
    if None in place:
        return None
    content = (place, letter.record_ms, letter.key, letter.value, letter.headers)
    return blake2b(msgspec.msgpack.encode(content), digest_size=_BYTES).digest()


class RedrivenRecords:
    """The records of `connector` of which a letter has gone, as far as letters are given by `learn`, or `add`.

    `every`: each letter counts for itself, as it did in runs of earlier versions.
    """

    def __init__(self, connector: str, *, every: bool = False) -> None:
        self._connector = connector
        self._every = every
        # The `record_of` each record of which a letter has gone; it only grows.
        self._gone: set[bytes] = set()

    def learn(self, position: RedrivePosition, letters: Iterable[Letter]) -> None:
        """Takes letters of one partition in their order; `position` is that of the partition."""
        for letter in letters:
            self.has_gone(position, letter)

    def has_gone(self, position: RedrivePosition, letter: Letter) -> bool:
        """Returns whether `letter` itself has gone, or by a run that sends one letter of a record another has."""
        if not position.is_redriven(letter, self._connector):
            return False
        stands_for = self._every and not position.is_redriven_itself(letter, self._connector)
        if stands_for and self.is_known(letter):
            return False
        self.add(letter)
        return True

    def is_known(self, letter: Letter) -> bool:
        """Returns whether a letter of the same record has gone."""
        return bool(self._gone) and record_of(letter) in self._gone

    def add(self, letter: Letter) -> None:
        """Notes that `letter` has gone."""
        if letter.context.get("connector.name", self._connector) == self._connector:
            record = record_of(letter)
            if record is not None:
                self._gone.add(record)
