"""Tells what a command has done before an error ended it: a commit stands, whatever is raised after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from compactor.errors import KeyfoldError

STANDS: Final = "What was asked is done all the same, and the next run goes on from it."

T = TypeVar("T")


@contextmanager
def told(done: Sequence[T], report: Callable[[tuple[T, ...]], object]) -> Iterator[None]:
    """Calls `report` with `done` if the block fails after it has put anything there; the error says that it stands."""
    try:
        yield
    except Exception as error:
        if done:
            report(tuple(done))
            if isinstance(error, KeyfoldError):
                error.action = f"{STANDS} {error.action}".rstrip()
        raise
