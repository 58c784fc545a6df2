"""Unfolds the blocks of Avro files within a bound: a few KiB of a block can be made to take gigabytes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
from msgspec import Struct

PLAIN: Final = b"null"
"""The codec of blocks that are not compressed."""
_LONGEST_NUMBER: Final = 10
"""Bytes of the longest number in Avro, of 64 bits."""
_SNAPPY_SUM: Final = 4
"""Bytes at the end of a block of Snappy: the CRC-32 of what it unfolds to."""
_SNAPPY_NUMBER: Final = 5
"""Bytes of the longest number with which such a block says how much that is, of 32 bits."""


class AvroFileReader(Struct):
    """Reads numbers and texts of an Avro file from `at` on. Raises EOFError at its end."""

    data: bytes
    at: int

    @property
    def is_at_end(self) -> bool:
        """Whether all of it is read."""
        return self.at >= len(self.data)

    def number(self) -> int:
        """Reads a number."""
        value, size = _number(self.data[self.at : self.at + _LONGEST_NUMBER])
        self.at += size
        return (value >> 1) ^ -(value & 1)

    def text(self) -> bytes:
        """Reads a text with its length before it."""
        return self.take(self.number())

    def take(self, size: int) -> bytes:
        """Reads so many bytes."""
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise EOFError("it ends too early")
        return self.data[start : self.at]

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


def avro_number(value: int) -> bytes:
    """Returns a number, not below 0, as Avro writes it."""
    rest, written = value << 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


def avro_header(meta: Mapping[bytes, bytes]) -> bytes:
    """Returns the map at the beginning of an Avro file."""
    texts = (avro_number(len(text)) + text for entry in meta.items() for text in entry)
    return avro_number(len(meta)) + b"".join(texts) + avro_number(0)


def unfolded(codec: bytes, block: bytes, most: int) -> bytes | None:
    """Returns what a block holds; None if that is more than `most` bytes, of which no more is unfolded.

    Raises ValueError for a codec that is not known, and for a block that is cut short or damaged.
    """
    unfold = _CODECS.get(codec)
    if unfold is None:
        raise ValueError("it is compressed in a way that is not known")
    try:
        data = unfold(block, most)
    except (EOFError, OSError, ValueError, zlib.error, pa.ArrowException) as error:
        raise ValueError(f"a block of it, of the codec {codec.decode()}, is cut short or damaged: {error}") from error
    return data if data is not None and len(data) <= most else None


def _plain(block: bytes, most: int) -> bytes:  # noqa: ARG001  # of a known length
    return block


def _inflated(block: bytes, most: int) -> bytes:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    data = stream.decompress(block, most + 1)
    if len(data) <= most and not stream.eof:
        raise EOFError("its end is missing")
    return data  # pyiceberg leaves three bytes of its checksum after the end


def _unsnapped(block: bytes, most: int) -> bytes | None:
    """Returns what `block` holds. It begins with how much that is, for which Snappy makes room before it reads on."""
    size, _ = _number(block[:_SNAPPY_NUMBER])
    if size > most:
        return None
    data: bytes = pa.decompress(block[:-_SNAPPY_SUM], size, "snappy", asbytes=True)
    if zlib.crc32(data) != int.from_bytes(block[-_SNAPPY_SUM:]):
        raise ValueError("its checksum is another one")
    return data


def _of_streams(name: str) -> Callable[[bytes, int], bytes]:
    """Returns what unfolds a block that has any number of streams, by Arrow's `name` of the codec."""

    def read(block: bytes, most: int) -> bytes:
        if not block:
            raise EOFError("it has no stream")
        with pa.CompressedInputStream(pa.BufferReader(block), name) as streams:
            data: bytes = streams.read(most + 1)
            return data

    return read


_CODECS: Final[Mapping[bytes, Callable[[bytes, int], bytes | None]]] = {
    PLAIN: _plain,
    b"deflate": _inflated,
    b"snappy": _unsnapped,
    b"bzip2": _of_streams("bz2"),
    b"zstandard": _of_streams("zstd"),
}


def _number(data: bytes) -> tuple[int, int]:
    """Returns the number that `data` begins with, of 7 bits a byte, and how many bytes it takes. Raises EOFError."""
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, place + 1
    raise EOFError("it ends within a number")
