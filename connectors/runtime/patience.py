"""How long a command waits for a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

TIMEOUT_S: Final = 60


class Patience(NamedTuple):
    """How many seconds a command waits for a worker, and where it says what it waits for."""

    seconds: float = TIMEOUT_S
    tell: Callable[[str], object] = lambda _: None
