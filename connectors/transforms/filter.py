"""Drops records: all, or those for which its predicate is true (`Filter`)."""

from __future__ import annotations

from connectors.data.record import ConnectRecord
from connectors.transforms.transform import Transform


class Filter(Transform):
    """A record that is dropped moves offsets, is counted, and supersedes nothing."""

    def apply(self, record: ConnectRecord) -> None:  # noqa: ARG002  # it looks at nothing
        """See `Transform`."""
        return
