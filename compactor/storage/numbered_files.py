"""Numbers files of a folder one after the other, so that no two processes have the same number."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from compactor.storage.base import Storage


class NumberedFiles(Struct, frozen=True):
    """The files of `folder` that have a number as their name: of so many `digits`, with `suffix` after it."""

    folder: str
    digits: int
    suffix: str = ""

    def path(self, number: int) -> str:
        """Returns the path of the file with `number`."""
        return f"{self.folder}/{number:0{self.digits}}{self.suffix}"

    def numbers(self, storage: Storage) -> list[int]:
        """Returns the numbers of the files that are there, as far as the list shows them. Raises StorageError."""
        names = (name.removesuffix(self.suffix) for name in storage.list(self.folder) if name.endswith(self.suffix))
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    def newest(self, storage: Storage) -> int:
        """Returns the highest of `numbers`, 0 if there is none. Raises StorageError."""
        return max(self.numbers(storage), default=0)

    def create_next(self, storage: Storage, first: int, content: Callable[[int], bytes], attempts: int) -> int | None:
        """Creates the file of the lowest number from `first` on that is not taken, with what `content` returns for it.

        Returns the number, or None if `attempts` numbers in a row are taken: other processes create files meanwhile,
        and a list may not show all files yet. Raises StorageError, and what `content` raises.
        """
        for number in range(first, first + attempts):
            if storage.create(self.path(number), content(number)):
                return number
        return None
