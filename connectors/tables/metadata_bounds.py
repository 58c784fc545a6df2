"""Bounds what pyiceberg reads as a whole: a table's metadata, its lists of manifests, and its manifests.

Who may write these files, or answers as the catalog that names them, could make them of any size, also compressed.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Mapping
from threading import Lock
from typing import Any, Final

from pyiceberg.io import InputFile

from connectors.tables.avro_blocks import PLAIN, AvroFileReader, avro_header, avro_number, unfolded

METADATA_BYTES: Final = 8 << 20
"""How large a table's metadata may be, from a file or over REST. A column takes some 130 bytes in it for each set of
columns that a kept version of the table has: of 5,000 columns that is 0.7 MB."""
_MOST: Final = {b",": 200_000, b"[": 35_000, b"{": 70_000}
"""How many values, lists and objects it may have. A column has four values in one object. pyiceberg reads so many
within 0.3 s, in which no other thread of the worker gets on."""
MANIFEST_BYTES: Final = 64 << 20
"""How large a manifest, or a list of them, may be once it is decompressed. A data file takes 1.5 KB in it with 50
columns, and 70 KB with 2,000."""
MANIFEST_RECORDS: Final = 200_000
"""How many records it may have: as many data files of 64 MiB are 12 TB."""
IN_ALL_BYTES: Final = 256 << 20
"""How large all of them may be that one version of a table is read by. As Python's objects they take ten times that."""
_AVRO: Final = b"Obj\x01"
_CODEC: Final = b"avro.codec"
_SYNC: Final = 16
"""Bytes of the mark after the header, and after each block."""
_TOO_LARGE: Final = "it has more than {:,} bytes"


class MetadataBudget:
    """Counts what is read of one version of a table, by several threads; `most` bytes are allowed."""

    def __init__(self, most: int = IN_ALL_BYTES) -> None:
        self._most = most
        self._left = most
        self._lock = Lock()

    def take(self, size: int) -> None:
        """Takes so many bytes. Raises ValueError if there are too few left."""
        with self._lock:
            self._left -= size
            if self._left < 0:
                raise ValueError(f"the files of the table's metadata have more than {self._most:,} bytes in all")


class MetadataFile(InputFile):
    """The file `inner`, read as a whole if it is within the bounds, and counted in `budget`."""

    def __init__(self, inner: InputFile, budget: MetadataBudget) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._budget = budget

    def __len__(self) -> int:
        """Returns how many bytes it has."""
        return len(self._inner)

    def exists(self) -> bool:
        """Returns whether it is there."""
        return self._inner.exists()

    def open(self, seekable: bool = True) -> io.BytesIO:  # noqa: FBT001, FBT002  # pyiceberg's
        """Returns its content, which is not compressed if it is Avro. Raises ValueError if it is beyond the bounds."""
        with self._inner.open(seekable) as stream:
            head = _read(stream, len(_AVRO))
            is_avro = head == _AVRO
            most = MANIFEST_BYTES if is_avro else METADATA_BYTES
            data = head + _read(stream, most + 1 - len(head))
        try:
            if is_avro:
                data, size = _plain_avro(data)
            else:
                size = _checked_json(data, self.location)
            self._budget.take(size)
        except (ValueError, TypeError, EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{self.location[:200]!r}, which is a file of the table's metadata: {error}") from error
        return io.BytesIO(data)


def check_values(body: bytes) -> None:
    """Raises ValueError if a JSON text has more values than the metadata of a table."""
    if any(body.count(sign) > most for sign, most in _MOST.items()):
        raise ValueError("it has more values than a catalog's answer")


def _checked_json(data: bytes, location: str) -> int:
    """Returns how many bytes metadata has, decompressed. Raises ValueError for more than are allowed, OSError."""
    _check_size(len(data), METADATA_BYTES)
    if location.endswith(".gz.metadata.json"):  # as pyiceberg tells it
        with gzip.open(io.BytesIO(data)) as stream:
            data = stream.read(METADATA_BYTES + 1)
        _check_size(len(data), METADATA_BYTES)
    check_values(data)
    return len(data)


def _plain_avro(data: bytes) -> tuple[bytes, int]:
    """Returns an Avro file without its compression, and how many bytes its records take.

    pyiceberg unfolds no block itself, so what is counted here is what it reads. Raises ValueError if records or bytes
    are more than are allowed, or for what no manifest is; EOFError if it is cut.
    """
    _check_size(len(data), MANIFEST_BYTES)
    reader = AvroFileReader(data, len(_AVRO))
    meta = reader.header()
    _check_schema(json.loads(meta.get(b"avro.schema", b"null")), {})
    codec, meta[_CODEC] = meta.get(_CODEC, PLAIN), PLAIN
    parts = [_AVRO, avro_header(meta), reader.take(_SYNC)]
    records = size = 0
    while not reader.is_at_end:
        count, block = reader.number(), reader.text()
        records += count
        if count < 0 or records > MANIFEST_RECORDS:
            raise ValueError(f"it has more than {MANIFEST_RECORDS:,} records")
        plain = unfolded(codec, block, MANIFEST_BYTES - size)
        if plain is None:
            raise ValueError(_TOO_LARGE.format(MANIFEST_BYTES))
        size += len(plain)
        parts += [avro_number(count), avro_number(len(plain)), plain, reader.take(_SYNC)]
    return b"".join(parts), size


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ValueError(_TOO_LARGE.format(most))


def _check_schema(schema: Any, takes: dict[str, bool]) -> bool:
    """Returns whether each value of `schema` takes a byte; `takes` says it of the names that were met.

    Raises ValueError for lists of what takes none: of these, a few bytes are as many values as they say.
    """
    if isinstance(schema, list):
        for branch in schema:
            _check_schema(branch, takes)
        return True  # the number of the branch
    if isinstance(schema, str):
        return takes.get(schema, schema != "null")
    if not isinstance(schema, Mapping):
        raise TypeError("it has no schema")
    kind, name = schema.get("type"), str(schema.get("name"))
    takes[name] = False  # a record in itself takes no more than its other fields
    takes[name] = takes_one = _check_type(kind, schema, takes)
    return takes_one


def _check_type(kind: Any, schema: Mapping[str, Any], takes: dict[str, bool]) -> bool:
    match kind:
        case "array":
            if not _check_schema(schema.get("items"), takes):
                raise ValueError("its schema has a list of nothing")
        case "map":
            _check_schema(schema.get("values"), takes)
        case "record":
            fields = [_check_schema(field.get("type"), takes) for field in schema.get("fields", ())]
            return any(fields)
        case "fixed":
            return bool(schema.get("size"))
        case "enum":
            return True
        case _:
            return _check_schema(kind, takes)
    return True


def _read(stream: Any, most: int) -> bytes:
    """Reads up to `most` bytes: a stream may give fewer at a time."""
    data = bytearray()
    while len(data) < most and (piece := stream.read(most - len(data))):
        data += piece
    return bytes(data)
