"""Processes that number files in one folder."""

from __future__ import annotations

import pytest

from compactor.storage.numbered_files import NumberedFiles
from tests.support.memory.storage import MemoryStorage

FILES = NumberedFiles("runs", digits=4, suffix=".json")


def test_names_that_are_no_numbers_do_not_count() -> None:
    """Neither do those with another suffix, nor digits that Python alone takes for some."""
    storage = MemoryStorage()
    for name in ("0003.json", "0007", "²²²².json", "-001.json", "notes.json"):
        storage.create(f"runs/{name}", b"")
    assert (FILES.numbers(storage), FILES.newest(storage), FILES.path(12)) == ([3], 3, "runs/0012.json")
    assert FILES.newest(MemoryStorage()) == 0


@pytest.mark.parametrize(("attempts", "expected"), [(3, 3), (2, None)])
def test_a_number_that_is_taken_is_passed_over(attempts: int, expected: int | None) -> None:
    """So many times at most; what is written may depend on the number."""
    storage = MemoryStorage()
    for number in (1, 2):
        storage.create(FILES.path(number), b"")
    made = FILES.create_next(storage, 1, lambda number: str(number).encode(), attempts)
    assert made == expected
    assert storage.exists(FILES.path(3)) is (made is not None)
    assert made is None or storage.read(FILES.path(made)) == b"3"
