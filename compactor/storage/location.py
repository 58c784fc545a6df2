"""Which store a location names."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from compactor.errors import UnsupportedStorageError
from compactor.storage.base import Storage
from compactor.storage.local import LocalStorage

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def open_storage(location: str, *, shared: bool = False) -> Storage:
    """The storage at `location`, a path or a `file:` URL; its folder is made with the first file.

    Only this account may read what is made there; where it is `shared`, also the accounts that may read the folder
    `location` (none, where keyfold makes that folder). Raises StorageError for any other scheme.
    """
    scheme = _SCHEME.match(location)
    if scheme is None:
        return LocalStorage(location, location if shared else None)
    url = urlsplit(location)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise UnsupportedStorageError(
            f"Storage {location!r}: only paths and file: URLs on this machine are supported so far.",
            "Give a path, or file:///path; a file system that is mounted here works too.",
        )
    path = unquote(url.path)
    return LocalStorage(path, path if shared else None)
