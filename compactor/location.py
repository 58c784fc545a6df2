"""Which store a location names."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from compactor.local import LocalStorage
from compactor.storage import Storage, UnsupportedStorageError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


def open_storage(location: str, *, shared: bool = False) -> Storage:
    """The storage at `location`, a path or a `file:` URL; its folder is made with the first file.

    What is made there is for this account alone; where it is `shared`, for whoever may read the folder `location`,
    which is made for this account alone where it is absent. Raises StorageError for any other scheme.
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
