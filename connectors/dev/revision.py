"""Tells which commit of the repository something was tried or measured on.

`make bench` and `make faults` note it when they begin: pages may change while either runs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
CHANGED: Final = "+"
ROOT: Final = Path(__file__).parents[2]


def revision(*paths: str, root: Path = ROOT) -> str:
    """Returns the short hash of the newest commit that changed any of `paths`, and a `+` if they changed since.

    "unknown" if `root` is no clone of the repository.
    """
    try:
        commit = _git(root, "log", "-1", "--format=%h", "--", *paths)
        return commit + CHANGED * bool(_git(root, "status", "--porcelain", "--", *paths)) if commit else UNKNOWN
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN


def is_exact(noted: str) -> bool:
    """Returns whether a revision says which code it is: not so if it was changed, or there is no repository."""
    return noted not in ("", UNKNOWN) and not noted.endswith(CHANGED)


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=root, capture_output=True, check=True, text=True).stdout.strip()
