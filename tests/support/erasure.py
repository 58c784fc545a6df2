"""Looks for bytes in every file of folders or stores, decoded, as who attacks an erasure would."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

from compactor.storage.base import FileInfo, Storage
from compactor.storage.limits import LARGE_BYTES


def files_with(data: bytes, *places: Path | Storage) -> list[str]:
    """Returns the files and folders that have `data`, in rows, in values of Avro, as they are, or in their names."""
    files = (file for place in places for file in _files(place))
    return [name for name, content in files if any(data in leaf for leaf in _leaves_of(name, content))]


def _files(place: Path | Storage) -> Iterator[tuple[str, bytes]]:
    if isinstance(place, Path):  # without keyfold, which might not list all
        yield from ((str(path), _content(path)) for path in sorted(place.rglob("*")))
    else:
        files = (*place.walk(""), *place.unfinished(""))
        yield from ((f"{place.location}/{each.path}", _read(place, each)) for each in files)


def _read(place: Storage, file: FileInfo) -> bytes:
    return place.read(file.path, LARGE_BYTES) if file.bytes else b""  # what stands for a folder cannot be read


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _leaves_of(name: str, content: bytes) -> Iterable[bytes]:
    yield name.encode()
    yield content
    if name.endswith(".parquet"):
        yield from _leaves(pq.ParquetFile(io.BytesIO(content)).read().to_pylist())
    elif name.endswith(".avro"):
        yield from _leaves(list(fastavro.reader(io.BytesIO(content))))


def _leaves(value: Any) -> Iterable[bytes]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | bytes):
        yield value.encode() if isinstance(value, str) else value
