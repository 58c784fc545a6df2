"""Whether any connector's brokers answer, asked for all of them at once while something else is under way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from connectors.errors import UnreachableError


class BrokerProbe:
    """Asks for each name in a thread of its own; `ask` raises UnreachableError where nobody answers."""

    def __init__(self, asks: Mapping[str, Callable[[], None]]) -> None:
        self._silent: dict[str, UnreachableError] = {}
        self._answered = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=each, name=f"reach-{each[0]}", daemon=True) for each in asks.items()
        ]
        for thread in self._threads:
            thread.start()

    @property
    def found(self) -> bool:
        """Whether one of them has answered."""
        return self._answered.is_set()

    def silent(self) -> dict[str, UnreachableError]:
        """Why each did not answer, once none has; nothing before that, nor where one has."""
        over = not any(thread.is_alive() for thread in self._threads)
        return self._silent if over and not self.found else {}

    def _ask(self, name: str, ask: Callable[[], None]) -> None:
        try:
            ask()
        except UnreachableError as error:
            self._silent[name] = error
        else:
            self._answered.set()
