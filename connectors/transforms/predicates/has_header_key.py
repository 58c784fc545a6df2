"""Is true of records that have a header of a name (`HasHeaderKey`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.data.record import ConnectRecord
from connectors.options import REQUIRED, Option
from connectors.transforms.transform import Predicate


def _not_empty(name: str) -> str | None:
    return None if name else "a name is needed."


class HasHeaderKey(Predicate):
    """One header of that name is enough."""

    OPTIONS = (Option("name", "STRING", REQUIRED, "The header's name.", check=_not_empty),)

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._name: str = options["name"]

    def test(self, record: ConnectRecord) -> bool:
        """See `Predicate`."""
        return any(header.key == self._name for header in record.headers)
