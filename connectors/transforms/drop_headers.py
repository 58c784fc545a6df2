"""Drops headers by name (`DropHeaders`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from connectors.data.record import ConnectRecord
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Transform


class DropHeaders(Transform):
    """All headers of these names go."""

    OPTIONS = (Option("headers", "LIST", REQUIRED, "The names.", importance="HIGH"),)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._names = frozenset(options["headers"])

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        if not any(header.key in self._names for header in record.headers):
            return record
        return replace(record, headers=tuple(kept for kept in record.headers if kept.key not in self._names))
