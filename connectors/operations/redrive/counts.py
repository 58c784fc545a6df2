"""Counts dead letters by what they are of and why they were let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from connectors.operations.redrive.letters import Letter
from connectors.operations.redrive.run import LetterFates


class LetterCount(Struct, frozen=True):
    """How many letters there are of one kind; empty texts if letters do not say it.

    `waiting`: those that are not another connector's and were not sent back; None if that cannot be told.
    `first_ms`, `last_ms` are times of the records; `first_letter_ms`, `last_letter_ms` those at which letters came.
    None if no letter says it.
    """

    topic: str
    stage: str
    class_name: str
    exception: str
    count: int
    waiting: int | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    first_letter_ms: int | None = None
    last_letter_ms: int | None = None


def counts(letters: Iterator[Letter], fates: LetterFates | None) -> list[LetterCount]:
    """Counts letters by source topic, stage, class and error, with the first and last times (ms) of each.

    Without `fates` it is not known how many are waiting.
    """
    kinds: dict[tuple[str, ...], LetterCount] = {}
    for letter in letters:
        names = tuple(letter.context.get(name, "") for name in ("topic", "stage", "class.name", "exception.class.name"))
        known = kinds.get(names)
        if known is None:
            topic, stage, class_name, exception = names
            known = LetterCount(topic, stage, class_name, exception, 0)
        kinds[names] = replace(
            known,
            count=known.count + 1,
            waiting=None if fates is None else (known.waiting or 0) + fates.is_waiting(letter),
            first_ms=_of_known(min, known.first_ms, letter.record_ms),
            last_ms=_of_known(max, known.last_ms, letter.record_ms),
            first_letter_ms=_of_known(min, known.first_letter_ms, letter.appended),
            last_letter_ms=_of_known(max, known.last_letter_ms, letter.appended),
        )
    return sorted(kinds.values(), key=lambda kind: -kind.count)


def _of_known(choose: Callable[[Iterable[int]], int], *times: int | None) -> int | None:
    known = [time_ms for time_ms in times if time_ms is not None]
    return choose(known) if known else None
