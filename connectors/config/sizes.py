"""Bounds how large the settings of a connector may be, before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from connectors.config.errors import Fault, FaultyConfigError

MOST_SETTINGS: Final = 1_000
"""Settings of a connector: five for each of two hundred transforms. Each may be looked for among all names."""
LONGEST_SETTINGS: Final = 256 << 10
"""Characters of all names and texts: ten thousand topics, or a large schema.content. To check them takes a second."""
MOST_STEPS: Final = 100
"""Transforms, or predicates. Each is made to see whether it takes its settings."""
_LISTS: Final = ("transforms", "predicates")


def check_size(given: Mapping[str, str], subject: str) -> None:
    """Raises FaultyConfigError naming `subject` if its settings are beyond the bounds."""
    length = sum(len(name) + len(text) for name, text in given.items())
    if len(given) > MOST_SETTINGS:
        raise FaultyConfigError(subject, [Fault("", f"has {len(given)} settings; allowed are {MOST_SETTINGS}.")])
    if length > LONGEST_SETTINGS:
        text = f"has {length} characters of settings; allowed are {LONGEST_SETTINGS}. Name topics by topics.regex."
        raise FaultyConfigError(subject, [Fault("", text)])
    for name in _LISTS:
        count = given.get(name, "").count(",") + 1
        if count > MOST_STEPS:
            raise FaultyConfigError(subject, [Fault(name, f"names {count}; allowed are {MOST_STEPS}.")])
