"""An error that is kept keeps nothing of what its frames had open."""

from __future__ import annotations

import gc
import threading
import traceback
import weakref
from collections.abc import Iterator
from contextlib import suppress

import pytest

from connectors.errors import NoThreadError
from connectors.threads import CallQueue, CancellableThread, let_go


class Held:
    """Stands for a consumer, a connection or a batch of records."""


HELD: list[weakref.ref[Held]] = []
CLOSED: list[str] = []


def reading() -> Iterator[int]:
    """Has something open for as long as it is not closed."""
    held = Held()
    HELD.append(weakref.ref(held))
    try:
        yield 1
        yield 2
    finally:
        CLOSED.append("closed")


def fails_while_reading() -> None:
    batches = reading()
    for _ in batches:
        raise OSError("the store is full")


def wraps() -> None:
    try:
        fails_while_reading()
    except OSError as error:
        raise RuntimeError("not written") from error


def test_what_a_failed_thread_had_open_is_closed() -> None:
    """Its failure is kept, for hours perhaps: the generator that it read from is closed at once, by no collector."""
    HELD.clear()
    CLOSED.clear()
    gc.disable()
    try:
        thread = CancellableThread("fails", lambda _: wraps())
        thread.start()
        assert thread.join(10)
        assert (CLOSED, [ref() for ref in HELD]) == (["closed"], [None])
    finally:
        gc.enable()
    assert thread.failure is not None
    text = "".join(traceback.format_exception(thread.failure))
    assert "in fails_while_reading" in text, "it says where it came from all the same"
    assert "the store is full" in text


def test_errors_that_came_from_one_another_in_a_circle_are_let_go_of_once() -> None:
    """And those of a group."""
    first, second = ValueError("a"), ValueError("b")
    with suppress(ValueError):
        raise first
    with suppress(ValueError):
        raise second from first
    first.__context__ = second
    let_go(ExceptionGroup("several", [first, second]))


class PanicException(BaseException):
    """What a library made with pyo3 raises when its Rust panics."""


def test_a_call_that_fails_keeps_no_other_from_being_made() -> None:
    """Also one that ends with what is no Exception: the queue would else say for ever that it is at work."""

    def fails() -> None:
        raise PanicException

    queue, made = CallQueue("q"), list[int]()
    queue.ask(fails)
    queue.ask(lambda: made.append(1))
    assert (queue.wait(30), made) == (True, [1])


def test_a_call_whose_thread_cannot_be_started_is_not_made_and_the_next_one_is() -> None:
    """A queue that took its thread to be there would make nothing ever after, and never be waited out."""
    outcomes = iter([False])

    def start(thread: threading.Thread) -> None:
        if not next(outcomes, True):
            raise RuntimeError("can't start new thread")
        thread.start()

    queue, made = CallQueue("q", start), list[str]()
    with pytest.raises(NoThreadError, match="can't start new thread"):
        queue.ask(lambda: made.append("refused"))
    assert queue.wait(0)
    queue.ask(lambda: made.append("later"))
    assert (queue.wait(30), made) == (True, ["later"])
