"""Holds the page's own files: style, script and pictures; each under a name that changes with its content."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from msgspec import Struct

FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


class StaticFile(Struct, frozen=True):
    """A file, its media type, and a version that other content would not have."""

    content: bytes
    media_type: str
    version: str


@cache
def static_files() -> dict[str, StaticFile]:
    """Reads the files once: some 70 KB."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.suffix in _TYPES}


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, _TYPES[path.suffix], hashlib.sha256(content).hexdigest()[:12])


def static_url(name: str) -> str:
    """Returns the address of a file with its version. Raises KeyError if there is none."""
    return f"/ui/static/{name}?v={static_files()[name].version}"
