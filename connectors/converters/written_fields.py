"""The fields of a row in the form that it is written in: single ones are replaced, and all else stays as it is.

A row that is read into Connect's values and written again may get another schema, or other bytes for equal values. What
is replaced here is taken from another message as it stands there, and written with the schema that the message has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Final, Self

ENVELOPE: Final = ("op", "after")
"""The fields by which an event of Debezium's is told: its row is in `after`."""


class WrittenFields(ABC):
    """The fields of one message; of an event of Debezium's those of the row after the change."""

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Returns the names of the fields; none if there is no row."""

    @abstractmethod
    def get(self, name: str, longest: int) -> Any:
        """Returns a field's value as text, bytes, a list or a dict of these; None if it is anything else.

        `longest`: what takes more bytes as it is written is not looked at, and is None as well.
        """

    @abstractmethod
    def take(self, name: str, other: Self) -> bool:
        """Takes the value of a field from `other`; False if that has no such field, or one of another type."""

    @abstractmethod
    def data(self) -> bytes:
        """Returns the message. Raises DataError for a value that does not fit."""
