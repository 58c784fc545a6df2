"""Adds a header with a fixed value (`InsertHeader`, KIP-145)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from connectors.data.record import ConnectRecord, Header
from connectors.errors import DataError
from connectors.options import REQUIRED, Option, OptionsError
from connectors.transforms.literals import parse_string
from connectors.transforms.transform import Transform


class InsertHeader(Transform):
    """The text is read as Connect reads texts: `1` is a number, `true` a truth value."""

    OPTIONS = (
        Option("header", "STRING", REQUIRED, "The header's name.", importance="HIGH"),
        Option("value.literal", "STRING", REQUIRED, "Its value.", importance="HIGH"),
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        try:
            schema, value = parse_string(options["value.literal"])
        except DataError as error:
            raise OptionsError([("value.literal", error.message)]) from None
        self._header = Header(options["header"], value, schema, is_new=True)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """See `Transform`."""
        return replace(record, headers=(*record.headers, self._header))
