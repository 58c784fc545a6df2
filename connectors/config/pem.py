"""PEM texts as OpenSSL reads them. Java also takes them on one line, as a properties file gives them."""

from __future__ import annotations

import re
import textwrap
from typing import Final

_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]+)(-----END [A-Z0-9 ]+-----)")
_LINE: Final = 64


def in_lines(text: str) -> str:
    """`text` with each of its keys and certificates in lines of its own; what is no PEM stays as it is."""
    return _BLOCK.sub(_one, text)


def _one(block: re.Match[str]) -> str:
    begin, body, end = block.groups()
    lines = textwrap.wrap("".join(body.split()), _LINE)
    return "\n".join(["", begin, *lines, end, ""])
