"""How long a command waits for a worker. It imports nothing slow: every start of the command line reads it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

TIMEOUT_S: Final = 60


class RequestTimeout(NamedTuple):
    """For how many seconds a command waits for a worker's answer, and what it tells of that."""

    seconds: float = TIMEOUT_S
    say: Callable[[str], object] = lambda _: None
