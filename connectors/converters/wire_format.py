"""Finds which schema a message is written with: an id before the data, or in a header.

Confluent's wire format is a byte 0 and 4 bytes of id. Its serializers from 8.1 on put a byte 1 and 16 bytes of GUID
into a header, `__value_schema_id` (`__key_schema_id`), and nothing before the data (its `DualSchemaIdDeserializer`).
Apicurio's older format has 8 bytes of id; its newer one a header `apicurio.value.globalId` or `…contentId` (`…key…`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from connectors.data.record import Header
from connectors.errors import DataError
from connectors.options import Option
from connectors.registry.answers import LARGEST_ID, LARGEST_LONG_ID, IdKind, SchemaId
from connectors.registry.settings import NO_GLOBAL_ID, USE_ID

# The first byte of Confluent's wire format, before the id.
MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_GUID: Final = 16
"""Bytes of a GUID, after a byte 1."""
_NAMING: Final = ("globalId", "contentId", "contentHash", "groupId", "artifactId", "version", "msgType")
"""What Apicurio's headers say of how a key or value is written (its `KafkaSerdeHeaders`)."""
NAMING_HEADERS: Final = {
    side: frozenset({f"__{side}_schema_id", *(f"apicurio.{side}.{name}" for name in _NAMING)})
    for side in ("key", "value")
}
"""The headers that say with which schema a side is written: they are wrong for bytes that are written again."""
# Java's int and longs: both registries' deserializers read them so.
_ID: Final = struct.Struct(">bi")
_LONG_ID: Final = struct.Struct(">bq")
_HEADER_ID: Final = struct.Struct(">q")
CONTENT_ID: Final = "contentId"
LONG_IDS: Final = Option(
    "apicurio.registry.id-handler",
    "STRING",
    "",
    "Apicurio's class of ids: with `Legacy8ByteIdHandler` in its name ids have 8 bytes, otherwise 4.",
    importance="LOW",
)


USE_ID_OPTION: Final = Option(
    USE_ID,
    "STRING",
    CONTENT_ID,
    "Which of Apicurio's ids stands before the data. With `apicurio.registry.as-confluent` the default is `globalId`, "
    "as in Apicurio's converters of 2.x.",
    allowed=(CONTENT_ID, IdKind.GLOBAL_ID.value),
)


class NamedSchema(NamedTuple):
    """Which schema a message is written with, and at which position its data begin.

    `start` is 0 if the id is in a header. `path` holds what follows a GUID there: of Protobuf, the path of the message.
    """

    schema_id: SchemaId
    start: int
    path: bytes | None = None


class WireFormat:
    """How a converter of keys or values finds ids, and writes those up to `largest_id`.

    `use_id` says what an id before the data is: `contentId`, which Confluent's is too, or `globalId`. With
    `has_global_ids` the registry's address is Apicurio's, which has longs as ids.
    """

    def __init__(self, id_handler: str, use_id: str = "", *, has_global_ids: bool = False, is_key: bool) -> None:
        self._form = _LONG_ID if "Legacy8ByteIdHandler" in id_handler else _ID
        # Bytes before the data, unless the id is in a header, or is a GUID.
        self.size = self._form.size
        self.largest_id = LARGEST_LONG_ID if self._form is _LONG_ID else LARGEST_ID
        # Up to which ids are asked for: a larger one would be a path that no registry but Apicurio's knows.
        self._largest_read = LARGEST_LONG_ID if has_global_ids else self.largest_id
        self._has_global_ids = has_global_ids
        self.kind = IdKind.GLOBAL_ID if use_id == IdKind.GLOBAL_ID.value else IdKind.ID
        side = "key" if is_key else "value"
        self._headers = {f"apicurio.{side}.globalId": IdKind.GLOBAL_ID, f"apicurio.{side}.contentId": IdKind.ID}
        self._guid_header = f"__{side}_schema_id"

    @property
    def pattern(self) -> str:
        """A regular expression (RE2) for what may stand before the data."""
        return rf"(?:\x00.{{{self.size - 1}}}|\x01.{{{_GUID}}})?"

    def read(self, headers: Sequence[Header], data: bytes) -> NamedSchema:
        """Finds the schema of a message: by its headers, the last of a name, then before the data. Raises DataError."""
        for header in reversed(headers):
            value = header.value
            if header.key == self._guid_header and isinstance(value, bytes) and value:
                named = self._before(value)
                return NamedSchema(named.schema_id, 0, value[named.start :])
            kind = self._headers.get(header.key)
            if kind is not None and isinstance(value, bytes) and len(value) == _HEADER_ID.size:
                return NamedSchema(self._checked(kind, int(_HEADER_ID.unpack(value)[0])), 0)
        return self._before(data)

    def _before(self, data: bytes) -> NamedSchema:
        """Reads what stands first in `data`: a 0 and an id, or a 1 and a GUID."""
        if len(data) > _GUID and data[0] == _GUID_MAGIC:
            return NamedSchema(SchemaId(IdKind.GUID, str(UUID(bytes=data[1 : 1 + _GUID]))), 1 + _GUID)
        if len(data) < self._form.size or data[0] != MAGIC:
            raise DataError(
                f"The bytes begin with {data[: self._form.size].hex(' ') or 'nothing'}: there is no id of a schema.",
                "See how the record's writer serializes; bytes that no registry knows are read by keyfold.Bytes.",
            )
        return NamedSchema(self._checked(self.kind, int(self._form.unpack_from(data)[1])), self._form.size)

    def _checked(self, kind: IdKind, number: int) -> SchemaId:
        """Returns an id that a registry may have. Raises DataError for any other: nothing is asked for it."""
        if kind is IdKind.GLOBAL_ID and not self._has_global_ids:
            raise DataError(f"The record names its schema by globalId {number}.", NO_GLOBAL_ID)
        if not 0 <= number <= self._largest_read:
            raise DataError(
                f"The record names its schema by {kind.value} {number}, and a registry has 0 to {self._largest_read}.",
                "See how the record's writer serializes; Apicurio's longer ids are read if schema.registry.url ends "
                f"with /apis/ccompat/v7, or by {LONG_IDS.name}.",
            )
        return SchemaId(kind, number)

    def written(self, schema_id: int) -> bytes:
        """Returns what goes before the data."""
        return self._form.pack(MAGIC, schema_id)
