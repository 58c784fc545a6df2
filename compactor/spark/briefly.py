"""What an error says on a line or two: Spark's own texts go on with its plan and Java's trace."""

from __future__ import annotations

import re
from typing import Final

from compactor.errors import KeyfoldError

_LONGEST: Final = 500
_TRACEBACK: Final = "Traceback (most recent call last):"
_PLAN: Final = re.compile(
    r"\s*(=== Streaming Query ===|(?:== )?(?:Parsed |Analyzed |Optimized )?(?:Logical|Physical) Plan(?: ==|:))"
    r".*?(?=\n\nThe above exception|\n\nDuring handling|\Z)",
    re.DOTALL,
)


def briefly(error: BaseException) -> str:
    """All that a KeyfoldError says; of any other error its first line, and the last of a traceback that it quotes."""
    if isinstance(error, KeyfoldError):
        return str(error)
    text = without_plan(str(error)).strip()
    first = text.split("\n", 1)[0].removesuffix(_TRACEBACK).rstrip(" :")
    parts = [_cut(part) for part in (first, _raised(text)) if part]
    return ": ".join(dict.fromkeys(parts)) or type(error).__name__


def without_plan(text: str) -> str:
    """`text` without the plans of Spark's in it: they are kilobytes, and may show the options of a source."""
    return _PLAN.sub("", text)


def _raised(text: str) -> str:
    """What the first traceback in `text` ends with; "" where there is none."""
    _, _, trace = text.partition(_TRACEBACK)
    lines = (line for line in trace.splitlines() if line.strip())
    return next((line for line in lines if not line[0].isspace()), "")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
