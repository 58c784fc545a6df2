"""Reads whole numbers of texts that others have written: headers, positions, names of files, requests."""

from __future__ import annotations

from typing import Final

LARGEST: Final = (1 << 63) - 1
"""The greatest long: offsets, times and counts of Kafka are no larger."""
_LONGEST: Final = len(str(LARGEST))
"""Digits of it. Python reads any number of them, in a time that grows with their square, and refuses 4,300."""


def whole(text: str | bytes, most: int = LARGEST) -> int | None:
    """Returns the number that the ASCII digits of `text` say; None for any other text, and for more than `most`.

    `most` is at most LARGEST. Zeros in front count as digits, of which there are 19 at most.
    """
    if not (len(text) <= _LONGEST and text.isascii() and text.isdigit()):
        return None
    number = int(text)
    return number if number <= most else None
