"""What a stream can show: a terminal that moves its cursor, colours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TextIO


def is_terminal(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `stream` is a terminal that can move its cursor; TERM=dumb and none at all cannot."""
    return stream.isatty() and environ.get("TERM", "dumb").lower() not in ("dumb", "unknown", "")


def is_coloured(stream: TextIO, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether text on `stream` may be coloured: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return is_terminal(stream, environ) and not environ.get("NO_COLOR")
