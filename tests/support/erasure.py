"""Looks for bytes in every file below folders, decoded, as who attacks an erasure would."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq


def files_with(data: bytes, *folders: Path) -> list[Path]:
    """Returns the files that have `data`, in rows, in values of Avro, or as they are; temporary ones too."""
    files = (path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in files if any(data in leaf for leaf in _leaves_of(path))]


def _leaves_of(path: Path) -> Iterable[bytes]:
    content = path.read_bytes()
    yield content
    if path.suffix == ".parquet":
        yield from _leaves(pq.ParquetFile(io.BytesIO(content)).read().to_pylist())
    elif path.suffix == ".avro":
        yield from _leaves(list(fastavro.reader(io.BytesIO(content))))


def _leaves(value: Any) -> Iterable[bytes]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, str | bytes):
        yield value.encode() if isinstance(value, str) else value
