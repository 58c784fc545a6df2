"""Lets reads take messages at once from few offsets on, and notes their messages: a test cannot send so many.

`install` is called in every process, as a task of Spark's reads with limits of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from connectors.kafka import message_queue
from connectors.source import reader

AT_ONCE: Final = "FAULT_READ_AT_ONCE"
"""Environment variable: of how many offsets on messages are taken at once."""
VARIABLE: Final = "FAULT_STEPS"
NOTES: Final = "read-at-once"


def install(at_once: int) -> None:
    """Lowers the limit of this process, and has it note such messages."""
    reader.ReadParts = partial(reader.ReadParts, at_once=at_once)  # type: ignore[misc, assignment]
    message_queue.MessageQueue = NotedQueue  # type: ignore[misc]


class NotedQueue(message_queue.MessageQueue):
    """A queue of messages that are taken at once, which is noted once it has brought any."""

    @contextmanager
    def consume(self, most: int, seconds: float) -> Iterator[message_queue.Messages]:
        """Waits for messages as every queue does."""
        with super().consume(most, seconds) as messages:
            if messages.records.size:
                with Path(os.environ[VARIABLE], NOTES).open("ab", buffering=0) as file:  # in one write: tasks share it
                    file.write(b"%d\n" % messages.records.size)
            yield messages


def count(folder: Path) -> int:
    """Counts the messages that were taken at once."""
    file = folder / NOTES
    return sum(map(int, file.read_text(encoding="utf-8").split())) if file.exists() else 0


def forget(folder: Path) -> None:
    """Removes all notes."""
    (folder / NOTES).unlink(missing_ok=True)
