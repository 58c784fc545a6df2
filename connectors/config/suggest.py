"""The nearest known name to one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like `name`, or None where nothing is like it.

    Case, and `_` or `-` in place of `.`, do not count as differences.
    """
    by_plain = {_plain(candidate): candidate for candidate in sorted(known, reverse=True)}
    found = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=_CUTOFF)
    return by_plain[found[0]] if found else None


def unknown(name: str, known: Iterable[str], what: str = "key") -> str:
    """The sentence for an unknown `name`: with the nearest known one, if there is one."""
    near = nearest(name, known)
    return f'unknown {what}; did you mean "{near}"?' if near else f"unknown {what}; docs/configuration.md lists all."


def _plain(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")
