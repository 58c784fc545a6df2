"""Where keyfold may put its files: local folders for now, other stores are refused by name."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def local_path(text: str) -> Path:
    """The folder that a path or a `file:` URL names; a relative path stays relative.

    Raises ValueError, with the reason, for an empty text, another scheme or a URL with a host.
    """
    if not text.strip() or "\0" in text:
        raise ValueError("no folder is named")
    scheme = _SCHEME.match(text)
    if not scheme:
        return Path(text).expanduser()
    return _of_url(text, scheme[1].lower())


def _of_url(text: str, scheme: str) -> Path:
    if scheme != "file":
        raise ValueError(f"stores of the scheme {scheme}: are not available yet; name a local folder")
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise ValueError(f"a file: URL has no host ({parts.hostname}); write file:///folder")
    if not parts.path:
        raise ValueError("no folder is named")
    return Path(unquote(parts.path))
