"""Checks that who finds only the committed positions knows every transactional id that may have a transaction open."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compactor.model.record import TopicPartition
from tests.support.memory.journal import Event, JournalEntry


class NamedIds:
    """How many ids the position of each partition names, by the entries of an output that were given so far."""

    def __init__(self) -> None:
        self._seen = 0
        self._named: dict[TopicPartition, int] = {}

    def violations(self, entries: Sequence[JournalEntry]) -> Iterator[str]:
        """Yields each record that went by an id which the position before it does not name; takes the new `entries`.

        Without a position there is nothing to rebuild from, and one that a tool has set is refused by `rebuild`.
        """
        for number, entry in enumerate(entries[self._seen :], start=self._seen):
            if entry.event is Event.COMMITTED:
                for tp in sorted({one.tp for one in (*entry.records, *entry.letters)}):
                    named = self._named.get(tp)
                    if named is not None and entry.bucket >= named:
                        yield f"entry {number}: records of {tp} went by id {entry.bucket}, {named} are named"
            self._take(entry)
        self._seen = len(entries)

    def _take(self, entry: JournalEntry) -> None:
        for held in entry.positions:
            if held.position is None or held.position.catalog_id is None:
                self._named.pop(held.tp, None)
            else:
                self._named[held.tp] = held.position.buckets or 0
