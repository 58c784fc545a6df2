"""Drops tombstones, or refuses them (Confluent's `TombstoneHandler`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import structlog

from connectors.data.record import ConnectRecord
from connectors.errors import DataError
from connectors.options import Option
from connectors.transforms.transform import Side, Transform

_log: Final = structlog.get_logger()


class TombstoneHandler(Transform):
    """A tombstone that is dropped deletes nothing: the key's last value stays in the output."""

    OPTIONS = (
        Option(
            "behavior",
            "STRING",
            "drop_warn",
            "`drop_silent` and `drop_warn` drop tombstones, the latter with a line in the log; `fail` refuses them.",
            allowed=("drop_silent", "drop_warn", "fail"),
            any_case=True,
        ),
    )
    READS = frozenset({Side.VALUE})

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._behavior: str = options["behavior"].lower()

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """See `Transform`."""
        if record.value is not None:
            return record
        if self._behavior == "fail":
            raise DataError("A tombstone, and TombstoneHandler has behavior=fail.")
        if self._behavior == "drop_warn":
            _log.warning("tombstone dropped", topic=record.topic, partition=record.partition, offset=record.offset)
        return None
