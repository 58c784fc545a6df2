"""Is true of records whose value is null (`RecordIsTombstone`).

On its own because every predicate is.
"""

from __future__ import annotations

from connectors.data.record import ConnectRecord
from connectors.transforms.transform import Predicate, Side


class RecordIsTombstone(Predicate):
    """The value counts as it is converted."""

    READS = frozenset({Side.VALUE})

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return record.value is None
