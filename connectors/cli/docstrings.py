"""Makes the help of a command of its docstring: what it says, and the examples at its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Final

_EXAMPLES: Final = "Examples:"
_RAISES: Final = "Raises "


def help_of(command: Callable[..., None]) -> str:
    """Returns the help text of `command`: its docstring without its examples and the paragraph on what it raises.

    Each paragraph is one line, as help wraps it to the width of the terminal and would keep the docstring's own breaks.
    """
    shown = (each for each in _paragraphs(command) if not each.startswith((_RAISES, _EXAMPLES)))
    return "\n\n".join(" ".join(each.split()) for each in shown)


def examples_of(command: Callable[..., None]) -> tuple[str, ...]:
    """Lists the examples of `command`: the lines of the paragraph `Examples:` of its docstring."""
    given = (each for each in _paragraphs(command) if each.startswith(_EXAMPLES))
    return tuple(line.strip() for each in given for line in each.splitlines()[1:])


def epilog_of(examples: Iterable[str]) -> str:
    """Returns what stands at the end of a help text: the examples, one a line."""
    return "\n".join((_EXAMPLES, *(f"  {example}" for example in examples)))


def examples_in(epilog: str | None) -> tuple[str, ...]:
    """Lists the examples of a text that `epilog_of` has made; none of another one."""
    first, *rest = (epilog or "").splitlines() or [""]
    return tuple(line.strip() for line in rest) if first == _EXAMPLES else ()


def _paragraphs(command: Callable[..., None]) -> list[str]:
    return (inspect.getdoc(command) or "").split("\n\n")
