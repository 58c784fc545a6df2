"""Keeps errors that many records have in common, so that a registry, or a compiler, is asked once for all of them.

On its own because the registry's client and a converter keep theirs in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from connectors.errors import DataError

Result = TypeVar("Result")

KEPT_S: Final = 30.0
"""For how long (s) an error is kept: what is missing may be there later."""
_MOST: Final = 1_000
"""How many are kept: the ids of malformed records may be any."""


class Refusals:
    """The errors of the last moments, by what was asked. Used by one thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept: dict[Hashable, tuple[float, DataError]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, asked: Hashable, make: Callable[[], Result]) -> Result:
        """Returns what `make` does. Raises the DataError that it has raised less than KEPT_S ago, or a new one."""
        found = self._kept.get(asked)
        if found is not None and self._monotonic() < found[0]:
            raise DataError(found[1].message, found[1].action)
        try:
            return make()
        except DataError as error:
            self._keep(asked, error)
            raise

    def _keep(self, asked: Hashable, error: DataError) -> None:
        self._kept.pop(asked, None)
        if len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[asked] = (self._monotonic() + KEPT_S, DataError(error.message, error.action))
