"""What is sent is made while the producer waits for brokers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from compactor.publish.begun import begun

WAIT_S = 10.0


def test_the_first_item_is_made_before_it_is_taken() -> None:
    """The others are made as they are taken, by who takes them."""
    is_made, makers = threading.Event(), list[int]()

    def numbers() -> Iterator[int]:
        for number in range(3):
            makers.append(threading.get_ident())
            is_made.set()
            yield number

    with begun(numbers) as items:
        assert is_made.wait(WAIT_S)
        assert list(items) == [0, 1, 2]
    assert makers[0] != threading.get_ident()
    assert makers[1:] == [threading.get_ident()] * 2


def test_nothing_made_is_nothing_taken() -> None:
    """A publish of positions alone has no record."""
    with begun(lambda: iter(())) as items:
        assert list(items) == []


def failing() -> Iterator[int]:
    """Yields nothing, and raises."""
    raise OSError("gone")
    yield 0


def test_what_making_it_raises_is_raised_to_who_takes_it() -> None:
    """Not before: steps 6 and 7 may have an error of their own, which counts."""
    with begun(failing) as items, pytest.raises(OSError, match="gone"):
        next(items)


def test_an_error_before_it_is_taken_is_the_one_that_is_raised() -> None:
    """The thread has ended by then: nothing reads files of a connector that is over."""
    leaves, readers = threading.Event(), list[threading.Thread]()

    def reading() -> Iterator[int]:
        readers.append(threading.current_thread())
        assert leaves.wait(WAIT_S)
        yield from failing()

    def fail() -> None:
        with begun(reading):
            leaves.set()
            raise ValueError("fenced")

    with pytest.raises(ValueError, match="fenced"):
        fail()
    assert not readers[0].is_alive()


def test_a_read_that_does_not_end_holds_back_no_error() -> None:
    """The block waits for its thread a little, and its error is raised; the process can end meanwhile, too."""
    release, raised, readers = threading.Event(), threading.Event(), list[threading.Thread]()

    def waiting() -> Iterator[int]:
        readers.append(threading.current_thread())
        assert release.wait(6 * WAIT_S)
        yield 0

    def fail() -> None:
        with pytest.raises(ValueError, match="fenced"), begun(waiting, end_s=0.1):
            raise ValueError("fenced")
        raised.set()

    block = threading.Thread(target=fail, daemon=True)
    block.start()
    is_raised = raised.wait(WAIT_S)
    release.set()
    block.join(WAIT_S)
    assert is_raised
    assert readers[0].daemon
    readers[0].join(WAIT_S)
    assert not readers[0].is_alive()
