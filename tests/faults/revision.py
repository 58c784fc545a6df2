"""Which commit of the repository a result is of."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

UNKNOWN: Final = "unknown"
DIRTY: Final = "+"
_ROOT: Final = Path(__file__).parents[2]
# `make faults` writes into a document itself: texts are no part of what was tried.
_CODE: Final = ("--", ".", ":(exclude)docs", ":(exclude)*.md")


def current(root: Path = _ROOT) -> str:
    """Returns the short hash of the commit that is checked out, with `+` where code was changed since."""
    commit = _git(root, "rev-parse", "--short", "HEAD").strip()
    if not commit:
        return UNKNOWN
    return commit + DIRTY if _git(root, "status", "--porcelain", *_CODE) else commit


def is_exact(revision: str) -> bool:
    """Returns whether `revision` says which code it is: not so where it was changed, or there is no repository."""
    return revision not in ("", UNKNOWN) and not revision.endswith(DIRTY)


def _git(root: Path, *args: str) -> str:
    try:
        done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git
        return ""
    return done.stdout if done.returncode == 0 else ""
