"""Is true of records with a null as value (`RecordIsTombstone`)."""

from __future__ import annotations

from connectors.data.record import ConnectRecord
from connectors.transforms.transform import Predicate, Side


class RecordIsTombstone(Predicate):
    """The value counts as it is converted."""

    READS = frozenset({Side.VALUE})

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return record.value is None
