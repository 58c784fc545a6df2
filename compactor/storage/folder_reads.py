"""Reads and lists files of a folder in which others may have put anything: large files, pipes, millions of names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Final

from compactor.storage.limits import ListBudget, check_size, not_a_file

_MORE_BYTES: Final = 1 << 20
"""What is read at once of a file after its first bytes."""

_LISTED: Final = 1_000
"""How many entries of a folder are looked at before it is asked whether they are too many."""


_NAME: Final = attrgetter("name")


def content(file: Path, at_most: int) -> bytes:
    """Reads `file`, which may have `at_most` bytes. Does not wait for the writer of a pipe.

    Raises OSError; ForeignContentError if it has more, or is no file.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise not_a_file(str(file))
        check_size(str(file), about.st_size, at_most)
        data = os.read(descriptor, about.st_size + 1)
        while more := os.read(descriptor, _MORE_BYTES):  # it grows, or the system reads less at once
            check_size(str(file), len(data) + len(more), at_most)
            data += more
        return data
    finally:
        os.close(descriptor)


def names_in(folder: Path, budget: ListBudget) -> list[str]:
    """Returns the names directly in `folder`, none if it is absent. Raises OSError, and as `ListBudget.take`."""
    return [name for entries in _pages(folder, budget) for name in map(_NAME, entries)]


def files_below(folder: Path, budget: ListBudget) -> Iterator[os.DirEntry[str]]:
    """Yields all files below `folder`; goes through no link to another folder. Raises as `names_in`."""
    folders: list[str | Path] = [folder]
    while folders:
        for entries in _pages(folders.pop(), budget):
            for entry in entries:
                if not entry.is_dir():
                    yield entry
                elif not entry.is_symlink():
                    folders.append(entry.path)


def _pages(folder: str | Path, budget: ListBudget) -> Iterator[list[os.DirEntry[str]]]:
    try:
        with os.scandir(folder) as entries:
            while page := list(islice(entries, _LISTED)):
                budget.take(len(page))
                yield page
    except FileNotFoundError:
        return
