"""Bounds what pyiceberg reads as a whole: a table's metadata, its lists of manifests, and its manifests.

Who may write these files, or answers as the catalog that names them, could make them of any size, also compressed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zlib
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any, Final

from msgspec import Struct
from pyiceberg.io import InputFile

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
_SYNC: Final = 16
_LONGEST_NUMBER: Final = 10
"""Bytes of the longest number in Avro, of 64 bits."""


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
        """Returns its content. Raises ValueError if that is not within the bounds."""
        with self._inner.open(seekable) as stream:
            head = _read(stream, len(_AVRO))
            is_avro = head == _AVRO
            most = MANIFEST_BYTES if is_avro else METADATA_BYTES
            data = head + _read(stream, most + 1 - len(head))
        try:
            self._budget.take(_checked_avro(data) if is_avro else _checked_json(data, self.location))
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


def _checked_avro(data: bytes) -> int:
    """Returns how many bytes the records of an Avro file take, decompressed.

    Raises ValueError if these, or they, are more than are allowed, or what no manifest is; EOFError if it is cut.
    """
    _check_size(len(data), MANIFEST_BYTES)
    reader = _Reader(data, len(_AVRO))
    meta = reader.header()
    _check_schema(json.loads(meta.get(b"avro.schema", b"null")), {})
    size_of = _SIZES.get(meta.get(b"avro.codec", b"null"))
    if size_of is None:
        raise ValueError("it is compressed in a way that is not known")
    reader.skip(_SYNC)
    records = size = 0
    while not reader.is_at_end:
        records += reader.number()
        size += size_of(reader.text(), MANIFEST_BYTES - size)
        reader.skip(_SYNC)
        if not 0 <= records <= MANIFEST_RECORDS:
            raise ValueError(f"it has more than {MANIFEST_RECORDS:,} records")
        _check_size(size, MANIFEST_BYTES)
    return size


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise ValueError(f"it has more than {most:,} bytes")


class _Reader(Struct):
    """Reads numbers and texts of an Avro file from `at` on. Raises EOFError at its end, ValueError for what is none."""

    data: bytes
    at: int

    @property
    def is_at_end(self) -> bool:
        return self.at >= len(self.data)

    def number(self) -> int:
        value = shift = 0
        for byte in self.data[self.at : self.at + _LONGEST_NUMBER]:
            self.at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)
        raise EOFError("it ends within a number")

    def text(self) -> bytes:
        size = self.number()
        start = self.at
        self.skip(size)
        return self.data[start : self.at]

    def skip(self, size: int) -> None:
        if size < 0 or self.at + size > len(self.data):
            raise EOFError("it ends too early")
        self.at += size

    def header(self) -> dict[bytes, bytes]:
        """Reads the map at the beginning."""
        meta: dict[bytes, bytes] = {}
        while count := self.number():
            if count < 0:  # its size follows, for who skips it
                self.number()
            for _ in range(abs(count)):
                name = self.text()
                meta[name] = self.text()
        return meta


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


def _plain_size(data: bytes, most: int) -> int:  # noqa: ARG001  # of a known length
    return len(data)


def _deflate_size(data: bytes, most: int) -> int:
    return len(zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most + 1))


def _bzip2_size(data: bytes, most: int) -> int:
    return len(bz2.BZ2Decompressor().decompress(data, most + 1))


def _snappy_size(data: bytes, most: int) -> int:  # noqa: ARG001  # it says its own length first
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return size
    raise ValueError("it is no Snappy")


def _zstandard_size(data: bytes, most: int) -> int:
    from zstandard import ZstdDecompressor, ZstdError

    try:
        with ZstdDecompressor().stream_reader(io.BytesIO(data)) as stream:
            return len(_read(stream, most + 1))
    except ZstdError as error:
        raise ValueError(str(error)) from error


def _read(stream: Any, most: int) -> bytes:
    """Reads up to `most` bytes: a stream may give fewer at a time."""
    data = bytearray()
    while len(data) < most and (piece := stream.read(most - len(data))):
        data += piece
    return bytes(data)


_SIZES: Final[dict[bytes, Callable[[bytes, int], int]]] = {
    b"null": _plain_size,
    b"deflate": _deflate_size,
    b"bzip2": _bzip2_size,
    b"snappy": _snappy_size,
    b"zstandard": _zstandard_size,
}
