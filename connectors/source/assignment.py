"""What a reading task is assigned: ranges of portions, and when it ends before they do. Pickled by the driver."""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from connectors.kafka.client_settings import ClientSettings
from connectors.source.options import SourceOptions
from connectors.source.plan import SourceRanges


class EarlyEnd(Struct, frozen=True):
    """Ends a read once a file is at `mark`, after `idle_s` seconds without progress, or `total_s` in all.

    What was read by then is stated, the rest is read later. The file is one of the driver's machine: executors on
    others never see it.
    """

    mark: str | None = None
    idle_s: float = math.inf
    # Told to the task's TaskGrowth, as the chain ends by it in the midst of a batch.
    total_s: float = math.inf

    def is_due(self, idle_s: float) -> bool:
        """Returns whether a read ends now that has made no progress for `idle_s` seconds."""
        return idle_s >= self.idle_s or (self.mark is not None and os.path.lexists(self.mark))

    def ask(self) -> None:
        """Makes the file. If the disk has no room for it, nothing ends early."""
        if self.mark is not None:
            with suppress(OSError):
                Path(self.mark).touch()

    def forget(self) -> None:
        """Removes the file, if there is one."""
        if self.mark is not None:
            with suppress(OSError):
                Path(self.mark).unlink()


NEVER: Final = EarlyEnd()


class PortionSplit(Struct, frozen=True):
    """What one task reads of one connector's portion.

    `clients`: the settings with which portions of several connectors are read by one consumer; the connector's own in
    all but names.
    """

    portion: int
    options: SourceOptions
    ranges: SourceRanges
    clients: ClientSettings


class ReadTask(Struct, frozen=True):
    """What one Spark task reads. `bounded`: what takes long, or fails, is left to be read apart.

    Of any other task `early_end` says when it ends before its ranges do.
    """

    portions: tuple[PortionSplit, ...]
    bounded: bool
    early_end: EarlyEnd = NEVER
