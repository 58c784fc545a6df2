"""Keeps errors that many records have in common, so that a registry, or a compiler, is asked once for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from connectors.data.kept import Kept, weight_of
from connectors.errors import DataError

Result = TypeVar("Result")

KEPT_S: Final = 30.0
"""For how long (s) an error is kept: what is missing may be there later."""
_MOST: Final = 1_000
_HEAVIEST: Final = 4 << 20
"""How many are kept, and how many bytes of them: the ids of malformed records may be any, and what is asked a text."""


class Refusals:
    """The errors of the last moments, by what was asked. Used by one thread."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._kept: Kept[Hashable, tuple[float, DataError]] = Kept(_MOST, _HEAVIEST)

    def __len__(self) -> int:
        return len(self._kept)

    def of(self, asked: Hashable, make: Callable[[], Result]) -> Result:
        """Returns what `make` does. Raises the DataError that it has raised less than KEPT_S ago, or a new one."""
        kept = self._kept.get(asked)
        if kept is not None and self._monotonic() < kept[0]:
            raise DataError(kept[1].message, kept[1].action)
        try:
            return make()
        except DataError as error:
            self._keep(asked, error)
            raise

    def _keep(self, asked: Hashable, error: DataError) -> None:
        kept = self._monotonic() + KEPT_S, DataError(error.message, error.action)
        self._kept.put(asked, kept, weight_of(asked, error.message, error.action))
