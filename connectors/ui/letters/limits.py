"""Bounds what the page reads of dead letters: letters, bytes, and time; and ends it once that is asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from connectors.clock import Clock
from connectors.kafka.client_settings import Setting
from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.run import RedriveKafka

_SMALL_READS: Final[Mapping[str, Setting]] = {"queued.max.messages.kbytes": 4_096, "fetch.message.max.bytes": 1 << 20}
"""What a reader fetches ahead, unlike a connector's: what no page shows should not fill the worker's memory.
A broker sends the first batch in any case, however large it is."""
_ASK_S: Final = 5.0
"""How long (s) brokers may take for one question: until then nothing sees that it was cancelled."""
SHOWN_KINDS: Final = 50
"""Kinds in the table of a page: whoever writes letters may give each a class of its own."""


class ReadBounds(Struct, frozen=True):
    """The most that is read: letters, bytes of their keys, values and headers, and for how long (s)."""

    letters: int
    size: int
    seconds: float


class CutShortError(Exception):
    """A reading has come to one of its bounds, or was ended; its text says which, for the middle of a sentence."""


class LetterLimit:
    """Counts what is read against `bounds`; once `ended` is set nothing more is read. Used by one thread.

    `letters` is how many were read so far. The time begins with the first reading.
    """

    def __init__(self, bounds: ReadBounds, clock: Clock, *ended: threading.Event) -> None:
        self.letters = 0
        self._size = 0
        self._bounds = bounds
        self._clock = clock
        # When (monotonic ms) no more is read; set by the first reading.
        self._ends_ms: int | None = None
        self._ended = ended

    def of(self, kafka: RedriveKafka) -> RedriveKafka:
        """Returns what reads letters and asks for bounds, but raises CutShortError at a bound."""
        return replace(kafka, read=self._over(kafka.read), bounds=partial(kafka.bounds, left_s=self.left_s))

    def left_s(self) -> float:
        """Returns how long (s) the next question may take. Raises CutShortError if nothing more may be read."""
        self.check()
        return min(_ASK_S, ((self._ends_ms or 0) - self._clock.monotonic_ms()) / 1_000)

    def _over(self, read: Callable[..., Iterable[Letter]]) -> Callable[..., Iterator[Letter]]:

        def limited(config: Mapping[str, Setting], *place: Any, **more: Any) -> Iterator[Letter]:
            self.check()
            for letter in read({**config, **_SMALL_READS}, *place, **more, left_s=self.left_s):
                self.check()
                self.letters += 1
                self._size += letter.size
                yield letter

        return limited

    def is_ended(self) -> bool:
        """Returns whether what reads was cancelled, or the worker ends."""
        return any(event.is_set() for event in self._ended)

    def check(self) -> None:
        """Raises CutShortError if nothing more may be read."""
        bounds = self._bounds
        if self.is_ended():
            raise CutShortError("it was cancelled")
        if self.letters >= bounds.letters:
            raise CutShortError(f"{bounds.letters:,} letters are the most that the page reads at once")
        if self._size >= bounds.size:
            raise CutShortError(f"{bounds.size >> 20:,} MiB are the most that the page reads at once")
        now_ms = self._clock.monotonic_ms()
        self._ends_ms = self._ends_ms or now_ms + round(bounds.seconds * 1_000)
        if now_ms >= self._ends_ms:
            raise CutShortError(f"{bounds.seconds:g} s are the longest that the page reads")
