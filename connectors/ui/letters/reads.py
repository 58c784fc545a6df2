"""Has dead letters looked at on threads: few at once, fewer of one connector, and none is waited for too long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

from connectors.errors import BusyError, UnreachableError
from connectors.kafka.admin import Admin
from connectors.operations.redrive.letters import LetterFilter
from connectors.operations.redrive.run import DeadLetters, RedriveKafka
from connectors.rest.context import RestContext
from connectors.runtime.supervised_connector import Connector
from connectors.ui.letters.limits import LetterLimit, ReadBounds
from connectors.ui.letters.looking import LOOK, PAST, Look, letter_at, look
from connectors.ui.letters.shown import ShownLetter, shown

T = TypeVar("T")

A_CONNECTOR: Final = 2
"""How many looks (`Slow.letters`) may be of one connector: one with brokers that hang leaves room for others."""
ANSWER_S: Final = 15.0
"""How long (s) a page waits: a look takes LOOK.seconds, and the questions before it `_ASK_S` each. What goes on then
ends by itself, and keeps its place among the A_CONNECTOR until it has."""
_ASK_S: Final = 5.0
"""How long (s) brokers may take for a question about a topic."""

LOOK_KAFKA: Final = RedriveKafka(admin=lambda config: Admin(config, _ASK_S))


class LetterReads:
    """Makes looks for requests, on one event loop; `kafka` is what letters are read with."""

    def __init__(self, context: RestContext, kafka: RedriveKafka = LOOK_KAFKA, answer_s: float = ANSWER_S) -> None:
        self._context = context
        self._kafka = kafka
        self._answer_s = answer_s
        # How many requests wait for a look; several may wait for one. Used on the event loop alone.
        self._waiting = 0
        # What is under way, by connector and what is asked for; used on the event loop alone.
        self._under_way: dict[tuple[str, Hashable], asyncio.Task[Any]] = {}
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Ends the looks that are under way."""
        self._stopped.set()

    async def look(self, connector: Connector, wanted: LetterFilter) -> Look:
        """Returns what the newest letters are; several that ask at once have one answer.

        Raises UsageError if there is no dead letter topic, BusyError, UnreachableError, NotAllowedError.
        """
        return await self._made(connector.name, wanted, partial(self._look, connector, wanted))

    async def letter(self, connector: Connector, partition: int, offset: int) -> ShownLetter | None:
        """Returns the letter at an offset, None if there is none. Raises as `look`."""
        return await self._made(
            connector.name, (partition, offset), partial(self._letter, connector, partition, offset)
        )

    async def _made(self, name: str, asked: Hashable, call: Callable[[], T]) -> T:
        calls = self._context.slow.letters
        if self._waiting >= calls.most + calls.most_waiting:
            raise BusyError(f"{self._waiting} others wait for dead letters.", "Load the page again.")
        task: asyncio.Task[T] | None = self._under_way.get((name, asked))
        if task is None:
            task = self._begun(name, asked, call)
        self._waiting += 1
        try:
            return await asyncio.wait_for(asyncio.shield(task), self._answer_s)
        except TimeoutError:
            raise UnreachableError(
                f"The dead letters of connector {name} were not read within {self._answer_s:g} s.",
                "Check its brokers, and load the page again.",
            ) from None
        finally:
            self._waiting -= 1

    def _begun(self, name: str, asked: Hashable, call: Callable[[], T]) -> asyncio.Task[T]:
        """Begins a look. Raises BusyError."""
        if sum(each == name for each, _ in self._under_way) >= A_CONNECTOR:
            raise BusyError(
                f"{A_CONNECTOR} others look at the dead letters of connector {name}.", "Load the page again."
            )
        task = asyncio.get_running_loop().create_task(self._context.slow.letters.run(call))
        self._under_way[name, asked] = task
        task.add_done_callback(partial(self._over, (name, asked)))
        return task

    def _over(self, key: tuple[str, Hashable], task: asyncio.Task[Any]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled():
            task.exception()  # which has been looked at then: who asked may wait no more

    def _look(self, connector: Connector, wanted: LetterFilter) -> Look:
        return look(self._opened(connector, LOOK), self._opened(connector, PAST), connector.name, wanted)

    def _letter(self, connector: Connector, partition: int, offset: int) -> ShownLetter | None:
        at = letter_at(self._opened(connector, LOOK), self._opened(connector, PAST), partition, offset)
        return None if at is None else shown(*at)

    def _opened(self, connector: Connector, bounds: ReadBounds) -> DeadLetters:
        """Opens the topic for one look."""
        limit = LetterLimit(bounds, self._context.clock, self._stopped)
        return DeadLetters(self._context.worker, connector.spec.config, limit.of(self._kafka))
