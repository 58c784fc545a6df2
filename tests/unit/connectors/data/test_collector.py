"""Python's collector is off while messages are polled, and on again whatever becomes of them."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from connectors.data.collector import LONG, decoded, leave_out_library, leave_out_what_lives, uncollected

TIMEOUT_S = 30.0


def test_it_is_on_again_after_the_last_of_several_calls() -> None:
    """The order in which threads of one process begin and end to poll makes no difference."""
    inner = uncollected(lambda: (uncollected(gc.isenabled), gc.isenabled()))
    assert (inner, gc.isenabled()) == ((False, False), True)


def test_it_is_on_again_after_an_error() -> None:
    """An error that is kept, as a connector's is, keeps its frames, but no call that is under way."""

    def fails() -> None:
        raise RuntimeError("an error that is kept")

    with pytest.raises(RuntimeError) as kept:
        uncollected(fails)
    assert gc.isenabled(), kept


def test_calls_that_overlap_for_long_let_it_run() -> None:
    """Threads that always read would otherwise keep it off between them."""
    inside, goes_on = threading.Event(), threading.Event()

    def waits() -> bool:
        inside.set()
        return goes_on.wait(TIMEOUT_S)

    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(uncollected, waits)
        assert inside.wait(TIMEOUT_S)
        assert not gc.isenabled()
        uncollected(lambda: None, off_s=0.0)
        assert gc.isenabled()
        goes_on.set()
        assert waiting.result(TIMEOUT_S)
    assert gc.isenabled()


@pytest.mark.parametrize(("length", "is_on"), [(LONG - 1, True), (LONG, False)])
def test_a_long_text_is_decoded_without_it(length: int, is_on: bool) -> None:
    """It would go through all that was decoded so far again and again."""
    assert decoded(lambda _: gc.isenabled(), "x" * length) is is_on
    assert gc.isenabled()


def test_what_a_start_has_made_is_passed_over() -> None:
    """A full collection after it goes through what came since: before, it went through all objects that there are."""
    gc.collect()
    before = len(gc.get_objects())
    try:
        leave_out_what_lives()
        since = len(gc.get_objects())
        assert gc.get_freeze_count() > before / 2
        assert since < before / 10
    finally:
        gc.unfreeze()


def test_a_library_is_passed_over_once() -> None:
    """What comes to be in a cycle after the first time is collected as ever."""
    try:
        leave_out_library("a library of this test")
        after = gc.get_freeze_count()
        kept = [[number] for number in range(1_000)]
        leave_out_library("a library of this test")
        assert gc.get_freeze_count() <= after, kept
    finally:
        gc.unfreeze()
