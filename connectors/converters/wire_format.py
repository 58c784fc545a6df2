"""Finds which schema a message is written with: an id before the data, or in a header.

Confluent's wire format is a byte 0 and 4 bytes of id; Apicurio's older one has 8 bytes; its newer one puts the id into
a header, `apicurio.value.globalId` or `…contentId` (`…key…` for keys), and nothing before the data.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from connectors.data.record import Header
from connectors.errors import DataError
from connectors.options import Option
from connectors.registry.answers import LARGEST_ID

# The first byte of Confluent's wire format, before the id.
MAGIC: Final = 0
_NAMING: Final = ("globalId", "contentId", "contentHash", "groupId", "artifactId", "version", "msgType")
"""What Apicurio's headers say of how a key or value is written (its `KafkaSerdeHeaders`)."""
NAMING_HEADERS: Final = {side: frozenset(f"apicurio.{side}.{name}" for name in _NAMING) for side in ("key", "value")}
"""The headers that say with which schema a side is written: they are wrong for bytes that are written again."""
_ID: Final = struct.Struct(">bI")
_LONG_ID: Final = struct.Struct(">bq")
_HEADER_ID: Final = struct.Struct(">q")
LONG_IDS: Final = Option(
    "apicurio.registry.id-handler",
    "STRING",
    "",
    "Apicurio's class of ids: with `Legacy8ByteIdHandler` in its name ids have 8 bytes, otherwise 4.",
    importance="LOW",
)


class WireFormat:
    """How a converter of keys or values finds and writes ids, up to `largest_id`."""

    def __init__(self, id_handler: str, *, is_key: bool) -> None:
        self._form = _LONG_ID if "Legacy8ByteIdHandler" in id_handler else _ID
        # Bytes before the data, unless the id is in a header.
        self.size = self._form.size
        self.largest_id = (1 << 63) - 1 if self._form is _LONG_ID else LARGEST_ID
        side = "key" if is_key else "value"
        self._headers = (f"apicurio.{side}.globalId", f"apicurio.{side}.contentId")

    def is_id(self, header: Header) -> bool:
        """Returns whether a header says which schema a message is written with."""
        return header.key in self._headers and isinstance(header.value, bytes) and len(header.value) == _HEADER_ID.size

    def read(self, headers: Sequence[Header], data: bytes) -> tuple[int, int]:
        """Returns the id of the schema, and the position of the data. Raises DataError."""
        for header in headers:
            if self.is_id(header):
                return int(_HEADER_ID.unpack(header.value)[0]), 0
        if len(data) < self._form.size or data[0] != MAGIC:
            raise DataError(
                f"The bytes begin with {data[: self._form.size].hex(' ') or 'nothing'}: there is no id of a schema.",
                "See how the record's writer serializes; bytes that no registry knows are read by keyfold.Bytes.",
            )
        return int(self._form.unpack_from(data)[1]), self._form.size

    def written(self, schema_id: int) -> bytes:
        """Returns what goes before the data."""
        return self._form.pack(MAGIC, schema_id)
