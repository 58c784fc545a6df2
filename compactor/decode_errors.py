"""Says why content cannot be decoded, without a word of it: its author may have put a secret into it."""

from __future__ import annotations

import re
from typing import Final

import msgspec

UNDECODABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises at content that is none of the expected form; the last if it is nested a thousand times."""

_VALUE: Final = re.compile(r"(Invalid (?:enum )?value) .*?( - at `\$[^`\s]*`)?\Z", re.DOTALL)
"""How msgspec quotes a value that is none of those allowed; the path after it has only names of ours."""
_QUOTED: Final = re.compile(r"(?<!\w)(?P<quote>['\"]).*(?P=quote)", re.DOTALL)
_SAID: Final = 200
"""Characters that are shown: what is wrong, and the place, stand at the beginning."""


def why(error: Exception) -> str:
    """Returns what a decoder says of content that others may have written, in one line, without what it quotes."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is no UTF-8 from byte {error.start} on"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text = _QUOTED.sub("", _VALUE.sub(r"\1\2", str(error)))
    return " ".join(text.split())[:_SAID].rstrip(".") or type(error).__name__
