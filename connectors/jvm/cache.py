"""Names the folder in which keyfold keeps what it has fetched or made once for an account: its cache.

$XDG_CACHE_HOME/keyfold        an absolute path, as the XDG Base Directory Specification asks for
~/.cache/keyfold               if the account has a home
<temporary>/keyfold-cache-UID  if neither can be written: a container's account may have no home at all
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from connectors.errors import ConfigError
from connectors.jvm.surroundings import homes

_PRIVATE: Final = 0o700
_NAME: Final = "keyfold"
_ACTION: Final = "Set XDG_CACHE_HOME to a folder that this account can write."


def default_cache() -> Path:
    """Returns the first folder of the list above that this account can write.

    Raises ConfigError if the temporary one belongs to another account, which could replace what is kept there.
    """
    return next(filter(can_write, _places(os.environ)), None) or _temporary()


def cache_with(name: str) -> Path:
    """Returns the cache that has an entry `name`, even one that cannot be written, as in an image; else the default.

    Raises ConfigError as `default_cache` does.
    """
    return next((place for place in _places(os.environ) if (place / name).exists()), None) or default_cache()


def _places(environment: Mapping[str, str]) -> list[Path]:
    root = Path(environment.get("XDG_CACHE_HOME") or ".")
    places = [root] if root.is_absolute() else [home / ".cache" for home in homes(environment)]
    return [place / _NAME for place in places]


def can_write(folder: Path) -> bool:
    """Returns whether files can be made in `folder`, or the folder itself in the nearest one that is there."""
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _temporary() -> Path:
    folder = Path(tempfile.gettempdir(), f"{_NAME}-cache-{os.getuid()}")
    try:
        folder.mkdir(_PRIVATE, exist_ok=True)
        state = folder.lstat()
    except OSError as error:
        raise ConfigError(f"There is no cache for keyfold: {error}.", _ACTION) from error
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise ConfigError(f"{folder} is not this account's alone: others could replace what is kept there.", _ACTION)
    return folder
