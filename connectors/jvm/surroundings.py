"""Says what a JVM of ours is given of this process's surroundings, as it would not find it out for itself.

On its own because Spark's JVM, the broker's and Ivy's all take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_LOCALE: Final = "LC_ALL"
_ASCII_ONLY: Final = ("C", "POSIX")
_UTF_8: Final = "C.UTF-8"


def java_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables in which a JVM's environment differs from `environment`.

    With LC_ALL=C Java cannot open a file whose name is not ASCII. Python overrides the weaker LC_CTYPE and LANG
    itself (PEP 538), for its child processes as well.
    """
    return {_LOCALE: _UTF_8} if environment.get(_LOCALE) in _ASCII_ONLY else {}
