"""Makes lists of an object store late: what was made a moment ago is not in them yet.

It has to see all requests that make and remove objects; for the rest it reads the XML in which S3, Azure and Google's
store list. What it has not seen being made counts as old.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

_LISTED: Final = re.compile(
    rb"<(Contents|Blob)>.*?<(?:Key|Name)>(.*?)</(?:Key|Name)>.*?</\1>"
    rb"|<(CommonPrefixes|BlobPrefix)>.*?<(?:Prefix|Name)>(.*?)</(?:Prefix|Name)>.*?</\3>",
    re.DOTALL,
)


class LateLists:
    """Remembers when objects were made, by their paths. Threads share it."""

    def __init__(self) -> None:
        self._made: dict[str, float] = {}
        self._turn = threading.Lock()

    def is_list(self, path: str) -> bool:
        """Returns whether a GET of `path` asks for a list."""
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        return "list-type" in query or query.get("comp") == ["list"]

    def changed(self, method: str, path: str) -> None:
        """Notes that the store has done a request that writes."""
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        key = unquote(urlsplit(path).path)
        completes = "uploadId" in query or query.get("comp") == ["blocklist"]
        with self._turn:
            if method == "DELETE":
                self._made.pop(key, None)
            elif (method == "PUT" and not query) or (completes and "partNumber" not in query):
                self._made.setdefault(key, time.monotonic())

    def as_of(self, path: str, body: bytes, late_s: float) -> bytes:
        """Returns the list in `body` as it would have been `late_s` seconds ago."""
        folder = unquote(urlsplit(path).path).rstrip("/") + "/"
        since = time.monotonic() - late_s
        with self._turn:
            made = dict(self._made)

        def shown(found: re.Match[bytes]) -> bytes:
            key = folder + unescape((found[2] or found[4]).decode())
            times = [made[key]] if key in made else [at for name, at in made.items() if name.startswith(key)]
            is_folder = found[3] is not None
            young = [at for at in times if at > since]
            is_hidden = bool(young) and (not is_folder or len(young) == len(times))
            return b"" if is_hidden else found[0]

        return _LISTED.sub(shown, body)
