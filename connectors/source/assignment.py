"""When a read that has no bounds ends before its ranges do, so that other connectors need not wait for it.

On its own because the driver makes one, and reading tasks look at it, in processes of their own.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct


class EarlyEnd(Struct, frozen=True):
    """Ends a read once a file is at `mark`, or after `idle_s` seconds without progress.

    What was read by then is stated, the rest is read later. The file is one of the driver's machine: executors on
    others never see it.
    """

    mark: str | None = None
    idle_s: float = math.inf

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
